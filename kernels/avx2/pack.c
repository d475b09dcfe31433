/* pack.c - matrices into the form of pack.h; the AVX-512 rung takes these, too: a core packs faster than disks read.
 *
 * A block of 16 rows becomes unsigned codes first, a byte each, in a tile in L1: codebook entries come by loads of 64 bits,
 * with indices and signs taken apart by vectors. (The scalar decoder will not do: compilers widen its bytes to 32 bits and
 * back.) Then 8 rows x 32 columns are transposed as dwords: four columns of eight rows are half a line, and shifts and ors turn
 * lines of codes into planes. */
#include "kernels/kernels_isa.h"
#include "kernels/pack_law.h"

#include <assert.h>
#include <immintrin.h>

enum { ROW = 256 }; /* bytes of a row of the tile */

/* ---- codes of one row ---- */

MC_INLINE __m256i bytes32(const void *p)
{
    return _mm256_loadu_si256(p);
}

MC_INLINE __m256i and_byte(__m256i v, int8_t m)
{
    return _mm256_and_si256(v, _mm256_set1_epi8(m));
}

/* Bytes of ones where bit i is set. */
MC_INLINE __m256i mask32(uint32_t bits)
{
    const __m256i from = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    const __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), from);
    return _mm256_cmpeq_epi8(_mm256_and_si256(v, bit), bit);
}

/* Sign codes of 7 bits, a byte each, as sign bytes: bit 7 makes the parity even (quants.md 4). */
MC_INLINE __m256i with_parity(__m256i code)
{
    const char odd = (char)0x80;
    const __m256i parity = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, odd, odd, 0, odd, 0, 0, odd, odd, 0, 0, odd, 0, odd, odd, 0)); /* of a nibble */
    const __m256i low = _mm256_shuffle_epi8(parity, and_byte(code, 15));
    const __m256i high = _mm256_shuffle_epi8(parity, and_byte(_mm256_srli_epi16(code, 4), 15));
    return _mm256_or_si256(code, _mm256_xor_si256(low, high));
}

/* Four sign codes in the low 28 bits of each dword. */
MC_INLINE __m256i signs_of(__m256i x)
{
    const __m256i a = _mm256_and_si256(x, _mm256_set1_epi32(0x7F));
    const __m256i b = _mm256_and_si256(_mm256_slli_epi32(x, 1), _mm256_set1_epi32(0x7F00));
    const __m256i c = _mm256_and_si256(_mm256_slli_epi32(x, 2), _mm256_set1_epi32(0x7F0000));
    const __m256i d = _mm256_and_si256(_mm256_slli_epi32(x, 3), _mm256_set1_epi32(0x7F000000));
    return with_parity(_mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d)));
}

/* What a codebook block holds, taken apart by vectors and read back a piece at a time. */
#define FOUR(p) ((const size_t[4]){(p)[0], (p)[1], (p)[2], (p)[3]})

struct entries {
    MC_ALIGNED(32) uint32_t signs[8]; /* of 32 columns each */
    MC_ALIGNED(32) uint16_t idx[64];
};

MC_INLINE void keep(void *to, __m256i v)
{
    _mm256_store_si256(to, v);
}

/* 16 indices: a low byte each, and what `mask` leaves of the shifted high part. */
MC_INLINE __m256i indices(const uint8_t *low, __m256i high, int16_t mask)
{
    return _mm256_or_si256(_mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)low)),
                           _mm256_and_si256(high, _mm256_set1_epi16(mask)));
}

/* Entries of 8 bytes: i[0] .. i[3]. */
MC_INLINE __m256i octets(const void *entries, const size_t i[4])
{
    const uint8_t(*const grid)[8] = entries;
    const __m128d low = _mm_loadh_pd(_mm_load_sd((const void *)grid[i[0]]), (const void *)grid[i[1]]);
    const __m128d high = _mm_loadh_pd(_mm_load_sd((const void *)grid[i[2]]), (const void *)grid[i[3]]);
    return _mm256_castpd_si256(_mm256_setr_m128d(low, high));
}

/* Eight entries of 4 bytes. */
MC_INLINE __m256i quads(const uint8_t (*grid)[4], const uint16_t *i)
{
    __m128i pair[4];
    MC_UNROLL for (unsigned k = 0; k < 4; k++) pair[k] =
        _mm_insert_epi32(_mm_loadu_si32(grid[i[2 * k]]), (int)mc_load_u32(grid[i[2 * k + 1]]), 1);
    return _mm256_setr_m128i(_mm_unpacklo_epi64(pair[0], pair[1]), _mm_unpacklo_epi64(pair[2], pair[3]));
}

