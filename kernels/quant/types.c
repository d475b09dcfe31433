/* types.c - the table behind types.h. A new weight format starts with one row here. */
#include "kernels/quant/types.h"

#include <string.h>

static const struct quant_info infos[QUANT_TYPE_COUNT] = {
    [QUANT_F32] = {"f32", 1, 4, QUANT_ACT_F32},
    [QUANT_F16] = {"f16", 1, 2, QUANT_ACT_F32},
    [QUANT_BF16] = {"bf16", 1, 2, QUANT_ACT_F32},
    [QUANT_I32] = {"i32", 1, 4, QUANT_ACT_F32},
    [QUANT_Q4_0] = {"q4_0", 32, 18, QUANT_ACT_Q8_0},
    [QUANT_Q4_1] = {"q4_1", 32, 20, QUANT_ACT_Q8_0},
    [QUANT_Q5_0] = {"q5_0", 32, 22, QUANT_ACT_Q8_0},
    [QUANT_Q5_1] = {"q5_1", 32, 24, QUANT_ACT_Q8_0},
    [QUANT_Q8_0] = {"q8_0", 32, 34, QUANT_ACT_Q8_0},
    [QUANT_Q2_K] = {"q2_K", 256, 84, QUANT_ACT_Q8_K},
    [QUANT_Q3_K] = {"q3_K", 256, 110, QUANT_ACT_Q8_K},
    [QUANT_Q4_K] = {"q4_K", 256, 144, QUANT_ACT_Q8_K},
    [QUANT_Q5_K] = {"q5_K", 256, 176, QUANT_ACT_Q8_K},
    [QUANT_Q6_K] = {"q6_K", 256, 210, QUANT_ACT_Q8_K},
    [QUANT_IQ2_XXS] = {"iq2_xxs", 256, 66, QUANT_ACT_Q8_K},
    [QUANT_IQ2_XS] = {"iq2_xs", 256, 74, QUANT_ACT_Q8_K},
    [QUANT_IQ3_XXS] = {"iq3_xxs", 256, 98, QUANT_ACT_Q8_K},
    [QUANT_IQ1_S] = {"iq1_s", 256, 50, QUANT_ACT_Q8_K},
    [QUANT_IQ4_NL] = {"iq4_nl", 32, 18, QUANT_ACT_Q8_0},
    [QUANT_IQ3_S] = {"iq3_s", 256, 110, QUANT_ACT_Q8_K},
    [QUANT_IQ2_S] = {"iq2_s", 256, 82, QUANT_ACT_Q8_K},
    [QUANT_IQ4_XS] = {"iq4_xs", 256, 136, QUANT_ACT_Q8_K},
    [QUANT_IQ1_M] = {"iq1_m", 256, 56, QUANT_ACT_Q8_K},
    [QUANT_TQ1_0] = {"tq1_0", 256, 54, QUANT_ACT_Q8_K},
    [QUANT_TQ2_0] = {"tq2_0", 256, 66, QUANT_ACT_Q8_K},
    [QUANT_MXFP4] = {"mxfp4", 32, 17, QUANT_ACT_Q8_0},
    [QUANT_NVFP4] = {"nvfp4", 64, 36, QUANT_ACT_Q8_0},
    [QUANT_Q1_0] = {"q1_0", 128, 18, QUANT_ACT_Q8_0},
    [QUANT_Q2_0] = {"q2_0", 64, 18, QUANT_ACT_Q8_0},
};

const struct quant_info *quant_info(uint32_t type)
{
    return type < QUANT_TYPE_COUNT && infos[type].name ? &infos[type] : NULL;
}

enum quant_type quant_type_of_name(const char *name)
{
    for (unsigned t = 0; t < QUANT_TYPE_COUNT; t++)
        if (infos[t].name && !strcmp(infos[t].name, name)) return (enum quant_type)t;
    return QUANT_TYPE_COUNT;
}

const char *quant_refusal(uint32_t type)
{
    if (type == 9 || type == 15) return "an activation format, not a weight format";
    if (type == 4 || type == 5 || (type >= 31 && type <= 33) || (type >= 36 && type <= 38)) return "a withdrawn layout";
    if (type >= 24 && type <= 28) return "an integer or double type that no deepseek4 tensor has";
    return "a private type of a fork";
}
