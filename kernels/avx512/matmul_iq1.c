/* matmul_iq1.c - iq1_s and iq1_m with q8_K rows (rows16_k.h; layouts: quants.md 4.4).
 *
 * The ternary book has 2048 entries of eight weights. Its first halves are one byte table of 2048: 16 vpermi2b for 64 indices.
 * Its second halves are sorted and grow at most once in 16 entries: base and place of the step come from tables of 128, and a
 * third one turns the rank into weights. That is 19 register look-ups for 512 weights, against 64 loads from a table in memory.
 * Codes are value + 1; the shift of 1/8 and the bias meet in the pairs: I = sum of 8 ls (codes * a) + ls (sigma - 8) sum(a). */
#include "kernels/avx512/codebook_iq1.h"
#include "kernels/avx512/matmul.h"
#include "kernels/avx512/rows16_k.h"

static const struct k_law law_iq1_s = {50, 32, false, 4, false};
static const struct k_law law_iq1_m = {56, 16, false, 16, false};
K_COLUMNS(columns_32, law_iq1_s)
K_COLUMNS(columns_16, law_iq1_m)

/* Weights 0..3 of 64 entries: idx has the low eight index bits, bits 0..2 of `more` the high ones. */
MC_INLINE __m512i first_halves(__m512i idx, __m512i more)
{
    const __mmask64 bit7 = _mm512_movepi8_mask(idx), bit8 = _mm512_test_epi8_mask(more, _mm512_set1_epi8(1));
    const __mmask64 bit9 = _mm512_test_epi8_mask(more, _mm512_set1_epi8(2)),
                    bit10 = _mm512_test_epi8_mask(more, _mm512_set1_epi8(4));
    __m512i v[4];
    MC_UNROLL for (unsigned i = 0; i < 4; i++) v[i] =
        _mm512_mask_mov_epi8(look_up_256(idx, bit7, iq1_low + 512 * i), bit8, look_up_256(idx, bit7, iq1_low + 512 * i + 256));
    return _mm512_mask_mov_epi8(_mm512_mask_mov_epi8(v[0], bit9, v[1]), bit10, _mm512_mask_mov_epi8(v[2], bit9, v[3]));
}

MC_INLINE __m512i second_halves(__m512i idx, __m512i more)
{
    const __m512i part = or_and(high_nibbles(idx), _mm512_slli_epi16(more, 4), _mm512_set1_epi8(0x70));
    const __m512i base = look_up_128(part, iq1_base), step = look_up_128(part, iq1_step);
    const __mmask64 grown = _mm512_cmpge_epu8_mask(low_nibbles(idx), step);
    return look_up_128(_mm512_mask_add_epi8(base, grown, base, _mm512_set1_epi8(1)), iq1_high);
}

/* Codes of four groups. */
MC_INLINE void spread_groups(__m512i x[8], __m512i idx, __m512i more)
{
    const __m512i half[2] = {first_halves(idx, more), second_halves(idx, more)};
    MC_UNROLL for (unsigned v = 0; v < 8; v++) x[v] =
        _mm512_and_si512(_mm512_multishift_epi64_epi8(dword_offsets(8 * (v / 2), 2), half[v % 2]), _mm512_set1_epi8(3));
}

/* raw: 8 lanes of low index bytes, then words of high bits */
MC_INLINE void iq1_s_head(struct tile *t, const uint8_t *p, const struct strides *s)
{
    __m512i q[8];
    octs16(q, p + 2, s);
    MC_UNROLL for (unsigned i = 0; i < 8; i++) put(t->raw[i], q[i]);
    quads16(q, p + 34, s);
    MC_UNROLL for (unsigned i = 0; i < 4; i++) put(t->raw[8 + i], q[i]);
    MC_UNROLL for (unsigned i = 0; i < 4; i++)
    {
        const __m512i ls = or_and(_mm512_set1_epi16(1), _mm512_srli_epi16(q[i], 11), _mm512_set1_epi16(14));
        const __m512i sigma8 = _mm512_sub_epi16(_mm512_set1_epi16(-7), _mm512_slli_epi16(_mm512_srli_epi16(q[i], 15), 1));
        put(t->pair[i], _mm512_mullo_epi16(ls, sigma8));
        put(t->scale[2 * i], _mm512_srli_epi32(_mm512_slli_epi32(ls, 16), 13));
        put(t->scale[2 * i + 1], _mm512_slli_epi32(_mm512_srli_epi32(ls, 16), 3));
    }
    _mm512_storeu_ps(t->d[0], _mm512_mul_ps(low_f16(lanes_u32(p, s)), _mm512_set1_ps(0.125f)));
}

