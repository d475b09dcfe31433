/* unpack.h - any weight block as signed codes and integer scales: the one place where the scalar side reads block bytes.
 *
 * Every format is brought to the same shape, so that decoding to floats and the products with integer activations are one
 * function each (quants.md 4, kernels.h R1):
 *
 *     w[i] = (d[step] * scale[sub]) * q[i] - dmin * min[sub]           or + m where the format stores a minimum of its own
 *     I    = sum over the sub-blocks of a step of scale * sum(q * a)   M = sum of min * sum(a)
 *
 * Constant factors of a format (1/8, 1/4) are in d, exactly. The ternary formats with a shift of 1/8 store q = 8 * value +- 1,
 * so that I is eight times the sum and d carries 1/8. Private to ref/, pack.c and the tests. */
#ifndef KERNELS_REF_UNPACK_H
#define KERNELS_REF_UNPACK_H

#include "kernels/f16.h"
#include "kernels/quant/blocks.h"
#include "kernels/quant/grids.h"
#include "kernels/quant/types.h"
#include "platform/base/bytes.h"
#include "platform/base/compiler.h"

enum ref_minimum { REF_NO_MIN, REF_MIN_SUB /* dmin * min[sub] */, REF_MIN_ADD /* m, with the activation sum s */ };

struct ref_law {
    unsigned len;  /* weights in a block */
    unsigned step; /* weights in one fused multiply-add: one activation block (nvfp4: half of it) */
    unsigned sub;  /* weights under one integer scale */
    enum ref_minimum minimum;
};

struct ref_block {
    int8_t q[256];
    int16_t scale[16], min[16]; /* one for each sub-block */
    float d[4];                 /* one for each step */
    float m;                    /* dmin, or m */
};

/* X(name, NAME, block, step, sub, minimum) for every type with integer activations */
#define REF_TYPES(X)                                                                                                           \
    X(q4_0, Q4_0, 32, 32, 32, REF_NO_MIN)                                                                                      \
    X(q4_1, Q4_1, 32, 32, 32, REF_MIN_ADD)                                                                                     \
    X(q5_0, Q5_0, 32, 32, 32, REF_NO_MIN)                                                                                      \
    X(q5_1, Q5_1, 32, 32, 32, REF_MIN_ADD)                                                                                     \
    X(q8_0, Q8_0, 32, 32, 32, REF_NO_MIN)                                                                                      \
    X(iq4_nl, IQ4_NL, 32, 32, 32, REF_NO_MIN)                                                                                  \
    X(mxfp4, MXFP4, 32, 32, 32, REF_NO_MIN)                                                                                    \
    X(q2_0, Q2_0, 64, 32, 32, REF_NO_MIN)                                                                                      \
    X(nvfp4, NVFP4, 64, 16, 16, REF_NO_MIN)                                                                                    \
    X(q1_0, Q1_0, 128, 32, 32, REF_NO_MIN)                                                                                     \
    X(q2_K, Q2_K, 256, 256, 16, REF_MIN_SUB)                                                                                   \
    X(q3_K, Q3_K, 256, 256, 16, REF_NO_MIN)                                                                                    \
    X(q4_K, Q4_K, 256, 256, 32, REF_MIN_SUB)                                                                                   \
    X(q5_K, Q5_K, 256, 256, 32, REF_MIN_SUB)                                                                                   \
    X(q6_K, Q6_K, 256, 256, 16, REF_NO_MIN)                                                                                    \
    X(iq2_xxs, IQ2_XXS, 256, 256, 32, REF_NO_MIN)                                                                              \
    X(iq2_xs, IQ2_XS, 256, 256, 16, REF_NO_MIN)                                                                                \
    X(iq2_s, IQ2_S, 256, 256, 16, REF_NO_MIN)                                                                                  \
    X(iq3_xxs, IQ3_XXS, 256, 256, 32, REF_NO_MIN)                                                                              \
    X(iq3_s, IQ3_S, 256, 256, 32, REF_NO_MIN)                                                                                  \
    X(iq4_xs, IQ4_XS, 256, 256, 32, REF_NO_MIN)                                                                                \
    X(iq1_s, IQ1_S, 256, 256, 32, REF_NO_MIN)                                                                                  \
    X(iq1_m, IQ1_M, 256, 256, 16, REF_NO_MIN)                                                                                  \
    X(tq1_0, TQ1_0, 256, 256, 256, REF_NO_MIN)                                                                                 \
    X(tq2_0, TQ2_0, 256, 256, 256, REF_NO_MIN)

