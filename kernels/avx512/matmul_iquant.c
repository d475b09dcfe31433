/* matmul_iquant.c - iq2_xxs, iq2_xs, iq2_s, iq3_xxs, iq3_s, iq4_xs with q8_K rows (rows16_k.h; layouts: quants.md 4.4).
 *
 * The codebooks are packed to bytes and looked up in registers, 64 indices (16 rows x 4 groups) at a time, by vpermi2b: a table
 * of 256 entries costs two of them. vpmultishiftqb then spreads the packed codes of one group over the dword of its row; code
 * and sign together index a table of biased weights. No look-up goes through memory, and nothing waits for a store between
 * index and product. */
#include "kernels/avx512/codebook_iquant.h"
#include "kernels/avx512/matmul.h"
#include "kernels/avx512/rows16_k.h"
#include "kernels/quant/grids.h"

/* Bit i of each output byte = parity of (input & row i); rows in order of i, the first one most significant. */
MC_INLINE __m512i bit_matrix(__m512i v, uint64_t rows)
{
    return _mm512_gf2p8affine_epi64_epi8(v, _mm512_set1_epi64((long long)rows), 0);
}

/* Sign byte of the 7-bit code in bits 0..6 (bit 7 of the input is ignored): its own bit 7 makes the parity even. */
#define SIGNS_OF_LOW_CODE 0x010204081020407F
/* The same for a code in bits 1..7. */
#define SIGNS_OF_HIGH_CODE 0x02040810204080FE
/* Bits 0 and 1 to the tops of the two nibbles; bits 2 and 3. */
#define SIGNS_01 0x0000000100000002
#define SIGNS_23 0x0000000400000008

MC_INLINE __m512i nibble_at(__m512i v, unsigned i)
{
    return _mm512_and_si512(_mm512_srli_epi32(v, 4 * i), _mm512_set1_epi32(15));
}

/* ---- two-bit magnitudes 8, 25, 43; bias 43 ---- */

static const struct k_law law_iq2_xxs = {66, 32, false, 4, false};
static const struct k_law law_iq2_xs = {74, 16, false, 8, false};
static const struct k_law law_iq2_s = {82, 16, false, 8, false};
K_COLUMNS(columns_32, law_iq2_xxs)
K_COLUMNS(columns_16, law_iq2_xs)

/* Four groups: byte g of low and high holds the codes of weights 0..3 and 4..7 of group g, byte g of signs their signs. */
MC_INLINE void spread_groups(__m512i x[8], __m512i low, __m512i high, __m512i signs)
{
    const __m512i table = _mm512_set1_epi64(0x0000122300564433); /* 43 + magnitude, 43 - magnitude, repeated: index bits 0..2 */
    const __m512i code = _mm512_set1_epi8(3);
    MC_UNROLL for (unsigned v = 0; v < 8; v++)
    {
        const __m512i mag = _mm512_multishift_epi64_epi8(dword_offsets(8 * (v / 2), 2), v % 2 ? high : low);
        const __m512i sign = _mm512_multishift_epi64_epi8(dword_offsets(8 * (v / 2) + 4 * (v % 2) + 62, 1), signs);
        x[v] = _mm512_permutexvar_epi8(select_bits(code, mag, sign), table);
    }
}

/* raw[2j]: the four indices of sub-block j, raw[2j + 1]: signs and scale */
MC_INLINE void iq2_xxs_head(struct tile *t, const uint8_t *p, const struct strides *s)
{
    _mm512_storeu_ps(t->d[0], _mm512_mul_ps(low_f16(lanes_u32(p, s)), _mm512_set1_ps(0.125f)));
    MC_UNROLL for (unsigned j = 0; j < 8; j += 4)
    {
        __m512i q[8];
        octs16(q, p + 2 + 8 * j, s);
        MC_UNROLL for (unsigned i = 0; i < 8; i++) put(t->raw[2 * j + i], q[i]);
        put_scales(t, j, odd_scale(q[1], 28, 4), odd_scale(q[3], 28, 4), 43);
        put_scales(t, j + 2, odd_scale(q[5], 28, 4), odd_scale(q[7], 28, 4), 43);
    }
}

