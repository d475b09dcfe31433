/* packed_iq4.c - packed formats of four-bit codes with a value of their own. See packed_blocks.h. */
#include "kernels/avx2/packed_blocks.h"

#define FORMATS(X) X(iq3_xxs, IQ3_XXS) X(iq3_s, IQ3_S) X(iq4_xs, IQ4_XS)

FORMATS(PACKED_MATMUL)

void PACKED_NAME(init_packed_iq4)(struct kern_table *t)
{
    FORMATS(PACKED_SET)
}
