/* pack.c - matrices into the form of pack.h; the AVX-512 rung takes these, too: a core packs faster than disks read.
 *
 * A block of 16 rows becomes unsigned codes first, a byte each, in a tile in L1: whole codebook entries by loads of 64 bits
 * with the signs of 32 columns at once; K formats by the scalar decoder (ref/unpack.h), whose loops over them compilers turn
 * into vectors. Then 8 rows x 32 columns are transposed as dwords: four columns of eight rows are half a line, and shifts and
 * ors turn lines of codes into planes. Scales are nibbles of one 64-bit word. */
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

/* Four signs codes of 7 bits, the lowest first, as signs of 32 columns. */
MC_INLINE uint32_t signs_of(uint32_t x)
{
    return quant_sign_bytes[x & 127] | (uint32_t)quant_sign_bytes[x >> 7 & 127] << 8 |
           (uint32_t)quant_sign_bytes[x >> 14 & 127] << 16 | (uint32_t)quant_sign_bytes[x >> 21 & 127] << 24;
}

MC_INLINE __m256i octets(const void *a, const void *b, const void *c, const void *d)
{
    const __m128i low = _mm_unpacklo_epi64(_mm_loadl_epi64(a), _mm_loadl_epi64(b));
    const __m128i high = _mm_unpacklo_epi64(_mm_loadl_epi64(c), _mm_loadl_epi64(d));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

MC_INLINE __m128i quads(const uint8_t (*grid)[4], unsigned a, unsigned b, unsigned c, unsigned d)
{
    const __m128i low = _mm_unpacklo_epi32(_mm_loadu_si32(grid[a]), _mm_loadu_si32(grid[b]));
    return _mm_unpacklo_epi64(low, _mm_unpacklo_epi32(_mm_loadu_si32(grid[c]), _mm_loadu_si32(grid[d])));
}

/* Magnitude 8, 25, 43 -> 0, 1, 2, and the sign. */
MC_INLINE void store_iq2(uint8_t *q, __m256i magnitudes, uint32_t signs)
{
    const __m256i code = and_byte(_mm256_srli_epi16(magnitudes, 4), 3);
    _mm256_store_si256((__m256i *)(void *)q, _mm256_or_si256(code, and_byte(mask32(signs), 4)));
}

/* -1, 0, 1 -> 0, 1, 2 */
MC_INLINE void store_iq1(uint8_t *q, __m256i values)
{
    const __m256i code = _mm256_add_epi8(and_byte(values, 3), _mm256_set1_epi8(1));
    _mm256_store_si256((__m256i *)(void *)q, and_byte(code, 3));
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
    _mm256_store_si256((__m256i *)(void *)q, _mm256_or_si256(low, and_byte(mask32(fifth), 16)));
}

MC_INLINE void codes_q8_0(uint8_t *q, const struct block_q8_0 *p)
{
    _mm256_store_si256((__m256i *)(void *)q, _mm256_add_epi8(bytes32(p->q), _mm256_set1_epi8(-128)));
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
        _mm256_store_si256((__m256i *)(void *)(q + 32 * k), next_digit(&v));
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
    for (unsigned j = 0; j < 4; j++)
        _mm256_store_si256((__m256i *)(void *)(q + 32 * j), and_byte(mask32(mc_load_u32(p->qs + 4 * j)), 1));
}

MC_INLINE void codes_iq2_xxs(uint8_t *q, const struct block_iq2_xxs *p)
{
    const uint8_t(*const grid)[8] = quant_iq2_xxs_grid;
    for (unsigned j = 0; j < 8; j++) {
        const uint8_t *const i = p->sub[j].idx;
        store_iq2(q + 32 * j, octets(grid[i[0]], grid[i[1]], grid[i[2]], grid[i[3]]), signs_of(mc_load_u32(p->sub[j].x)));
    }
}

MC_INLINE void codes_iq2_xs(uint8_t *q, const struct block_iq2_xs *p)
{
    const uint8_t(*const grid)[8] = quant_iq2_xs_grid;
    for (unsigned j = 0; j < 8; j++) {
        unsigned w[4];
        uint32_t signs = 0;
        for (unsigned g = 0; g < 4; g++) {
            w[g] = mc_load_u16(p->q[4 * j + g]);
            signs |= (uint32_t)quant_sign_bytes[w[g] >> 9] << (8 * g);
        }
        store_iq2(q + 32 * j, octets(grid[w[0] & 511], grid[w[1] & 511], grid[w[2] & 511], grid[w[3] & 511]), signs);
    }
}

MC_INLINE void codes_iq2_s(uint8_t *q, const struct block_iq2_s *p)
{
    for (unsigned j = 0; j < 8; j++) {
        const void *e[4];
        for (unsigned g = 0; g < 4; g++) e[g] = quant_iq2_s_grid[p->lo[4 * j + g] | (p->qh[j] >> (2 * g) & 3u) << 8];
        store_iq2(q + 32 * j, octets(e[0], e[1], e[2], e[3]), mc_load_u32(p->sg + 4 * j));
    }
}

MC_INLINE void codes_iq3_xxs(uint8_t *q, const struct block_iq3_xxs *p)
{
    const uint8_t(*const grid)[4] = quant_iq3_xxs_grid;
    for (unsigned j = 0; j < 8; j++) {
        const uint8_t *const i = p->idx + 8 * j;
        const __m256i v = _mm256_setr_m128i(quads(grid, i[0], i[1], i[2], i[3]), quads(grid, i[4], i[5], i[6], i[7]));
        const __m256i code = and_byte(_mm256_srli_epi16(v, 3), 7), sign = mask32(signs_of(mc_load_u32(p->x[j])));
        _mm256_store_si256((__m256i *)(void *)(q + 32 * j), _mm256_or_si256(code, and_byte(sign, 8)));
    }
}

/* (magnitude + 15) / 2, and 15 less that for negative ones */
MC_INLINE void codes_iq3_s(uint8_t *q, const struct block_iq3_s *p)
{
    for (unsigned j = 0; j < 8; j++) {
        unsigned i[8];
        for (unsigned g = 0; g < 8; g++) i[g] = p->lo[8 * j + g] | (p->qh[j] >> g & 1u) << 8;
        const __m256i v =
            _mm256_setr_m128i(quads(quant_iq3_s_grid, i[0], i[1], i[2], i[3]), quads(quant_iq3_s_grid, i[4], i[5], i[6], i[7]));
        const __m256i code = _mm256_srli_epi16(_mm256_add_epi8(v, _mm256_set1_epi8(15)), 1);
        const __m256i sign = and_byte(mask32(mc_load_u32(p->sg + 4 * j)), 15);
        _mm256_store_si256((__m256i *)(void *)(q + 32 * j), _mm256_xor_si256(code, sign));
    }
}

MC_INLINE void codes_iq1_s(uint8_t *q, const struct block_iq1_s *p)
{
    for (unsigned j = 0; j < 8; j++) {
        const unsigned high = mc_load_u16(p->qh[j]);
        const void *e[4];
        for (unsigned g = 0; g < 4; g++) e[g] = quant_iq1_s_grid[p->lo[4 * j + g] | (high >> (3 * g) & 7) << 8];
        store_iq1(q + 32 * j, octets(e[0], e[1], e[2], e[3]));
    }
}

MC_INLINE void codes_iq1_m(uint8_t *q, const struct block_iq1_m *p)
{
    for (unsigned j = 0; j < 8; j++) {
        const unsigned high = mc_load_u16(p->qh + 2 * j);
        const void *e[4];
        for (unsigned g = 0; g < 4; g++) e[g] = quant_iq1_s_grid[p->lo[4 * j + g] | (high >> (4 * g) & 7) << 8];
        store_iq1(q + 32 * j, octets(e[0], e[1], e[2], e[3]));
    }
}

/* K formats and tq2_0 come from the scalar decoder; this is what is added to its values. */
MC_INLINE int8_t bias_of(enum quant_type type)
{
    return type == QUANT_Q3_K ? 4 : type == QUANT_Q6_K ? 32 : type == QUANT_TQ2_0 ? 1 : 0;
}

MC_INLINE bool is_decoded(enum quant_type type)
{
    return type == QUANT_Q2_K || type == QUANT_Q3_K || type == QUANT_Q4_K || type == QUANT_Q5_K || type == QUANT_Q6_K ||
           type == QUANT_TQ2_0;
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

/* b: the block as the scalar decoder gives it, if this type is_decoded. */
MC_INLINE void codes_of(enum quant_type type, uint8_t *q, const void *p, const struct ref_block *b)
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
    default:
        for (unsigned i = 0; i < 256; i += 32)
            _mm256_store_si256((__m256i *)(void *)(q + i), _mm256_add_epi8(bytes32(b->q + i), _mm256_set1_epi8(bias_of(type))));
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

/* Nibble s of x belongs to sub-block s. */
MC_INLINE void write_nibbles(uint8_t *out, unsigned r, uint64_t x, unsigned sub_blocks)
{
    if (sub_blocks == 8) {
        mc_store_u32(out + 4 * r, every_second((uint32_t)x) | every_second((uint32_t)x >> 4) << 16);
        return;
    }
    for (unsigned l = 0; l < 2; l++)
        mc_store_u32(out + 64 * l + 4 * r, every_fourth(x >> (8 * l)) | every_fourth(x >> (8 * l + 4)) << 16);
}

MC_INLINE void scales_iq4_xs(int16_t scale[8], const struct block_iq4_xs *p)
{
    const unsigned low = mc_load_u32(p->sl), high = mc_load_u16(p->sh);
    for (unsigned j = 0; j < 8; j++) scale[j] = (int16_t)((int)((low >> (4 * j) & 15) | (high >> (2 * j) & 3) << 4) - 32);
}

MC_INLINE void write_bytes(uint8_t *out, unsigned r, const int16_t *scale, unsigned sub_blocks)
{
    for (unsigned s = 0; s < sub_blocks; s += 2)
        mc_store_u16(out + 16 * s + 2 * r, (uint16_t)((scale[s] & 255) | scale[s + 1] << 8));
}

/* The low nibbles of 8 bytes, without gaps. */
MC_INLINE uint32_t low_nibbles_of(uint64_t x)
{
    x &= 0x0F0F0F0F0F0F0F0F;
    x = (x | x >> 4) & 0x00FF00FF00FF00FF;
    x = (x | x >> 8) & 0x0000FFFF0000FFFF;
    return (uint32_t)(x | x >> 16);
}

/* Integer scales of types that keep nibbles, as they are in the file; *minima: those of q2_K. */
MC_INLINE uint64_t nibbles_of(enum quant_type type, const void *block, uint64_t *minima)
{
    uint64_t x = 0;
    switch (type) {
    case QUANT_Q2_K: {
        const uint64_t low = mc_load_u64(((const struct block_q2_K *)block)->sm);
        const uint64_t high = mc_load_u64(((const struct block_q2_K *)block)->sm + 8);
        *minima = low_nibbles_of(low >> 4) | (uint64_t)low_nibbles_of(high >> 4) << 32;
        return low_nibbles_of(low) | (uint64_t)low_nibbles_of(high) << 32;
    }
    case QUANT_IQ2_XXS:
        for (unsigned j = 0; j < 8; j++) x |= (uint64_t)(((const struct block_iq2_xxs *)block)->sub[j].x[3] >> 4) << (4 * j);
        return x;
    case QUANT_IQ3_XXS:
        for (unsigned j = 0; j < 8; j++) x |= (uint64_t)(((const struct block_iq3_xxs *)block)->x[j][3] >> 4) << (4 * j);
        return x;
    case QUANT_IQ1_S: /* bit 3 is the sign of the shift */
        for (unsigned j = 0; j < 8; j++) x |= (uint64_t)(((const struct block_iq1_s *)block)->qh[j][1] >> 4) << (4 * j);
        return x;
    case QUANT_IQ1_M:
        for (unsigned j = 0; j < 16; j++)
            x |= (uint64_t)(mc_load_u16(((const struct block_iq1_m *)block)->sc[j / 4]) >> (3 * (j % 4)) & 7) << (4 * j);
        return x;
    case QUANT_IQ2_XS:
        return mc_load_u64(((const struct block_iq2_xs *)block)->s);
    case QUANT_IQ2_S:
        return mc_load_u64(((const struct block_iq2_s *)block)->s);
    default: /* iq3_s */
        return mc_load_u32(((const struct block_iq3_s *)block)->s);
    }
}

/* Row r of the scales; returns what follows them. */
MC_INLINE uint8_t *write_scales(enum quant_type type, uint8_t *out, unsigned r, const void *block, const struct ref_block *b)
{
    const struct pack_law *const p = &pack_laws[type];
    const struct ref_law law = ref_law_of(type);
    const unsigned sub_blocks = law.len / law.sub;
    if (type == QUANT_IQ4_XS) {
        int16_t scale[8];
        scales_iq4_xs(scale, block);
        write_bytes(out, r, scale, sub_blocks);
    } else if (p->scales == PACK_BYTES) {
        write_bytes(out, r, b->scale, sub_blocks);
        if (p->minima) write_bytes(out + 16 * sub_blocks, r, b->min, sub_blocks);
    } else if (p->scales) {
        uint64_t minima = 0;
        write_nibbles(out, r, nibbles_of(type, block, &minima), sub_blocks);
        if (p->minima) write_nibbles(out + 8 * sub_blocks, r, minima, sub_blocks);
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

MC_INLINE void pack_group(enum quant_type type, void *group, const void *w, size_t w_stride, size_t k)
{
    const size_t block_bytes = quant_info(type)->block_bytes, body = pack_body_bytes(type), head_bytes = pack_laws[type].head;
    const size_t blocks = k / ref_law_of(type).len, all_heads = KERN_PAD(blocks * head_bytes);
    uint8_t *head = group, *lines = head + all_heads;
    MC_ALIGNED(32) uint8_t q[KERN_PACK_ROWS * ROW];
    assert(k % ref_law_of(type).len == 0);
    memset(head + blocks * head_bytes, 0, all_heads - blocks * head_bytes);
    for (size_t b = 0; b < blocks; b++, head += head_bytes, lines += body) {
        const uint8_t *block = (const uint8_t *)w + b * block_bytes;
        uint8_t *codes = lines;
        for (unsigned r = 0; r < KERN_PACK_ROWS; r++, block += w_stride) {
            struct ref_block values;
            if (is_decoded(type)) ref_unpack(type, &values, block);
            pack_write_head(type, head, r, block);
            codes = write_scales(type, lines, r, block, &values);
            codes_of(type, q + ROW * r, block, &values);
        }
        write_codes(type, codes, q);
    }
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