/* Magnitude 8, 25, 43 -> 0, 1, 2, and the sign. */
MC_INLINE void store_iq2(uint8_t *q, __m256i magnitudes, uint32_t signs)
{
    const __m256i code = and_byte(_mm256_srli_epi16(magnitudes, 4), 3);
    keep(q, _mm256_or_si256(code, and_byte(mask32(signs), 4)));
}

/* -1, 0, 1 -> 0, 1, 2 */
MC_INLINE void store_iq1(uint8_t *q, __m256i values)
{
    keep(q, _mm256_add_epi8(values, _mm256_set1_epi8(1)));
}

/* Indices into a table of 16 values; fp4 has two zeros, of which the packed form knows one. */
MC_INLINE __m128i fp4(__m128i index)
{
    return _mm_shuffle_epi8(_mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 0, 9, 10, 11, 12, 13, 14, 15), index);
}

MC_INLINE void split_nibbles_16(uint8_t *q, const uint8_t *qs, bool is_fp4)
{
    const __m128i v = _mm_loadu_si128((const void *)qs);
    const __m128i low = _mm_and_si128(v, _mm_set1_epi8(15)), high = _mm_and_si128(_mm_srli_epi16(v, 4), _mm_set1_epi8(15));
    _mm_store_si128((__m128i *)(void *)q, is_fp4 ? fp4(low) : low);
    _mm_store_si128((__m128i *)(void *)(q + 16), is_fp4 ? fp4(high) : high);
}

/* q5_0, q5_1: bit i of `fifth` belongs to column i. */
MC_INLINE void codes_q5(uint8_t *q, const uint8_t *qs, uint32_t fifth)
{
    const __m256i v = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)qs));
    const __m256i low = and_byte(_mm256_srlv_epi32(v, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4)), 15);
    keep(q, _mm256_or_si256(low, and_byte(mask32(fifth), 16)));
}

MC_INLINE void codes_q8_0(uint8_t *q, const struct block_q8_0 *p)
{
    keep(q, _mm256_add_epi8(bytes32(p->q), _mm256_set1_epi8(-128)));
}

/* Five digits of base 3 in a byte: the next is how often byte * 3 passes 256, and the rest goes on as byte * 3. */
MC_INLINE __m256i next_digit(__m256i *v)
{
    const __m256i one = _mm256_cmpeq_epi8(_mm256_max_epu8(*v, _mm256_set1_epi8(86)), *v);
    const __m256i two = _mm256_cmpeq_epi8(_mm256_max_epu8(*v, _mm256_set1_epi8((char)171)), *v);
    *v = _mm256_add_epi8(*v, _mm256_add_epi8(*v, *v));
    return _mm256_sub_epi8(_mm256_setzero_si256(), _mm256_add_epi8(one, two));
}

MC_INLINE void codes_tq1_0(uint8_t *q, const struct block_tq1_0 *p)
{
    __m256i v = bytes32(p->qs);
    __m256i tail = _mm256_setr_m128i(_mm_loadu_si128((const void *)(p->qs + 32)), _mm_loadu_si32(p->qh));
    for (unsigned k = 0; k < 5; k++) {
        const __m256i digits = next_digit(&tail);
        keep(q + 32 * k, next_digit(&v));
        _mm_store_si128((__m128i *)(void *)(q + 160 + 16 * k), _mm256_castsi256_si128(digits));
        if (k < 4) mc_store_u32(q + 240 + 4 * k, (uint32_t)_mm_cvtsi128_si32(_mm256_extracti128_si256(digits, 1)));
    }
}

MC_INLINE void codes_nvfp4(uint8_t *q, const struct block_nvfp4 *p)
{
    for (unsigned t = 0; t < 4; t += 2) {
        const __m128i v = _mm_loadu_si128((const void *)(p->qs + 8 * t));
        const __m128i low = fp4(_mm_and_si128(v, _mm_set1_epi8(15)));
        const __m128i high = fp4(_mm_and_si128(_mm_srli_epi16(v, 4), _mm_set1_epi8(15)));
        _mm_store_si128((__m128i *)(void *)(q + 16 * t), _mm_unpacklo_epi64(low, high));
        _mm_store_si128((__m128i *)(void *)(q + 16 * t + 16), _mm_unpackhi_epi64(low, high));
    }
}