/* ---- pieces shared by several formats ---- */

static inline float load_f16(const uint8_t d[2])
{
    return f16_to_f32(mc_load_u16(d));
}

/* n bytes: low nibbles become q[0..n), high nibbles q[n..2n). */
static inline void split_nibbles(int8_t *q, const uint8_t *qs, unsigned n, int bias)
{
    for (unsigned i = 0; i < n; i++) {
        q[i] = (int8_t)((qs[i] & 15) - bias);
        q[i + n] = (int8_t)((qs[i] >> 4) - bias);
    }
}

static inline void look_up_nibbles(int8_t *q, const uint8_t *qs, unsigned n, const int8_t values[16])
{
    for (unsigned i = 0; i < n; i++) {
        q[i] = values[qs[i] & 15];
        q[i + n] = values[qs[i] >> 4];
    }
}

/* Two-bit codes of 256 weights: weight 128h + 32k + l is bits 2k of byte 32h + l. */
static inline void split_pairs(int8_t q[256], const uint8_t qs[64], int bias)
{
    for (unsigned h = 0; h < 2; h++)
        for (unsigned k = 0; k < 4; k++)
            for (unsigned l = 0; l < 32; l++) q[128 * h + 32 * k + l] = (int8_t)((qs[32 * h + l] >> (2 * k) & 3) - bias);
}

/* Weight 32j + l gets bit j of byte l, times `worth`. */
static inline void add_bit_plane(int8_t q[256], const uint8_t bits[32], int worth)
{
    for (unsigned j = 0; j < 8; j++)
        for (unsigned l = 0; l < 32; l++) q[32 * j + l] = (int8_t)(q[32 * j + l] + (bits[l] >> j & 1) * worth);
}

static inline void with_signs(int8_t *q, const uint8_t *mag, unsigned n, unsigned signs)
{
    for (unsigned i = 0; i < n; i++) q[i] = (int8_t)(signs >> i & 1 ? -mag[i] : mag[i]);
}

static inline void odd_nibble_scales(int16_t *scale, const uint8_t *s, unsigned n)
{
    for (unsigned j = 0; j < n; j++) scale[j] = (int16_t)(2 * (s[j / 2] >> (4 * (j % 2)) & 15) + 1);
}

/* The 12 packed bytes of q4_K and q5_K. */
static inline void packed_scales(int16_t scale[8], int16_t min[8], const uint8_t s[12])
{
    for (unsigned j = 0; j < 4; j++) {
        scale[j] = s[j] & 63;
        min[j] = s[j + 4] & 63;
        scale[j + 4] = (int16_t)((s[j + 8] & 15) | s[j] >> 6 << 4);
        min[j + 4] = (int16_t)(s[j + 8] >> 4 | s[j + 4] >> 6 << 4);
    }
}

static inline void one_scale(struct ref_block *b, float d)
{
    for (unsigned j = 0; j < 4; j++) b->d[j] = d, b->scale[j] = 1;
}

/* ---- 32, 64 and 128 weights ---- */

static inline void unpack_q4_0(struct ref_block *b, const struct block_q4_0 *p)
{
    one_scale(b, load_f16(p->d));
    split_nibbles(b->q, p->qs, 16, 8);
}

static inline void unpack_q4_1(struct ref_block *b, const struct block_q4_1 *p)
{
    one_scale(b, load_f16(p->d));
    b->m = load_f16(p->m);
    split_nibbles(b->q, p->qs, 16, 0);
}

static inline void add_fifth_bits(int8_t q[32], uint32_t bits)
{
    for (unsigned i = 0; i < 32; i++) q[i] = (int8_t)(q[i] + (int)(bits >> i & 1) * 16);
}

static inline void unpack_q5_0(struct ref_block *b, const struct block_q5_0 *p)
{
    one_scale(b, load_f16(p->d));
    split_nibbles(b->q, p->qs, 16, 16);
    add_fifth_bits(b->q, mc_load_u32(p->qh));
}

