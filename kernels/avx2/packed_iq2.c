/* packed_iq2.c - packed codebook formats of the magnitudes 8, 25, 43. See packed_blocks.h. */
#include "kernels/avx2/packed_blocks.h"

#define FORMATS(X) X(iq2_xxs, IQ2_XXS) X(iq2_xs, IQ2_XS) X(iq2_s, IQ2_S)

FORMATS(PACKED_MATMUL)

void PACKED_NAME(init_packed_iq2)(struct kern_table *t)
{
    FORMATS(PACKED_SET)
}