MC_INLINE void iq2_xxs_codes(__m512i x[16], const struct tile *t, const uint8_t *p, const struct strides *s, unsigned step)
{
    (void)p, (void)s;
    MC_UNROLL for (unsigned i = 0; i < 2; i++)
    {
        const __m512i idx = bytes64(t->raw[4 * step + 2 * i]), word = bytes64(t->raw[4 * step + 2 * i + 1]);
        const __m512i signs = bit_matrix(_mm512_multishift_epi64_epi8(dword_offsets(0, 7), word), SIGNS_OF_LOW_CODE);
        const __mmask64 top = _mm512_movepi8_mask(idx);
        spread_groups(x + 8 * i, look_up_256(idx, top, iq2_xxs_low), look_up_256(idx, top, iq2_xxs_high), signs);
    }
}
K_MATMUL(iq2_xxs, law_iq2_xxs, columns_32)

MC_INLINE void nibble_scales(struct tile *t, unsigned unit, __m512i v)
{
    MC_UNROLL for (unsigned j = 0; j < 8; j += 2)
        put_scales(t, unit + j, odd_scale(v, 4 * j, 4), odd_scale(v, 4 * j + 4, 4), 43);
}

MC_INLINE void iq2_xs_head(struct tile *t, const uint8_t *p, const struct strides *s)
{
    __m512i sc[4];
    quads16(sc, p + 66, s);
    nibble_scales(t, 0, sc[0]);
    nibble_scales(t, 8, sc[1]);
    _mm512_storeu_ps(t->d[0], _mm512_mul_ps(low_f16(lanes_u32(p, s)), _mm512_set1_ps(0.125f)));
}

MC_INLINE __m512i look_up_512(__m512i idx, __mmask64 bit7, __mmask64 bit8, const uint8_t *table)
{
    return _mm512_mask_mov_epi8(look_up_256(idx, bit7, table), bit8, look_up_256(idx, bit7, table + 256));
}

/* Of the words (0, 1) in each lane of a and (2, 3) of b, the low bytes (first = 0) or the high ones (1). */
MC_INLINE __m512i bytes_of_words(__m512i a, __m512i b, int first)
{
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i order = _mm512_add_epi32(_mm512_mullo_epi32(lanes, _mm512_set1_epi32(0x04040404)),
                                           _mm512_set1_epi32(0x42400200 + 0x01010101 * first));
    return _mm512_permutex2var_epi8(a, order, b);
}

/* Words of nine index bits and seven sign bits. */
MC_INLINE void iq2_xs_codes(__m512i x[16], const struct tile *t, const uint8_t *p, const struct strides *s, unsigned step)
{
    __m512i q[4];
    (void)t;
    quads16(q, p + 2 + 16 * step, s);
    MC_UNROLL for (unsigned i = 0; i < 2; i++)
    {
        const __m512i idx = bytes_of_words(q[2 * i], q[2 * i + 1], 0), rest = bytes_of_words(q[2 * i], q[2 * i + 1], 1);
        const __mmask64 bit7 = _mm512_movepi8_mask(idx), bit8 = _mm512_test_epi8_mask(rest, _mm512_set1_epi8(1));
        spread_groups(x + 8 * i, look_up_512(idx, bit7, bit8, iq2_xs_low), look_up_512(idx, bit7, bit8, iq2_xs_high),
                      bit_matrix(rest, SIGNS_OF_HIGH_CODE));
    }
}
K_MATMUL(iq2_xs, law_iq2_xs, columns_16)

/* raw: 8 lanes of low index bytes, 8 of signs, 2 of high index bits */
MC_INLINE void iq2_s_head(struct tile *t, const uint8_t *p, const struct strides *s)
{
    __m512i q[8];
    MC_UNROLL for (unsigned c = 0; c < 2; c++)
    {
        octs16(q, p + 2 + 32 * c, s);
        MC_UNROLL for (unsigned i = 0; i < 8; i++) put(t->raw[8 * c + i], q[i]);
    }
    quads16(q, p + 66, s);
    put(t->raw[16], q[0]);
    put(t->raw[17], q[1]);
    nibble_scales(t, 0, q[2]);
    nibble_scales(t, 8, q[3]);
    _mm512_storeu_ps(t->d[0], _mm512_mul_ps(low_f16(lanes_u32(p, s)), _mm512_set1_ps(0.125f)));
}