static inline void unpack_q5_1(struct ref_block *b, const struct block_q5_1 *p)
{
    one_scale(b, load_f16(p->d));
    b->m = load_f16(p->m);
    split_nibbles(b->q, p->qs, 16, 0);
    add_fifth_bits(b->q, mc_load_u32(p->qh));
}

static inline void unpack_q8_0(struct ref_block *b, const struct block_q8_0 *p)
{
    one_scale(b, load_f16(p->d));
    memcpy(b->q, p->q, 32);
}

static inline void unpack_iq4_nl(struct ref_block *b, const struct block_iq4_nl *p)
{
    one_scale(b, load_f16(p->d));
    look_up_nibbles(b->q, p->qs, 16, quant_iq4_values);
}

static inline void unpack_mxfp4(struct ref_block *b, const struct block_mxfp4 *p)
{
    one_scale(b, e8m0_half(p->e));
    look_up_nibbles(b->q, p->qs, 16, quant_fp4_values);
}

static inline void unpack_q2_0(struct ref_block *b, const struct block_q2_0 *p)
{
    one_scale(b, load_f16(p->d));
    for (unsigned i = 0; i < 64; i++) b->q[i] = (int8_t)((p->qs[i / 4] >> (2 * (i % 4)) & 3) - 1);
}

static inline void unpack_nvfp4(struct ref_block *b, const struct block_nvfp4 *p)
{
    for (unsigned t = 0; t < 4; t++) {
        b->d[t] = ue4m3_half(p->sc[t]);
        b->scale[t] = 1;
        look_up_nibbles(b->q + 16 * t, p->qs + 8 * t, 8, quant_fp4_values);
    }
}

static inline void unpack_q1_0(struct ref_block *b, const struct block_q1_0 *p)
{
    one_scale(b, load_f16(p->d));
    for (unsigned i = 0; i < 128; i++) b->q[i] = (int8_t)((p->qs[i / 8] >> (i % 8) & 1) * 2 - 1);
}

/* ---- 256 weights, K formats ---- */

static inline void unpack_q2_K(struct ref_block *b, const struct block_q2_K *p)
{
    b->d[0] = load_f16(p->d);
    b->m = load_f16(p->dmin);
    split_pairs(b->q, p->qs, 0);
    for (unsigned j = 0; j < 16; j++) b->scale[j] = p->sm[j] & 15, b->min[j] = p->sm[j] >> 4;
}

static inline void unpack_q3_K(struct ref_block *b, const struct block_q3_K *p)
{
    b->d[0] = load_f16(p->d);
    split_pairs(b->q, p->qs, 4);
    add_bit_plane(b->q, p->hm, 4);
    for (unsigned j = 0; j < 16; j++) {
        const int low = p->s[j % 8] >> (4 * (j / 8)) & 15, high = p->s[8 + j % 4] >> (2 * (j / 4)) & 3;
        b->scale[j] = (int16_t)((low | high << 4) - 32);
    }
}

static inline void unpack_q4_K(struct ref_block *b, const struct block_q4_K *p)
{
    b->d[0] = load_f16(p->d);
    b->m = load_f16(p->dmin);
    packed_scales(b->scale, b->min, p->s);
    for (unsigned i = 0; i < 4; i++) split_nibbles(b->q + 64 * i, p->qs + 32 * i, 32, 0);
}

static inline void unpack_q5_K(struct ref_block *b, const struct block_q5_K *p)
{
    b->d[0] = load_f16(p->d);
    b->m = load_f16(p->dmin);
    packed_scales(b->scale, b->min, p->s);
    for (unsigned i = 0; i < 4; i++) split_nibbles(b->q + 64 * i, p->qs + 32 * i, 32, 0);
    add_bit_plane(b->q, p->qh, 16);
}

static inline void unpack_q6_K(struct ref_block *b, const struct block_q6_K *p)
{
    b->d[0] = load_f16(p->d);
    for (unsigned i = 0; i < 8; i++) { /* 32 weights: half h, part k */
        const unsigned h = i / 4, k = i % 4;
        const uint8_t *low = p->ql + 64 * h + 32 * (k % 2), *high = p->qh + 32 * h;
        for (unsigned l = 0; l < 32; l++)
            b->q[32 * i + l] = (int8_t)(((low[l] >> (4 * (k / 2)) & 15) | (high[l] >> (2 * k) & 3) << 4) - 32);
    }
    for (unsigned j = 0; j < 16; j++) b->scale[j] = p->sc[j];
}