/* Byte j holds columns 4j .. 4j+3. */
MC_INLINE void codes_q2_0(uint8_t *q, const struct block_q2_0 *p)
{
    const __m128i v = _mm_loadu_si128((const void *)p->qs), low = _mm_set1_epi8(3);
    const __m128i c0 = _mm_and_si128(v, low), c1 = _mm_and_si128(_mm_srli_epi16(v, 2), low);
    const __m128i c2 = _mm_and_si128(_mm_srli_epi16(v, 4), low), c3 = _mm_and_si128(_mm_srli_epi16(v, 6), low);
    const __m128i a = _mm_unpacklo_epi8(c0, c1), b = _mm_unpacklo_epi8(c2, c3);
    const __m128i c = _mm_unpackhi_epi8(c0, c1), d = _mm_unpackhi_epi8(c2, c3);
    _mm_store_si128((__m128i *)(void *)q, _mm_unpacklo_epi16(a, b));
    _mm_store_si128((__m128i *)(void *)(q + 16), _mm_unpackhi_epi16(a, b));
    _mm_store_si128((__m128i *)(void *)(q + 32), _mm_unpacklo_epi16(c, d));
    _mm_store_si128((__m128i *)(void *)(q + 48), _mm_unpackhi_epi16(c, d));
}

MC_INLINE void codes_q1_0(uint8_t *q, const struct block_q1_0 *p)
{
    for (unsigned j = 0; j < 4; j++) keep(q + 32 * j, and_byte(mask32(mc_load_u32(p->qs + 4 * j)), 1));
}

/* The second halves of the eight sub-blocks. */
MC_INLINE __m256i words_iq2_xxs(const struct block_iq2_xxs *p)
{
    const __m256 a = _mm256_castsi256_ps(bytes32(&p->sub[0])), b = _mm256_castsi256_ps(bytes32(&p->sub[4]));
    return _mm256_permute4x64_epi64(_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xDD)), 0xD8);
}

MC_INLINE void codes_iq2_xxs(uint8_t *q, const struct block_iq2_xxs *p)
{
    struct entries e;
    keep(e.signs, signs_of(words_iq2_xxs(p)));
    for (unsigned j = 0; j < 8; j++) store_iq2(q + 32 * j, octets(quant_iq2_xxs_grid, FOUR(p->sub[j].idx)), e.signs[j]);
}

MC_INLINE void codes_iq2_xs(uint8_t *q, const struct block_iq2_xs *p)
{
    const __m256i a = bytes32(p->q), b = bytes32(p->q + 16);
    const __m256i codes = _mm256_packus_epi16(_mm256_srli_epi16(a, 9), _mm256_srli_epi16(b, 9));
    struct entries e;
    keep(e.idx, _mm256_and_si256(a, _mm256_set1_epi16(511)));
    keep(e.idx + 16, _mm256_and_si256(b, _mm256_set1_epi16(511)));
    keep(e.signs, with_parity(_mm256_permute4x64_epi64(codes, 0xD8)));
    for (unsigned j = 0; j < 8; j++) store_iq2(q + 32 * j, octets(quant_iq2_xs_grid, FOUR(e.idx + 4 * j)), e.signs[j]);
}

MC_INLINE void codes_iq2_s(uint8_t *q, const struct block_iq2_s *p)
{
    const __m256i up = _mm256_set1_epi64x(0x0004001000400100); /* bits 2g .. 2g+1 to 8, 9 */
    const __m128i high = _mm_loadl_epi64((const void *)p->qh);
    struct entries e;
    for (unsigned h = 0; h < 2; h++) { /* each byte of qh four times */
        const __m128i four = _mm_unpacklo_epi8(high, _mm_setzero_si128()), two = _mm_unpacklo_epi16(four, four);
        const __m128i rest = _mm_unpackhi_epi16(four, four), half = h ? rest : two;
        const __m256i wide = _mm256_setr_m128i(_mm_unpacklo_epi32(half, half), _mm_unpackhi_epi32(half, half));
        keep(e.idx + 16 * h, indices(p->lo + 16 * h, _mm256_mullo_epi16(wide, up), 0x300));
    }
    for (unsigned j = 0; j < 8; j++)
        store_iq2(q + 32 * j, octets(quant_iq2_s_grid, FOUR(e.idx + 4 * j)), mc_load_u32(p->sg + 4 * j));
}