MC_INLINE void iq2_s_codes(__m512i x[16], const struct tile *t, const uint8_t *p, const struct strides *s, unsigned step)
{
    (void)p, (void)s;
    MC_UNROLL for (unsigned i = 0; i < 2; i++)
    {
        const unsigned j = 2 * step + i;
        const __m512i idx = bytes64(t->raw[j]), signs = bytes64(t->raw[8 + j]);
        const __m512i more = _mm512_multishift_epi64_epi8(dword_offsets(8 * (j % 4), 2), bytes64(t->raw[16 + j / 4]));
        const __mmask64 bit7 = _mm512_movepi8_mask(idx), bit8 = _mm512_test_epi8_mask(more, _mm512_set1_epi8(1));
        const __mmask64 bit9 = _mm512_test_epi8_mask(more, _mm512_set1_epi8(2));
        const __m512i low =
            _mm512_mask_mov_epi8(look_up_512(idx, bit7, bit8, iq2_s_low), bit9, look_up_512(idx, bit7, bit8, iq2_s_low + 512));
        const __m512i high = _mm512_mask_mov_epi8(look_up_512(idx, bit7, bit8, iq2_s_high), bit9,
                                                  look_up_512(idx, bit7, bit8, iq2_s_high + 512));
        spread_groups(x + 8 * i, low, high, signs);
    }
}
K_MATMUL(iq2_s, law_iq2_s, columns_16)

/* ---- three-bit magnitudes, four weights an index ---- */

static const struct k_law law_iq3_xxs = {98, 32, false, 4, false};
static const struct k_law law_iq3_s = {110, 32, false, 4, false};

/* Four indices: byte k of low and high holds the nibbles of weights 0, 1 and 2, 3 of index k (byte i of signs nibble k % 2:
 * their signs, for groups first and first + 1). `even` and `odd`: biased weights of index bits 0..3. */
MC_INLINE void spread_nibbles(__m512i x[4], __m512i low, __m512i high, __m512i signs, unsigned half, uint64_t plus,
                              uint64_t minus)
{
    const __m512i table = _mm512_set_epi64((long long)minus, (long long)plus, (long long)minus, (long long)plus,
                                           (long long)minus, (long long)plus, (long long)minus, (long long)plus);
    const __m512i four = _mm512_multishift_epi64_epi8(dword_offsets(16 * half, 4), signs);
    const __m512i a = _mm512_or_si512(low, bit_matrix(four, SIGNS_01)), b = _mm512_or_si512(high, bit_matrix(four, SIGNS_23));
    /* qword = row, 16 bits an index; then back to dword = row */
    const __m512i rows01 = _mm512_unpacklo_epi8(a, b), rows23 = _mm512_unpackhi_epi8(a, b);
    MC_UNROLL for (unsigned k = 0; k < 4; k += 2)
    {
        const __m512i order = _mm512_set1_epi64(0x1C1814100C080400 + (k ? 0x2020202020202020 : 0));
        const __m512 c = _mm512_castsi512_ps(_mm512_multishift_epi64_epi8(order, rows01));
        const __m512 d = _mm512_castsi512_ps(_mm512_multishift_epi64_epi8(order, rows23));
        x[k] = _mm512_permutexvar_epi8(_mm512_castps_si512(_mm512_shuffle_ps(c, d, 0x88)), table);
        x[k + 1] = _mm512_permutexvar_epi8(_mm512_castps_si512(_mm512_shuffle_ps(c, d, 0xDD)), table);
    }
}

/* raw: 8 lanes of signs and scale */
MC_INLINE void iq3_xxs_head(struct tile *t, const uint8_t *p, const struct strides *s)
{
    __m512i q[8];
    octs16(q, p + 66, s);
    MC_UNROLL for (unsigned j = 0; j < 8; j++) put(t->raw[j], q[j]);
    MC_UNROLL for (unsigned j = 0; j < 8; j += 2) put_scales(t, j, odd_scale(q[j], 28, 4), odd_scale(q[j + 1], 28, 4), 62);
    _mm512_storeu_ps(t->d[0], _mm512_mul_ps(low_f16(lanes_u32(p, s)), _mm512_set1_ps(0.25f)));
}

MC_INLINE void iq3_xxs_codes(__m512i x[16], const struct tile *t, const uint8_t *p, const struct strides *s, unsigned step)
{
    __m512i q[4];
    quads16(q, p + 2 + 16 * step, s);
    MC_UNROLL for (unsigned i = 0; i < 4; i++)
    {
        const __m512i word = bytes64(t->raw[2 * step + i / 2]);
        const __m512i signs = bit_matrix(_mm512_multishift_epi64_epi8(dword_offsets(0, 7), word), SIGNS_OF_LOW_CODE);
        const __mmask64 top = _mm512_movepi8_mask(q[i]);
        spread_nibbles(x + 4 * i, look_up_256(q[i], top, iq3_xxs_low), look_up_256(q[i], top, iq3_xxs_high), signs, i % 2,
                       0x7C726A625A524A42, 0x000A121A222A323A); /* 62 +- 4, 12 ... 62 */
    }
}
K_MATMUL(iq3_xxs, law_iq3_xxs, columns_32)

