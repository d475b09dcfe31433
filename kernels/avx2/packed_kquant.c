/* packed_kquant.c - packed K formats. See packed_blocks.h. */
#include "kernels/avx2/packed_blocks.h"

#define FORMATS(X) X(q2_K, Q2_K) X(q5_K, Q5_K) X(q6_K, Q6_K) PLAIN_ONLY(X(q3_K, Q3_K) X(q4_K, Q4_K))

FORMATS(PACKED_MATMUL)

void PACKED_NAME(init_packed_kquant)(struct kern_table *t)
{
    FORMATS(PACKED_SET)
}
