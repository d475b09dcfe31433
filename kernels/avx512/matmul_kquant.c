/* matmul_kquant.c - q2_K, q3_K, q4_K, q5_K, q6_K with q8_K rows (rows16_k.h; layouts: quants.md 4.3). */
#include "kernels/avx512/matmul.h"
#include "kernels/avx512/rows16_k.h"

/* ---- q4_K, q5_K ---- */

static const struct k_law law_q4_K = {144, 32, false, 4, true};
static const struct k_law law_q5_K = {176, 32, false, 4, true};
K_COLUMNS(columns_32_min, law_q4_K)

/* d, dmin and the 12 bytes of packed six-bit scales and minima: the first 16 bytes of a block. */
MC_INLINE void packed_head(struct tile *t, const uint8_t *p, const struct strides *s)
{
    __m512i h[4];
    quads16(h, p, s);
    const __m512i six = _mm512_set1_epi8(0x3F), low = _mm512_set1_epi8(0x0F), high = _mm512_set1_epi8(0x30);
    const __m512i sc[2] = {_mm512_and_si512(h[1], six), or_and(_mm512_and_si512(h[3], low), _mm512_srli_epi32(h[1], 2), high)};
    const __m512i mn[2] = {_mm512_and_si512(h[2], six),
                           or_and(_mm512_and_si512(_mm512_srli_epi32(h[3], 4), low), _mm512_srli_epi32(h[2], 2), high)};
    _mm512_storeu_ps(t->d[0], low_f16(h[0]));
    _mm512_storeu_ps(t->m[0], high_f16(h[0]));
    MC_UNROLL for (unsigned j = 0; j < 8; j++) put(t->scale[j], byte_of(sc[j / 4], j % 4));
    MC_UNROLL for (unsigned j = 0; j < 4; j++)
        put(t->pair[j], pair_of(byte_of(mn[j / 2], j % 2 * 2), byte_of(mn[j / 2], j % 2 * 2 + 1)));
}

#define q4_K_head packed_head
MC_INLINE void q4_K_codes(__m512i x[16], const struct tile *t, const uint8_t *p, const struct strides *s, unsigned step)
{
    (void)t;
    MC_UNROLL for (unsigned c = 0; c < 2; c++)
    {
        __m512i q[4];
        quads16(q, p + 16 + 32 * step + 16 * c, s);
        MC_UNROLL for (unsigned v = 0; v < 4; v++) x[4 * c + v] = low_nibbles(q[v]), x[8 + 4 * c + v] = high_nibbles(q[v]);
    }
}
K_MATMUL(q4_K, law_q4_K, columns_32_min)

/* Sub-block j takes bit j of the 32 bytes of high bits. */
MC_INLINE __m512i fifth_bit(__m512i code, __m512i bits, unsigned j)
{
    const __m512i moved = j < 4 ? _mm512_slli_epi16(bits, 4 - j) : _mm512_srli_epi16(bits, j - 4);
    return or_and(code, moved, _mm512_set1_epi8(16));
}

MC_INLINE void q5_K_head(struct tile *t, const uint8_t *p, const struct strides *s)
{
    __m512i high[8];
    packed_head(t, p, s);
    octs16(high, p + 16, s);
    MC_UNROLL for (unsigned v = 0; v < 8; v++) put(t->raw[v], high[v]);
}

MC_INLINE void q5_K_codes(__m512i x[16], const struct tile *t, const uint8_t *p, const struct strides *s, unsigned step)
{
    __m512i q[8];
    octs16(q, p + 48 + 32 * step, s);
    MC_UNROLL for (unsigned v = 0; v < 8; v++)
    {
        x[v] = fifth_bit(low_nibbles(q[v]), bytes64(t->raw[v]), 2 * step);
        x[8 + v] = fifth_bit(high_nibbles(q[v]), bytes64(t->raw[v]), 2 * step + 1);
    }
}
K_MATMUL(q5_K, law_q5_K, columns_32_min)

/* ---- q6_K: codes 0..63, bias 32 ---- */

static const struct k_law law_q6_K = {210, 16, true, 8, false};
K_COLUMNS(columns_16, law_q6_K)

/* 16 signed bytes of scales in four quads. */
MC_INLINE void signed_scales(struct tile *t, const __m512i sc[4], int bias)
{
    MC_UNROLL for (unsigned j = 0; j < 16; j += 2)
    {
        const __m512i lo = _mm512_srai_epi32(_mm512_slli_epi32(sc[j / 4], 24 - 8 * (j % 4)), 24);
        const __m512i hi = _mm512_srai_epi32(_mm512_slli_epi32(sc[j / 4], 16 - 8 * (j % 4)), 24);
        put_scales(t, j, lo, hi, bias);
    }
}

MC_INLINE void q6_K_head(struct tile *t, const uint8_t *p, const struct strides *s)
{
    __m512i sc[4];
    quads16(sc, p + 192, s);
    signed_scales(t, sc, 32);
    _mm512_storeu_ps(t->d[0], low_f16(lanes_u32(p + 208, s)));
}