/* ---- 256 weights, codebooks ---- */

static inline void unpack_iq2_xxs(struct ref_block *b, const struct block_iq2_xxs *p)
{
    b->d[0] = load_f16(p->d) * 0.125f;
    for (unsigned j = 0; j < 8; j++) {
        const uint32_t x = mc_load_u32(p->sub[j].x);
        b->scale[j] = (int16_t)(2 * (x >> 28) + 1);
        for (unsigned g = 0; g < 4; g++)
            with_signs(b->q + 32 * j + 8 * g, quant_iq2_xxs_grid[p->sub[j].idx[g]], 8, quant_sign_bytes[x >> (7 * g) & 127]);
    }
}

static inline void unpack_iq2_xs(struct ref_block *b, const struct block_iq2_xs *p)
{
    b->d[0] = load_f16(p->d) * 0.125f;
    odd_nibble_scales(b->scale, p->s, 16);
    for (unsigned g = 0; g < 32; g++) {
        const unsigned q = mc_load_u16(p->q[g]);
        with_signs(b->q + 8 * g, quant_iq2_xs_grid[q & 511], 8, quant_sign_bytes[q >> 9]);
    }
}

static inline void unpack_iq2_s(struct ref_block *b, const struct block_iq2_s *p)
{
    b->d[0] = load_f16(p->d) * 0.125f;
    odd_nibble_scales(b->scale, p->s, 16);
    for (unsigned g = 0; g < 32; g++) {
        const unsigned high = p->qh[g / 4] >> (2 * (g % 4)) & 3;
        with_signs(b->q + 8 * g, quant_iq2_s_grid[p->lo[g] | high << 8], 8, p->sg[g]);
    }
}

static inline void unpack_iq3_xxs(struct ref_block *b, const struct block_iq3_xxs *p)
{
    b->d[0] = load_f16(p->d) * 0.25f;
    for (unsigned j = 0; j < 8; j++) {
        const uint32_t x = mc_load_u32(p->x[j]);
        b->scale[j] = (int16_t)(2 * (x >> 28) + 1);
        for (unsigned k = 0; k < 8; k++) {
            const unsigned signs = quant_sign_bytes[x >> (7 * (k / 2)) & 127] >> (4 * (k % 2));
            with_signs(b->q + 32 * j + 4 * k, quant_iq3_xxs_grid[p->idx[8 * j + k]], 4, signs);
        }
    }
}

static inline void unpack_iq3_s(struct ref_block *b, const struct block_iq3_s *p)
{
    b->d[0] = load_f16(p->d);
    odd_nibble_scales(b->scale, p->s, 8);
    for (unsigned k = 0; k < 64; k++) {
        const unsigned high = p->qh[k / 8] >> (k % 8) & 1;
        with_signs(b->q + 4 * k, quant_iq3_s_grid[p->lo[k] | high << 8], 4, (unsigned)p->sg[k / 2] >> (4 * (k % 2)));
    }
}

static inline void unpack_iq4_xs(struct ref_block *b, const struct block_iq4_xs *p)
{
    const unsigned sh = mc_load_u16(p->sh);
    b->d[0] = load_f16(p->d);
    for (unsigned j = 0; j < 8; j++) {
        b->scale[j] = (int16_t)((int)((p->sl[j / 2] >> (4 * (j % 2)) & 15) | (sh >> (2 * j) & 3) << 4) - 32);
        look_up_nibbles(b->q + 32 * j, p->qs + 16 * j, 16, quant_iq4_values);
    }
}

/* Eight times (value + shift), shift = +-1/8. */
static inline void ternary_octet(int8_t q[8], unsigned index, bool negative_shift)
{
    for (unsigned i = 0; i < 8; i++) q[i] = (int8_t)(8 * quant_iq1_s_grid[index][i] + (negative_shift ? -1 : 1));
}

