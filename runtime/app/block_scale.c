/* block_scale.c - see block_scale.h. */
#include "runtime/app/block_scale.h"

struct block_scale block_scale_of(enum quant_type type)
{
    static const struct block_scale scales[QUANT_TYPE_COUNT] = {
        [QUANT_Q4_0] = {SCALE_F16, 0},     [QUANT_Q4_1] = {SCALE_F16_MIN, 0}, [QUANT_Q5_0] = {SCALE_F16, 0},
        [QUANT_Q5_1] = {SCALE_F16_MIN, 0}, [QUANT_Q8_0] = {SCALE_F16, 0},     [QUANT_Q2_K] = {SCALE_F16_MIN, 80},
        [QUANT_Q3_K] = {SCALE_F16, 108},   [QUANT_Q4_K] = {SCALE_F16_MIN, 0}, [QUANT_Q5_K] = {SCALE_F16_MIN, 0},
        [QUANT_Q6_K] = {SCALE_F16, 208},   [QUANT_IQ2_XXS] = {SCALE_F16, 0},  [QUANT_IQ2_XS] = {SCALE_F16, 0},
        [QUANT_IQ3_XXS] = {SCALE_F16, 0},  [QUANT_IQ1_S] = {SCALE_F16, 0},    [QUANT_IQ4_NL] = {SCALE_F16, 0},
        [QUANT_IQ3_S] = {SCALE_F16, 0},    [QUANT_IQ2_S] = {SCALE_F16, 0},    [QUANT_IQ4_XS] = {SCALE_F16, 0},
        [QUANT_IQ1_M] = {SCALE_IQ1_M, 48}, [QUANT_TQ1_0] = {SCALE_F16, 52},   [QUANT_TQ2_0] = {SCALE_F16, 64},
        [QUANT_MXFP4] = {SCALE_E8M0, 0},   [QUANT_NVFP4] = {SCALE_E4M3, 0},   [QUANT_Q1_0] = {SCALE_F16, 0},
        [QUANT_Q2_0] = {SCALE_F16, 0},
    };
    return scales[type];
}
