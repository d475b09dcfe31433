/* types.h - the weight formats of GGUF files: names, block sizes, and which activation format each is multiplied with.
 * Facts of the file format (quants.md); no arithmetic. */
#ifndef KERNELS_QUANT_TYPES_H
#define KERNELS_QUANT_TYPES_H

#include <stddef.h>
#include <stdint.h>

/* Numbers are those stored in files. Gaps are types that must be refused. */
enum quant_type {
    QUANT_F32 = 0,
    QUANT_F16 = 1,
    QUANT_Q4_0 = 2,
    QUANT_Q4_1 = 3,
    QUANT_Q5_0 = 6,
    QUANT_Q5_1 = 7,
    QUANT_Q8_0 = 8,
    QUANT_Q2_K = 10,
    QUANT_Q3_K = 11,
    QUANT_Q4_K = 12,
    QUANT_Q5_K = 13,
    QUANT_Q6_K = 14,
    QUANT_IQ2_XXS = 16,
    QUANT_IQ2_XS = 17,
    QUANT_IQ3_XXS = 18,
    QUANT_IQ1_S = 19,
    QUANT_IQ4_NL = 20,
    QUANT_IQ3_S = 21,
    QUANT_IQ2_S = 22,
    QUANT_IQ4_XS = 23,
    QUANT_I32 = 26,
    QUANT_IQ1_M = 29,
    QUANT_BF16 = 30,
    QUANT_TQ1_0 = 34,
    QUANT_TQ2_0 = 35,
    QUANT_MXFP4 = 39,
    QUANT_NVFP4 = 40,
    QUANT_Q1_0 = 41,
    QUANT_Q2_0 = 42,
    QUANT_TYPE_COUNT = 43
};

/* What the other operand of a product looks like (kernels.h, "activations"). */
enum quant_act { QUANT_ACT_F32, QUANT_ACT_Q8_0, QUANT_ACT_Q8_K, QUANT_ACT_COUNT };

struct quant_info {
    const char *name;   /* "iq1_s"; NULL: not a type we read */
    uint16_t block_len; /* weights in a block */
    uint16_t block_bytes;
    enum quant_act act; /* q4_1 and q5_1 use QUANT_ACT_Q8_0, whose rows carry the q8_1 sums too */
};

/* NULL for numbers that are not weight types we read (withdrawn, activation-only, private ones). */
const struct quant_info *quant_info(uint32_t type);
/* Type with this name, or QUANT_TYPE_COUNT. */
enum quant_type quant_type_of_name(const char *name);
/* Why a refused number is refused: "an activation format", "a withdrawn layout", "a private type of a fork" ... */
const char *quant_refusal(uint32_t type);

/* Bytes of a row of n weights; n must be a multiple of block_len. */
static inline uint64_t quant_row_bytes(const struct quant_info *q, uint64_t n)
{
    return n / q->block_len * q->block_bytes;
}

#endif
