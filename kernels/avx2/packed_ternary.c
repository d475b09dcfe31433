/* packed_ternary.c - packed ternary formats. See packed_blocks.h. */
#include "kernels/avx2/packed_blocks.h"

#define FORMATS(X) X(iq1_s, IQ1_S) X(tq1_0, TQ1_0) X(tq2_0, TQ2_0) PLAIN_ONLY(X(iq1_m, IQ1_M))

FORMATS(PACKED_MATMUL)

void PACKED_NAME(init_packed_ternary)(struct kern_table *t)
{
    FORMATS(PACKED_SET)
}