MC_INLINE void iq1_s_codes(__m512i x[16], const struct tile *t, const uint8_t *p, const struct strides *s, unsigned step)
{
    const __m512i high = bytes64(t->raw[8 + step]);
    (void)p, (void)s;
    MC_UNROLL for (unsigned i = 0; i < 2; i++)
        spread_groups(x + 8 * i, bytes64(t->raw[2 * step + i]), _mm512_multishift_epi64_epi8(dword_offsets(16 * i, 3), high));
}
K_MATMUL(iq1_s, law_iq1_s, columns_32)

/* raw: 8 lanes of low index bytes, 4 of nibbles with high index bits and shift sign */
MC_INLINE void iq1_m_head(struct tile *t, const uint8_t *p, const struct strides *s)
{
    __m512i q[8], sc[2];
    octs16(q, p, s);
    MC_UNROLL for (unsigned i = 0; i < 8; i++) put(t->raw[i], q[i]);
    sc[0] = lanes_u32(p + 48, s);
    sc[1] = lanes_u32(p + 52, s);
    quads16(q, p + 32, s);
    MC_UNROLL for (unsigned k = 0; k < 16; k++)
    {
        const __m512i ls = odd_scale(sc[k / 8], k / 4 % 2 * 16 + 3 * (k % 4), 3);
        /* groups 2k and 2k + 1: nibbles 2k, 2k + 1 of the 32; sigma - 8 = -7 - 2 * (bit 3) */
        const __m512i nibbles = _mm512_srli_epi32(q[k / 4], 8 * (k % 4));
        const __m512i two = pair_of(_mm512_srli_epi32(nibbles, 2), _mm512_srli_epi32(nibbles, 6));
        const __m512i sigma8 = _mm512_sub_epi16(_mm512_set1_epi16(-7), _mm512_and_si512(two, _mm512_set1_epi16(2)));
        put(t->pair[k], _mm512_mullo_epi16(pair_of(ls, ls), sigma8));
        put(t->scale[k], _mm512_slli_epi32(ls, 3));
    }
    MC_UNROLL for (unsigned i = 0; i < 4; i++) put(t->raw[8 + i], q[i]);
    /* the top nibbles of the four words are the float16 */
    const __m512i a = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi32(sc[0], 12), _mm512_set1_epi32(0x000F)),
                                      _mm512_and_si512(_mm512_srli_epi32(sc[0], 24), _mm512_set1_epi32(0x00F0)));
    const __m512i b = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi32(sc[1], 4), _mm512_set1_epi32(0x0F00)),
                                      _mm512_and_si512(_mm512_srli_epi32(sc[1], 16), _mm512_set1_epi32(0xF000)));
    _mm512_storeu_ps(t->d[0], _mm512_mul_ps(low_f16(_mm512_or_si512(a, b)), _mm512_set1_ps(0.125f)));
}

MC_INLINE void iq1_m_codes(__m512i x[16], const struct tile *t, const uint8_t *p, const struct strides *s, unsigned step)
{
    const __m512i high = bytes64(t->raw[8 + step]);
    (void)p, (void)s;
    MC_UNROLL for (unsigned i = 0; i < 2; i++)
        spread_groups(x + 8 * i, bytes64(t->raw[2 * step + i]), _mm512_multishift_epi64_epi8(dword_offsets(16 * i, 4), high));
}
K_MATMUL(iq1_m, law_iq1_m, columns_16)

void avx512_init_matmul_iq1(struct kern_table *t)
{
    t->matmul[QUANT_IQ1_S] = matmul_iq1_s;
    t->matmul[QUANT_IQ1_M] = matmul_iq1_m;
}