static inline void unpack_iq1_s(struct ref_block *b, const struct block_iq1_s *p)
{
    b->d[0] = load_f16(p->d) * 0.125f;
    for (unsigned j = 0; j < 8; j++) {
        const unsigned qh = mc_load_u16(p->qh[j]);
        b->scale[j] = (int16_t)(2 * (qh >> 12 & 7) + 1);
        for (unsigned g = 0; g < 4; g++)
            ternary_octet(b->q + 32 * j + 8 * g, p->lo[4 * j + g] | (qh >> (3 * g) & 7) << 8, qh >> 15);
    }
}

static inline void unpack_iq1_m(struct ref_block *b, const struct block_iq1_m *p)
{
    unsigned d = 0;
    for (unsigned k = 0; k < 16; k++) b->scale[k] = (int16_t)(2 * (mc_load_u16(p->sc[k / 4]) >> (3 * (k % 4)) & 7) + 1);
    for (unsigned i = 0; i < 4; i++) d |= (unsigned)(mc_load_u16(p->sc[i]) >> 12) << (4 * i);
    b->d[0] = f16_to_f32((uint16_t)d) * 0.125f;
    for (unsigned g = 0; g < 32; g++) {
        const unsigned h = p->qh[g / 2] >> (4 * (g % 2)) & 15;
        ternary_octet(b->q + 8 * g, p->lo[g] | (h & 7) << 8, h >> 3);
    }
}

/* ---- 256 weights, ternary ---- */

static inline void base3_digits(int8_t *q, const uint8_t *bytes, unsigned n, unsigned digits)
{
    static const uint8_t pow3[5] = {1, 3, 9, 27, 81};
    for (unsigned k = 0; k < digits; k++)
        for (unsigned i = 0; i < n; i++) q[n * k + i] = (int8_t)((((bytes[i] * pow3[k]) & 255) * 3 >> 8) - 1);
}

static inline void unpack_tq1_0(struct ref_block *b, const struct block_tq1_0 *p)
{
    one_scale(b, load_f16(p->d));
    base3_digits(b->q, p->qs, 32, 5);
    base3_digits(b->q + 160, p->qs + 32, 16, 5);
    base3_digits(b->q + 240, p->qh, 4, 4);
}

static inline void unpack_tq2_0(struct ref_block *b, const struct block_tq2_0 *p)
{
    one_scale(b, load_f16(p->d));
    split_pairs(b->q, p->qs, 1);
}

/* ---- any type; folds to one of the above when `type` is a constant ---- */

#define REF_LAW(name, NAME, len, step, sub, minimum)                                                                           \
    case QUANT_##NAME:                                                                                                         \
        return (struct ref_law){len, step, sub, minimum};
#define REF_UNPACK(name, NAME, len, step, sub, minimum)                                                                        \
    case QUANT_##NAME:                                                                                                         \
        unpack_##name(b, p);                                                                                                   \
        break;

MC_INLINE struct ref_law ref_law_of(enum quant_type type)
{
    switch (type) {
        REF_TYPES(REF_LAW)
    default:
        return (struct ref_law){0, 0, 0, REF_NO_MIN};
    }
}

MC_INLINE void ref_unpack(enum quant_type type, struct ref_block *b, const void *p)
{
    switch (type) {
        REF_TYPES(REF_UNPACK)
    default:
        break;
    }
}

/* I of step `s`; a: the activation codes of the whole block. */
MC_INLINE int32_t ref_sum(struct ref_law law, const struct ref_block *b, unsigned s, const int8_t *a)
{
    int32_t sum = 0;
    for (unsigned j = s * law.step / law.sub; j < (s + 1) * law.step / law.sub; j++) {
        int32_t dot = 0;
        for (unsigned i = j * law.sub; i < (j + 1) * law.sub; i++) dot += b->q[i] * a[i];
        sum += b->scale[j] * dot;
    }
    return sum;
}

/* M of the block; sums: the activation sums of its sub-blocks. */
MC_INLINE int32_t ref_min_sum(struct ref_law law, const struct ref_block *b, const int16_t *sums)
{
    int32_t sum = 0;
    for (unsigned j = 0; j < law.len / law.sub; j++) sum += b->min[j] * sums[j];
    return sum;
}

#endif
