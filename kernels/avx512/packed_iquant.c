/* packed_iquant.c - packed codebook formats of magnitudes and signs. See packed_blocks.h. */
#include "kernels/avx512/packed_blocks.h"

#define FORMATS(X) X(iq2_xxs, IQ2_XXS) X(iq2_xs, IQ2_XS) X(iq2_s, IQ2_S) X(iq3_xxs, IQ3_XXS) X(iq3_s, IQ3_S) X(iq4_xs, IQ4_XS)

FORMATS(PACKED_MATMUL)

void avx512_init_packed_iquant(struct kern_table *t)
{
    FORMATS(PACKED_SET)
}