MC_INLINE void codes_iq3_xxs(uint8_t *q, const struct block_iq3_xxs *p)
{
    struct entries e;
    keep(e.signs, signs_of(bytes32(p->x)));
    for (unsigned j = 0; j < 4; j++) keep(e.idx + 16 * j, indices(p->idx + 16 * j, _mm256_setzero_si256(), 0));
    for (unsigned j = 0; j < 8; j++) {
        const __m256i code = and_byte(_mm256_srli_epi16(quads(quant_iq3_xxs_grid, e.idx + 8 * j), 3), 7);
        keep(q + 32 * j, _mm256_or_si256(code, and_byte(mask32(e.signs[j]), 8)));
    }
}

/* (magnitude + 15) / 2, and 15 less that for negative ones */
MC_INLINE void codes_iq3_s(uint8_t *q, const struct block_iq3_s *p)
{
    const __m256i up = _mm256_setr_epi16(256, 128, 64, 32, 16, 8, 4, 2, 256, 128, 64, 32, 16, 8, 4, 2); /* bit k to 8 */
    struct entries e;
    for (unsigned j = 0; j < 4; j++) {
        const __m256i high = _mm256_setr_m128i(_mm_set1_epi16(p->qh[2 * j]), _mm_set1_epi16(p->qh[2 * j + 1]));
        keep(e.idx + 16 * j, indices(p->lo + 16 * j, _mm256_mullo_epi16(high, up), 0x100));
    }
    for (unsigned j = 0; j < 8; j++) {
        const __m256i v = quads(quant_iq3_s_grid, e.idx + 8 * j);
        const __m256i code = _mm256_srli_epi16(_mm256_add_epi8(v, _mm256_set1_epi8(15)), 1);
        keep(q + 32 * j, _mm256_xor_si256(code, and_byte(mask32(mc_load_u32(p->sg + 4 * j)), 15)));
    }
}

MC_INLINE void codes_iq1_s(uint8_t *q, const struct block_iq1_s *p)
{
    const __m256i up = _mm256_set1_epi64x(0x0001000800400200); /* bits 3g .. 3g+2 to 9 .. 11 */
    const __m128i high = _mm_loadu_si128((const void *)p->qh);
    struct entries e;
    for (unsigned h = 0; h < 2; h++) { /* each word of qh four times */
        const __m128i two = h ? _mm_unpackhi_epi16(high, high) : _mm_unpacklo_epi16(high, high);
        const __m256i four = _mm256_setr_m128i(_mm_unpacklo_epi32(two, two), _mm_unpackhi_epi32(two, two));
        keep(e.idx + 16 * h, indices(p->lo + 16 * h, _mm256_srli_epi16(_mm256_mullo_epi16(four, up), 1), 0x700));
    }
    for (unsigned j = 0; j < 8; j++) store_iq1(q + 32 * j, octets(quant_iq1_s_grid, FOUR(e.idx + 4 * j)));
}

MC_INLINE void codes_iq1_m(uint8_t *q, const struct block_iq1_m *p)
{
    const __m128i v = _mm_loadu_si128((const void *)p->qh), seven = _mm_set1_epi8(7);
    const __m128i even = _mm_and_si128(v, seven), odd = _mm_and_si128(_mm_srli_epi16(v, 4), seven);
    struct entries e;
    for (unsigned h = 0; h < 2; h++) {
        const __m128i high = h ? _mm_unpackhi_epi8(even, odd) : _mm_unpacklo_epi8(even, odd);
        keep(e.idx + 16 * h, indices(p->lo + 16 * h, _mm256_slli_epi16(_mm256_cvtepu8_epi16(high), 8), 0x700));
    }
    for (unsigned j = 0; j < 8; j++) store_iq1(q + 32 * j, octets(quant_iq1_s_grid, FOUR(e.idx + 4 * j)));
}

/* ---- codes of one row: K formats, tq2_0 ---- */

/* Bits k .. k + n - 1 of each byte, moved to bit `to`. */
MC_INLINE __m256i bits_to(__m256i v, unsigned k, unsigned n, unsigned to)
{
    const __m256i moved = k > to ? _mm256_srli_epi16(v, (int)(k - to)) : _mm256_slli_epi16(v, (int)(to - k));
    return and_byte(moved, (int8_t)(((1 << n) - 1) << to));
}