/* raw: 2 lanes of high index bits, 8 of signs, 1 of scales */
MC_INLINE void iq3_s_head(struct tile *t, const uint8_t *p, const struct strides *s)
{
    __m512i q[4];
    MC_UNROLL for (unsigned c = 0; c < 3; c++)
    {
        quads16(q, p + 66 + 16 * c, s);
        MC_UNROLL for (unsigned i = 0; i < 4; i++) put(t->raw[4 * c + i], q[i]);
    }
    MC_UNROLL for (unsigned j = 0; j < 8; j += 2)
        put_scales(t, j, odd_scale(q[2], 4 * j, 4), odd_scale(q[2], 4 * j + 4, 4), 15);
    _mm512_storeu_ps(t->d[0], low_f16(lanes_u32(p, s)));
}

MC_INLINE void iq3_s_codes(__m512i x[16], const struct tile *t, const uint8_t *p, const struct strides *s, unsigned step)
{
    __m512i q[4];
    quads16(q, p + 2 + 16 * step, s);
    MC_UNROLL for (unsigned i = 0; i < 4; i++)
    {
        const unsigned j = 2 * step + i / 2;
        const __m512i more = _mm512_multishift_epi64_epi8(dword_offsets(8 * (j % 4) + 4 * (i % 2), 1), bytes64(t->raw[j / 4]));
        const __mmask64 bit7 = _mm512_movepi8_mask(q[i]), bit8 = _mm512_test_epi8_mask(more, _mm512_set1_epi8(1));
        spread_nibbles(x + 4 * i, look_up_512(q[i], bit7, bit8, iq3_s_low), look_up_512(q[i], bit7, bit8, iq3_s_high),
                       bytes64(t->raw[2 + j]), i % 2, 0x1E1C1A1816141210, 0x00020406080A0C0E); /* 15 +- 1, 3 ... 15 */
    }
}
K_MATMUL(iq3_s, law_iq3_s, columns_32)

/* ---- iq4_xs: nibbles through a table, bias 128 ---- */

static const struct k_law law_iq4_xs = {136, 32, false, 4, false};

MC_INLINE void iq4_xs_head(struct tile *t, const uint8_t *p, const struct strides *s)
{
    const __m512i off = _mm512_set1_epi32(32), high = _mm512_set1_epi32(0x30);
    __m512i h[4], ls[8];
    quads16(h, p, s); /* d and the high bits; low nibbles */
    MC_UNROLL for (unsigned j = 0; j < 8; j++)
    {
        const __m512i two = _mm512_srli_epi32(h[0], 12 + 2 * j); /* bits 16 + 2j to bits 4, 5 */
        ls[j] = _mm512_sub_epi32(or_and(nibble_at(h[1], j), two, high), off);
    }
    MC_UNROLL for (unsigned j = 0; j < 8; j += 2) put_scales(t, j, ls[j], ls[j + 1], 128);
    _mm512_storeu_ps(t->d[0], low_f16(h[0]));
}

MC_INLINE void iq4_xs_codes(__m512i x[16], const struct tile *t, const uint8_t *p, const struct strides *s, unsigned step)
{
    const __m128i values = _mm_xor_si128(_mm_loadu_si128((const void *)quant_iq4_values), _mm_set1_epi8((char)0x80));
    const __m512i table = _mm512_broadcast_i32x4(values);
    (void)t;
    MC_UNROLL for (unsigned i = 0; i < 2; i++)
    {
        __m512i q[4];
        quads16(q, p + 8 + 32 * step + 16 * i, s);
        MC_UNROLL for (unsigned v = 0; v < 4; v++)
        {
            x[8 * i + v] = _mm512_shuffle_epi8(table, low_nibbles(q[v]));
            x[8 * i + 4 + v] = _mm512_shuffle_epi8(table, high_nibbles(q[v]));
        }
    }
}
K_MATMUL(iq4_xs, law_iq4_xs, columns_32)

void avx512_init_matmul_iquant(struct kern_table *t)
{
    t->matmul[QUANT_IQ2_XXS] = matmul_iq2_xxs;
    t->matmul[QUANT_IQ2_XS] = matmul_iq2_xs;
    t->matmul[QUANT_IQ2_S] = matmul_iq2_s;
    t->matmul[QUANT_IQ3_XXS] = matmul_iq3_xxs;
    t->matmul[QUANT_IQ3_S] = matmul_iq3_s;
    t->matmul[QUANT_IQ4_XS] = matmul_iq4_xs;
}
