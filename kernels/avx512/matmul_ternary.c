/* matmul_ternary.c - tq1_0 and tq2_0 with q8_K rows (rows16_k.h; layouts: quants.md 4.5). Codes 0, 1, 2; bias 1. */
#include "kernels/avx512/matmul.h"
#include "kernels/avx512/rows16_k.h"

static const struct k_law law_tq2_0 = {66, 256, true, 4, false};
static const struct k_law law_tq1_0 = {54, 256, false, 4, false};
K_COLUMNS(columns_256, law_tq2_0)

MC_INLINE void bias_one(struct tile *t)
{
    MC_UNROLL for (unsigned i = 0; i < 4; i++) put(t->pair[i], _mm512_set1_epi16(-1));
}

MC_INLINE void tq2_0_head(struct tile *t, const uint8_t *p, const struct strides *s)
{
    bias_one(t);
    _mm512_storeu_ps(t->d[0], low_f16(lanes_u32(p + 64, s)));
}

MC_INLINE void tq2_0_codes(__m512i x[16], const struct tile *t, const uint8_t *p, const struct strides *s, unsigned step)
{
    __m512i q[4];
    (void)t;
    quads16(q, p + 16 * step, s);
    MC_UNROLL for (unsigned i = 0; i < 16; i++) x[i] =
        _mm512_and_si512(_mm512_srli_epi16(q[i % 4], 2 * (i / 4)), _mm512_set1_epi8(3));
}
K_MATMUL(tq2_0, law_tq2_0, columns_256)

/* (v * 3) >> 8 for each byte */
MC_INLINE __m512i digit(__m512i v)
{
    const __mmask64 one = _mm512_cmpge_epu8_mask(v, _mm512_set1_epi8(86)),
                    two = _mm512_cmpge_epu8_mask(v, _mm512_set1_epi8((char)171));
    return _mm512_mask_mov_epi8(_mm512_maskz_set1_epi8(one, 1), two, _mm512_set1_epi8(2));
}

/* Digits of four dwords of bytes go to columns first, first + step ...: `n` digits. */
MC_INLINE void put_digits(struct tile *t, __m512i q, unsigned v, unsigned step, unsigned n)
{
    for (unsigned k = 0; k < n; k++) {
        put(t->q[v + step * k], digit(q));
        q = _mm512_add_epi8(q, _mm512_add_epi8(q, q));
    }
}

/* The digits do not fall into quarters of the block, so the head decodes all of them into the tile. */
MC_INLINE void tq1_0_head(struct tile *t, const uint8_t *p, const struct strides *s)
{
    __m512i q[4];
    bias_one(t);
    MC_UNROLL for (unsigned c = 0; c < 3; c++)
    {
        quads16(q, p + 16 * c, s);
        MC_UNROLL for (unsigned i = 0; i < 4; i++)
        {
            if (c < 2)
                put_digits(t, q[i], 4 * c + i, 8, 5);
            else
                put_digits(t, q[i], 40 + i, 4, 5);
        }
    }
    put_digits(t, lanes_u32(p + 48, s), 60, 1, 4);
    _mm512_storeu_ps(t->d[0], low_f16(lanes_u32(p + 52, s)));
}

MC_INLINE void tq1_0_codes(__m512i x[16], const struct tile *t, const uint8_t *p, const struct strides *s, unsigned step)
{
    (void)p, (void)s;
    MC_UNROLL for (unsigned i = 0; i < 16; i++) x[i] = bytes64(t->q[16 * step + i]);
}
K_MATMUL(tq1_0, law_tq1_0, columns_256)

void avx512_init_matmul_ternary(struct kern_table *t)
{
    t->matmul[QUANT_TQ1_0] = matmul_tq1_0;
    t->matmul[QUANT_TQ2_0] = matmul_tq2_0;
}