/* Columns 128h + 32k + l are bits 2k of byte 32h + l; above them bit 4h + k of byte l of `third`, unless that is NULL. */
MC_INLINE void codes_pairs(uint8_t *q, const uint8_t qs[64], const uint8_t *third)
{
    const __m256i top = third ? bytes32(third) : _mm256_setzero_si256();
    MC_UNROLL for (unsigned i = 0; i < 8; i++)
    {
        const __m256i low = bits_to(bytes32(qs + 32 * (i / 4)), 2 * (i % 4), 2, 0);
        keep(q + 32 * i, third ? _mm256_or_si256(low, bits_to(top, i, 1, 2)) : low);
    }
}

/* Columns 64i + l and 64i + 32 + l are the nibbles of byte 32i + l; above them bit j of byte l of `fifth`, unless NULL. */
MC_INLINE void codes_fours(uint8_t *q, const uint8_t qs[128], const uint8_t *fifth)
{
    const __m256i top = fifth ? bytes32(fifth) : _mm256_setzero_si256();
    MC_UNROLL for (unsigned j = 0; j < 8; j++)
    {
        const __m256i low = bits_to(bytes32(qs + 32 * (j / 2)), 4 * (j % 2), 4, 0);
        keep(q + 32 * j, fifth ? _mm256_or_si256(low, bits_to(top, j, 1, 4)) : low);
    }
}

MC_INLINE void codes_q6_K(uint8_t *q, const struct block_q6_K *p)
{
    MC_UNROLL for (unsigned i = 0; i < 8; i++)
    {
        const unsigned h = i / 4, k = i % 4;
        const __m256i low = bits_to(bytes32(p->ql + 64 * h + 32 * (k % 2)), 4 * (k / 2), 4, 0);
        keep(q + 32 * i, _mm256_or_si256(low, bits_to(bytes32(p->qh + 32 * h), 2 * k, 2, 4)));
    }
}

#define CODES(name, NAME)                                                                                                      \
    case QUANT_##NAME:                                                                                                         \
        codes_##name(q, p);                                                                                                    \
        break