MC_INLINE void q6_K_codes(__m512i x[16], const struct tile *t, const uint8_t *p, const struct strides *s, unsigned step)
{
    const unsigned h = step / 2, c = step % 2;
    const __m512i two = _mm512_set1_epi8(0x30);
    __m512i a[4], b[4], high[4];
    (void)t;
    quads16(a, p + 64 * h + 16 * c, s);
    quads16(b, p + 64 * h + 32 + 16 * c, s);
    quads16(high, p + 128 + 32 * h + 16 * c, s);
    MC_UNROLL for (unsigned v = 0; v < 4; v++)
    {
        x[v] = or_and(low_nibbles(a[v]), _mm512_slli_epi16(high[v], 4), two);
        x[4 + v] = or_and(low_nibbles(b[v]), _mm512_slli_epi16(high[v], 2), two);
        x[8 + v] = or_and(high_nibbles(a[v]), high[v], two);
        x[12 + v] = or_and(high_nibbles(b[v]), _mm512_srli_epi16(high[v], 2), two);
    }
}
K_MATMUL(q6_K, law_q6_K, columns_16)

/* ---- q2_K: two-bit codes, scale and minimum nibbles for each 16 ---- */

static const struct k_law law_q2_K = {84, 16, true, 8, true};
K_COLUMNS(columns_16_min, law_q2_K)

MC_INLINE void q2_K_head(struct tile *t, const uint8_t *p, const struct strides *s)
{
    __m512i sm[4];
    quads16(sm, p, s);
    MC_UNROLL for (unsigned j = 0; j < 16; j++) put(t->scale[j], byte_of(low_nibbles(sm[j / 4]), j % 4));
    MC_UNROLL for (unsigned j = 0; j < 8; j++)
    {
        const __m512i mn = high_nibbles(sm[j / 2]);
        put(t->pair[j], pair_of(byte_of(mn, j % 2 * 2), byte_of(mn, j % 2 * 2 + 1)));
    }
    const __m512i dm = lanes_u32(p + 80, s);
    _mm512_storeu_ps(t->d[0], low_f16(dm));
    _mm512_storeu_ps(t->m[0], high_f16(dm));
}

MC_INLINE void q2_K_codes(__m512i x[16], const struct tile *t, const uint8_t *p, const struct strides *s, unsigned step)
{
    __m512i q[4];
    (void)t;
    quads16(q, p + 16 + 16 * step, s);
    MC_UNROLL for (unsigned i = 0; i < 16; i++) x[i] =
        _mm512_and_si512(_mm512_srli_epi16(q[i % 4], 2 * (i / 4)), _mm512_set1_epi8(3));
}
K_MATMUL(q2_K, law_q2_K, columns_16_min)

/* ---- q3_K: two bits and a third one that is 4 when set, bias 4 ---- */

static const struct k_law law_q3_K = {110, 16, true, 8, false};

MC_INLINE void q3_K_head(struct tile *t, const uint8_t *p, const struct strides *s)
{
    __m512i h[4], sc[4]; /* h: two bytes of codes, 12 bytes of scales, d */
    quads16(h, p + 94, s);
    const __m512i lanes[3] = {h[0], h[1], h[2]};
    const __m512i dword0 = _mm512_or_si512(_mm512_srli_epi32(lanes[0], 16), _mm512_slli_epi32(lanes[1], 16));
    const __m512i dword1 = _mm512_or_si512(_mm512_srli_epi32(lanes[1], 16), _mm512_slli_epi32(lanes[2], 16));
    const __m512i high = _mm512_or_si512(_mm512_srli_epi32(lanes[2], 16), _mm512_slli_epi32(h[3], 16));
    const __m512i two = _mm512_set1_epi8(0x30), off = _mm512_set1_epi8(32);
    sc[0] = or_and(low_nibbles(dword0), _mm512_slli_epi16(high, 4), two);
    sc[1] = or_and(low_nibbles(dword1), _mm512_slli_epi16(high, 2), two);
    sc[2] = or_and(high_nibbles(dword0), high, two);
    sc[3] = or_and(high_nibbles(dword1), _mm512_srli_epi16(high, 2), two);
    MC_UNROLL for (unsigned i = 0; i < 4; i++) sc[i] = _mm512_sub_epi8(sc[i], off);
    signed_scales(t, sc, 4);
    _mm512_storeu_ps(t->d[0], high_f16(h[3]));
}

MC_INLINE void q3_K_codes(__m512i x[16], const struct tile *t, const uint8_t *p, const struct strides *s, unsigned step)
{
    const unsigned h = step / 2;
    __m512i q[4], high[4];
    (void)t;
    quads16(q, p + 32 + 16 * step, s);
    quads16(high, p + 16 * (step % 2), s);
    MC_UNROLL for (unsigned i = 0; i < 16; i++)
    {
        const unsigned bit = 4 * h + i / 4;
        const __m512i two = _mm512_and_si512(_mm512_srli_epi16(q[i % 4], 2 * (i / 4)), _mm512_set1_epi8(3));
        const __m512i moved = bit < 2 ? _mm512_slli_epi16(high[i % 4], 2 - bit) : _mm512_srli_epi16(high[i % 4], bit - 2);
        x[i] = or_and(two, moved, _mm512_set1_epi8(4));
    }
}
K_MATMUL(q3_K, law_q3_K, columns_16)

void avx512_init_matmul_kquant(struct kern_table *t)
{
    t->matmul[QUANT_Q2_K] = matmul_q2_K;
    t->matmul[QUANT_Q3_K] = matmul_q3_K;
    t->matmul[QUANT_Q4_K] = matmul_q4_K;
    t->matmul[QUANT_Q5_K] = matmul_q5_K;
    t->matmul[QUANT_Q6_K] = matmul_q6_K;
}
