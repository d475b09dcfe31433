/* packed_ternary.c - packed ternary formats. See packed_blocks.h. */
#include "kernels/avx2/packed_blocks.h"

#define FORMATS(X) X(iq1_s, IQ1_S) X(iq1_m, IQ1_M) X(tq1_0, TQ1_0) X(tq2_0, TQ2_0)

FORMATS(PACKED_MATMUL)

void avx2_init_packed_ternary(struct kern_table *t)
{
    FORMATS(PACKED_SET)
}