#define CODES_NIBBLES(name, NAME, is_fp4)                                                                                      \
    case QUANT_##NAME:                                                                                                         \
        for (unsigned j = 0; j < ref_law_of(type).len / 32; j++)                                                               \
            split_nibbles_16(q + 32 * j, ((const struct block_##name *)p)->qs + 16 * j, is_fp4);                               \
        break

MC_INLINE void codes_of(enum quant_type type, uint8_t *q, const void *p)
{
    const struct block_q5_0 *const q5_0 = p;
    const struct block_q5_1 *const q5_1 = p;
    switch (type) {
        CODES_NIBBLES(q4_0, Q4_0, false);
        CODES_NIBBLES(q4_1, Q4_1, false);
        CODES_NIBBLES(iq4_nl, IQ4_NL, false);
        CODES_NIBBLES(iq4_xs, IQ4_XS, false);
        CODES_NIBBLES(mxfp4, MXFP4, true);
        CODES(nvfp4, NVFP4);
        CODES(q8_0, Q8_0);
        CODES(q2_0, Q2_0);
        CODES(q1_0, Q1_0);
        CODES(tq1_0, TQ1_0);
        CODES(iq2_xxs, IQ2_XXS);
        CODES(iq2_xs, IQ2_XS);
        CODES(iq2_s, IQ2_S);
        CODES(iq3_xxs, IQ3_XXS);
        CODES(iq3_s, IQ3_S);
        CODES(iq1_s, IQ1_S);
        CODES(iq1_m, IQ1_M);
    case QUANT_Q5_0:
        codes_q5(q, q5_0->qs, mc_load_u32(q5_0->qh));
        break;
    case QUANT_Q5_1:
        codes_q5(q, q5_1->qs, mc_load_u32(q5_1->qh));
        break;
    case QUANT_Q2_K:
        codes_pairs(q, ((const struct block_q2_K *)p)->qs, NULL);
        break;
    case QUANT_Q3_K:
        codes_pairs(q, ((const struct block_q3_K *)p)->qs, ((const struct block_q3_K *)p)->hm);
        break;
    case QUANT_TQ2_0:
        codes_pairs(q, ((const struct block_tq2_0 *)p)->qs, NULL);
        break;
    case QUANT_Q4_K:
        codes_fours(q, ((const struct block_q4_K *)p)->qs, NULL);
        break;
    case QUANT_Q5_K:
        codes_fours(q, ((const struct block_q5_K *)p)->qs, ((const struct block_q5_K *)p)->qh);
        break;
    default:
        codes_q6_K(q, p);
    }
}

/* ---- scales of one row ---- */

/* Every second, or every fourth nibble of x from the lowest on, without gaps. */
MC_INLINE uint32_t every_second(uint32_t x)
{
    x &= 0x0F0F0F0F;
    x = (x | x >> 4) & 0x00FF00FF;
    return (x | x >> 8) & 0xFFFF;
}
MC_INLINE uint32_t every_fourth(uint64_t x)
{
    x &= 0x000F000F000F000F;
    x = (x | x >> 12) & 0x000000FF000000FF;
    return (uint32_t)(x | x >> 24) & 0xFFFF;
}

/* 16 nibbles, number s for sub-block s. */
MC_INLINE void write_nibbles(uint8_t *out, unsigned r, uint64_t x)
{
    for (unsigned l = 0; l < 2; l++)
        mc_store_u32(out + 64 * l + 4 * r, every_fourth(x >> (8 * l)) | every_fourth(x >> (8 * l + 4)) << 16);
}

/* Eight nibbles in dwords of their own, as the word of a line. */
MC_INLINE uint32_t word_of(__m256i x)
{
    x = _mm256_sllv_epi32(x, _mm256_setr_epi32(0, 16, 4, 20, 8, 24, 12, 28));
    __m128i v = _mm_or_si128(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    v = _mm_or_si128(v, _mm_shuffle_epi32(v, 0x4E));
    return (uint32_t)_mm_cvtsi128_si32(_mm_or_si128(v, _mm_shuffle_epi32(v, 0xB1)));
}

/* q2_K: a scale and a minimum in each byte; two lines of either. */
MC_INLINE void nibbles_q2_K(uint8_t *out, unsigned r, const struct block_q2_K *p)
{
    const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m128i v = _mm_shuffle_epi8(_mm_loadu_si128((const void *)p->sm), order), pair = _mm_set1_epi16(0x1001);
    const __m128i low = _mm_and_si128(v, _mm_set1_epi8(15)), high = _mm_and_si128(_mm_srli_epi16(v, 4), _mm_set1_epi8(15));
    const __m128i words = _mm_packus_epi16(_mm_maddubs_epi16(low, pair), _mm_maddubs_epi16(high, pair));
    mc_store_u32(out + 4 * r, (uint32_t)_mm_cvtsi128_si32(words));
    mc_store_u32(out + 64 + 4 * r, (uint32_t)_mm_extract_epi32(words, 1));
    mc_store_u32(out + 128 + 4 * r, (uint32_t)_mm_extract_epi32(words, 2));
    mc_store_u32(out + 192 + 4 * r, (uint32_t)_mm_extract_epi32(words, 3));
}

/* Scales and minima that are bytes. */
MC_INLINE void bytes_of(enum quant_type type, int16_t scale[16], int16_t min[16], const void *block)
{
    const struct block_iq4_xs *const iq4 = block;
    const struct block_q3_K *const q3 = block;
    const struct block_q6_K *const q6 = block;
    switch (type) {
    case QUANT_Q4_K:
        packed_scales(scale, min, ((const struct block_q4_K *)block)->s);
        break;
    case QUANT_Q5_K:
        packed_scales(scale, min, ((const struct block_q5_K *)block)->s);
        break;
    case QUANT_Q6_K:
        for (unsigned j = 0; j < 16; j++) scale[j] = q6->sc[j];
        break;
    case QUANT_Q3_K:
        for (unsigned j = 0; j < 16; j++) {
            const int low = q3->s[j % 8] >> (4 * (j / 8)) & 15, high = q3->s[8 + j % 4] >> (2 * (j / 4)) & 3;
            scale[j] = (int16_t)((low | high << 4) - 32);
        }
        break;
    default:
        for (unsigned j = 0; j < 8; j++) {
            const int low = iq4->sl[j / 2] >> (4 * (j % 2)) & 15, high = mc_load_u16(iq4->sh) >> (2 * j) & 3;
            scale[j] = (int16_t)((low | high << 4) - 32);
        }
    }
}

MC_INLINE void write_bytes(uint8_t *out, unsigned r, const int16_t *scale, unsigned sub_blocks)
{
    for (unsigned s = 0; s < sub_blocks; s += 2)
        mc_store_u16(out + 16 * s + 2 * r, (uint16_t)((scale[s] & 255) | scale[s + 1] << 8));
}

/* Four fields of 3 bits in each of four words -> 16 nibbles. */
MC_INLINE uint64_t nibbles_iq1_m(uint64_t x)
{
    return (x & 0x0007000700070007) | (x & 0x0038003800380038) << 1 | (x & 0x01C001C001C001C0) << 2 |
           (x & 0x0E000E000E000E00) << 3;
}

/* Scales that are nibbles: as they are in the file. */
MC_INLINE void nibbles_of(enum quant_type type, uint8_t *out, unsigned r, const void *block)
{
    uint32_t word = 0;
    switch (type) {
    case QUANT_Q2_K:
        nibbles_q2_K(out, r, block);
        return;
    case QUANT_IQ2_XS:
        write_nibbles(out, r, mc_load_u64(((const struct block_iq2_xs *)block)->s));
        return;
    case QUANT_IQ2_S:
        write_nibbles(out, r, mc_load_u64(((const struct block_iq2_s *)block)->s));
        return;
    case QUANT_IQ1_M:
        write_nibbles(out, r, nibbles_iq1_m(mc_load_u64(((const struct block_iq1_m *)block)->sc)));
        return;
    case QUANT_IQ2_XXS:
        word = word_of(_mm256_srli_epi32(words_iq2_xxs(block), 28));
        break;
    case QUANT_IQ3_XXS:
        word = word_of(_mm256_srli_epi32(bytes32(((const struct block_iq3_xxs *)block)->x), 28));
        break;
    case QUANT_IQ1_S: { /* bit 3 is the sign of the shift */
        const __m128i high = _mm_loadu_si128((const void *)((const struct block_iq1_s *)block)->qh);
        word = word_of(_mm256_srli_epi32(_mm256_cvtepu16_epi32(high), 12));
        break;
    }
    default: { /* iq3_s */
        const uint32_t x = mc_load_u32(((const struct block_iq3_s *)block)->s);
        word = every_second(x) | every_second(x >> 4) << 16;
    }
    }
    mc_store_u32(out + 4 * r, word);
}

/* Row r of the scales; returns what follows them. */
MC_INLINE uint8_t *write_scales(enum quant_type type, uint8_t *out, unsigned r, const void *block)
{
    const struct pack_law *const p = &pack_laws[type];
    const struct ref_law law = ref_law_of(type);
    const unsigned sub_blocks = law.len / law.sub;
    if (p->scales == PACK_BYTES) {
        int16_t scale[16], min[16];
        bytes_of(type, scale, min, block);
        write_bytes(out, r, scale, sub_blocks);
        if (p->minima) write_bytes(out + 16 * sub_blocks, r, min, sub_blocks);
    } else if (p->scales) {
        nibbles_of(type, out, r, block);
    }
    out +=
        pack_scale_bytes((enum pack_scales)p->scales, sub_blocks) + pack_scale_bytes((enum pack_scales)p->minima, sub_blocks);
    if (!p->shifts || sub_blocks == 8) return out;
    const __m128i high = _mm_loadu_si128((const void *)((const struct block_iq1_m *)block)->qh); /* bit 3: even groups */
    const unsigned even = (unsigned)_mm_movemask_epi8(_mm_slli_epi16(high, 4)), odd = (unsigned)_mm_movemask_epi8(high);
    mc_store_u32(out + 4 * r, even | odd << 16);
    return out + 64;
}

/* ---- planes ---- */

/* v[t], lane r: columns 4t .. 4t+3 of row r, for 8 rows and 32 columns. */
MC_INLINE void transpose8(__m256i v[8], const uint8_t *q)
{
    __m256i a[8], b[8];
    MC_UNROLL for (unsigned i = 0; i < 4; i++)
    {
        const __m256i x = bytes32(q + ROW * 2 * i), y = bytes32(q + ROW * (2 * i + 1));
        a[2 * i] = _mm256_unpacklo_epi32(x, y);
        a[2 * i + 1] = _mm256_unpackhi_epi32(x, y);
    }
    MC_UNROLL for (unsigned h = 0; h < 2; h++)
    {
        b[4 * h] = _mm256_unpacklo_epi64(a[4 * h], a[4 * h + 2]);
        b[4 * h + 1] = _mm256_unpackhi_epi64(a[4 * h], a[4 * h + 2]);
        b[4 * h + 2] = _mm256_unpacklo_epi64(a[4 * h + 1], a[4 * h + 3]);
        b[4 * h + 3] = _mm256_unpackhi_epi64(a[4 * h + 1], a[4 * h + 3]);
    }
    MC_UNROLL for (unsigned t = 0; t < 4; t++)
    {
        v[t] = _mm256_permute2x128_si256(b[t], b[t + 4], 0x20);
        v[t + 4] = _mm256_permute2x128_si256(b[t], b[t + 4], 0x31);
    }
}

/* Half the lines of one plane: bits from .. from + bits - 1 of each code. `all`: there are no others. */
MC_INLINE void write_plane(uint8_t *half, const __m256i v[8], unsigned from, unsigned bits, bool all)
{
    const unsigned per = 8 / bits;
    MC_UNROLL for (unsigned line = 0; line < bits; line++)
    {
        __m256i word = _mm256_setzero_si256();
        MC_UNROLL for (unsigned i = 0; i < per; i++)
        {
            __m256i code = v[per * line + i];
            if (from) code = _mm256_srli_epi16(code, (int)from);
            if (!all) code = and_byte(code, (int8_t)((1 << bits) - 1));
            word = _mm256_or_si256(word, _mm256_slli_epi16(code, (int)(bits * i)));
        }
        _mm256_store_si256((__m256i *)(void *)(half + 64 * line), word);
    }
}

MC_INLINE void write_codes(enum quant_type type, uint8_t *lines, const uint8_t *q)
{
    const unsigned wide = pack_laws[type].wide, narrow = pack_laws[type].narrow;
    for (unsigned i = 0; i < ref_law_of(type).len; i += 32, lines += 64 * (wide + narrow))
        for (unsigned h = 0; h < 2; h++) {
            __m256i v[8];
            transpose8(v, q + ROW * 8 * h + i);
            write_plane(lines + 32 * h, v, 0, wide, narrow == 0);
            if (narrow) write_plane(lines + 32 * h + 64 * wide, v, wide, narrow, false);
        }
}

/* ---- groups ---- */

/* Whole lines, past the caches: a line that is about to be overwritten would be read first, and waiting for that was a third of
 * the time. */
MC_INLINE void stream_lines(uint8_t *to, const uint8_t *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 32)
        _mm256_stream_si256((__m256i *)(void *)(to + i), _mm256_load_si256((const void *)(from + i)));
}

MC_INLINE void pack_group(enum quant_type type, void *group, const void *w, size_t w_stride, size_t k)
{
    enum { BODY_MAX = 256 * 2 * 8 };
    const size_t block_bytes = quant_info(type)->block_bytes, body = pack_body_bytes(type), head_bytes = pack_laws[type].head;
    const size_t blocks = k / ref_law_of(type).len, all_heads = KERN_PAD(blocks * head_bytes);
    uint8_t *head = group, *to = head + all_heads;
    MC_ALIGNED(64) uint8_t q[KERN_PACK_ROWS * ROW], lines[BODY_MAX];
    assert(k % ref_law_of(type).len == 0 && body <= BODY_MAX);
    memset(head + blocks * head_bytes, 0, all_heads - blocks * head_bytes);
    for (size_t b = 0; b < blocks; b++, head += head_bytes, to += body) {
        const uint8_t *block = (const uint8_t *)w + b * block_bytes;
        uint8_t *codes = lines;
        for (unsigned r = 0; r < KERN_PACK_ROWS; r++, block += w_stride) {
            _mm_prefetch((const char *)block + KERN_PACK_ROWS * w_stride, _MM_HINT_T0); /* 16 short streams are too many */
            pack_write_head(type, head, r, block);
            codes = write_scales(type, lines, r, block);
            codes_of(type, q + ROW * r, block);
        }
        write_codes(type, codes, q);
        stream_lines(to, lines, body);
    }
    _mm_sfence(); /* whoever is told that the group is there will see it */
}

#define PACK(name, NAME, len, step, sub, minimum)                                                                              \
    static void pack_##name(void *group, const void *w, size_t w_stride, size_t k)                                             \
    {                                                                                                                          \
        pack_group(QUANT_##NAME, group, w, w_stride, k);                                                                       \
    }
REF_TYPES(PACK)

void kern_init_avx2_pack(struct kern_table *t)
{
#define PACK_SLOT(name, NAME, len, step, sub, minimum) t->pack[QUANT_##NAME] = pack_##name;
    REF_TYPES(PACK_SLOT)
}
