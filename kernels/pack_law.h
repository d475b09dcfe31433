/* pack_law.h - which parts the packed form of each type has (the table in pack.h), for those that write it. Private to pack.c
 * and the pack.c of the instruction sets. */
#ifndef KERNELS_PACK_LAW_H
#define KERNELS_PACK_LAW_H

#include "kernels/pack.h"
#include "kernels/quant/blocks.h"
#include "kernels/ref/unpack.h"

enum pack_scales { PACK_NO_SCALES, PACK_BYTES, PACK_NIBBLES, PACK_ODD_NIBBLES /* (scale - 1) / 2 */ };

struct pack_law {
    uint8_t wide, narrow;   /* bits of the planes */
    uint8_t head;           /* bytes a block */
    uint8_t d, m;           /* where the float16 values of the head stand in the file's block */
    uint8_t scales, minima; /* enum pack_scales */
    bool shifts; /* signs of the shift: for each 32 columns in bit 3 of the scale, for each 8 in a line of their own */
};

#define PACK_D(name)    offsetof(struct block_##name, d)
#define PACK_DM(name)   offsetof(struct block_##name, d), offsetof(struct block_##name, m)
#define PACK_DMIN(name) offsetof(struct block_##name, d), offsetof(struct block_##name, dmin)

/* clang-format off */
static const struct pack_law pack_laws[QUANT_TYPE_COUNT] = {
    [QUANT_Q8_0] = {8, 0, 32, PACK_D(q8_0), 0, PACK_NO_SCALES, PACK_NO_SCALES, false},
    [QUANT_Q4_0] = {4, 0, 32, PACK_D(q4_0), 0, PACK_NO_SCALES, PACK_NO_SCALES, false},
    [QUANT_Q4_1] = {4, 0, 64, PACK_DM(q4_1), PACK_NO_SCALES, PACK_NO_SCALES, false},
    [QUANT_Q5_0] = {4, 1, 32, PACK_D(q5_0), 0, PACK_NO_SCALES, PACK_NO_SCALES, false},
    [QUANT_Q5_1] = {4, 1, 64, PACK_DM(q5_1), PACK_NO_SCALES, PACK_NO_SCALES, false},
    [QUANT_IQ4_NL] = {4, 0, 32, PACK_D(iq4_nl), 0, PACK_NO_SCALES, PACK_NO_SCALES, false},
    [QUANT_MXFP4] = {4, 0, 16, 0, 0, PACK_NO_SCALES, PACK_NO_SCALES, false},
    [QUANT_NVFP4] = {4, 0, 64, 0, 0, PACK_NO_SCALES, PACK_NO_SCALES, false},
    [QUANT_Q2_0] = {2, 0, 32, PACK_D(q2_0), 0, PACK_NO_SCALES, PACK_NO_SCALES, false},
    [QUANT_Q1_0] = {1, 0, 32, PACK_D(q1_0), 0, PACK_NO_SCALES, PACK_NO_SCALES, false},
    [QUANT_Q2_K] = {2, 0, 64, PACK_DMIN(q2_K), PACK_NIBBLES, PACK_NIBBLES, false},
    [QUANT_Q3_K] = {2, 1, 32, PACK_D(q3_K), 0, PACK_BYTES, PACK_NO_SCALES, false},
    [QUANT_Q4_K] = {4, 0, 64, PACK_DMIN(q4_K), PACK_BYTES, PACK_BYTES, false},
    [QUANT_Q5_K] = {4, 1, 64, PACK_DMIN(q5_K), PACK_BYTES, PACK_BYTES, false},
    [QUANT_Q6_K] = {4, 2, 32, PACK_D(q6_K), 0, PACK_BYTES, PACK_NO_SCALES, false},
    [QUANT_IQ2_XXS] = {2, 1, 32, PACK_D(iq2_xxs), 0, PACK_ODD_NIBBLES, PACK_NO_SCALES, false},
    [QUANT_IQ2_XS] = {2, 1, 32, PACK_D(iq2_xs), 0, PACK_ODD_NIBBLES, PACK_NO_SCALES, false},
    [QUANT_IQ2_S] = {2, 1, 32, PACK_D(iq2_s), 0, PACK_ODD_NIBBLES, PACK_NO_SCALES, false},
    [QUANT_IQ3_XXS] = {4, 0, 32, PACK_D(iq3_xxs), 0, PACK_ODD_NIBBLES, PACK_NO_SCALES, false},
    [QUANT_IQ3_S] = {4, 0, 32, PACK_D(iq3_s), 0, PACK_ODD_NIBBLES, PACK_NO_SCALES, false},
    [QUANT_IQ4_XS] = {4, 0, 32, PACK_D(iq4_xs), 0, PACK_BYTES, PACK_NO_SCALES, false},
    [QUANT_IQ1_S] = {2, 0, 32, PACK_D(iq1_s), 0, PACK_ODD_NIBBLES, PACK_NO_SCALES, true},
    [QUANT_IQ1_M] = {2, 0, 32, 0, 0, PACK_ODD_NIBBLES, PACK_NO_SCALES, true},
    [QUANT_TQ1_0] = {2, 0, 32, PACK_D(tq1_0), 0, PACK_NO_SCALES, PACK_NO_SCALES, false},
    [QUANT_TQ2_0] = {2, 0, 32, PACK_D(tq2_0), 0, PACK_NO_SCALES, PACK_NO_SCALES, false},
};
/* clang-format on */

MC_INLINE size_t pack_scale_bytes(enum pack_scales form, unsigned sub_blocks)
{
    return form == PACK_NO_SCALES ? 0 : (size_t)sub_blocks * 16 / (form == PACK_BYTES ? 1 : 2);
}

/* Of a block of 16 rows, without the head. */
MC_INLINE size_t pack_body_bytes(enum quant_type type)
{
    const struct pack_law *p = &pack_laws[type];
    const struct ref_law law = ref_law_of(type);
    const unsigned sub_blocks = law.len / law.sub;
    return pack_scale_bytes((enum pack_scales)p->scales, sub_blocks) +
           pack_scale_bytes((enum pack_scales)p->minima, sub_blocks) + (p->shifts && law.sub == 16 ? 64 : 0) +
           (size_t)law.len * 2 * (p->wide + p->narrow);
}

/* Row r of the head of a block: the bytes of the file. */
MC_INLINE void pack_write_head(enum quant_type type, uint8_t *head, unsigned r, const void *block)
{
    if (type == QUANT_MXFP4) {
        head[r] = ((const struct block_mxfp4 *)block)->e;
    } else if (type == QUANT_NVFP4) {
        const struct block_nvfp4 *p = block;
        for (unsigned t = 0; t < 4; t++) head[16 * t + r] = p->sc[t] == 0x7F ? 0 : p->sc[t] & 0x7F;
    } else if (type == QUANT_IQ1_M) { /* the highest nibbles of four words */
        const struct block_iq1_m *p = block;
        unsigned d = 0;
        for (unsigned i = 0; i < 4; i++) d |= (unsigned)(p->sc[i][1] >> 4) << (4 * i);
        mc_store_u16(head + 2 * r, (uint16_t)d);
    } else {
        memcpy(head + 2 * r, (const uint8_t *)block + pack_laws[type].d, 2);
        if (pack_laws[type].head == 64) memcpy(head + 32 + 2 * r, (const uint8_t *)block + pack_laws[type].m, 2);
    }
}

#endif
