/* matmul_q8_0.c - the formats that meet Q8_0 activations (quants.md 4.1, 4.2): blocks of 32 to 128 weights to tiles. */
#include "kernels/avx2/matmul.h"
#include "kernels/avx2/tile_q8_0.h"
#include "kernels/quant/blocks.h"
#include "kernels/quant/grids.h"

#define AT(type, field) offsetof(struct block_##type, field)

/* ---- nibbles: byte i holds weights i and i + 16 ---- */

/* 16 code values plus a bias, in both halves. */
MC_INLINE __m256i table_of(const int8_t values[16], int bias)
{
    const __m128i v = _mm_loadu_si128((const void *)values);
    return _mm256_add_epi8(_mm256_broadcastsi128_si256(v), _mm256_set1_epi8((char)bias));
}

MC_INLINE struct tile_16 low_nibbles(const struct tile_16 q)
{
    return (struct tile_16){{tile_and(q.v[0], 15), tile_and(q.v[1], 15), tile_and(q.v[2], 15), tile_and(q.v[3], 15)}};
}

MC_INLINE struct tile_16 high_nibbles(const struct tile_16 q)
{
    return (struct tile_16){
        {tile_shr(q.v[0], 4, 15), tile_shr(q.v[1], 4, 15), tile_shr(q.v[2], 4, 15), tile_shr(q.v[3], 4, 15)}};
}

MC_INLINE struct tile_16 look_up(__m256i table, const struct tile_16 q)
{
    return (struct tile_16){{_mm256_shuffle_epi8(table, q.v[0]), _mm256_shuffle_epi8(table, q.v[1]),
                             _mm256_shuffle_epi8(table, q.v[2]), _mm256_shuffle_epi8(table, q.v[3])}};
}

MC_INLINE void put_nibbles(struct tile_b *t, struct tile_b_sink *k, const struct tile_rows *r, size_t off, int g)
{
    const struct tile_16 q = tile_load_16(r, off);
    tile_b_put(t, k, g, low_nibbles(q));
    tile_b_put(t, k, g + 2, high_nibbles(q));
}

MC_INLINE void put_values(struct tile_b *t, struct tile_b_sink *k, const struct tile_rows *r, size_t off, int g, __m256i table)
{
    const struct tile_16 q = tile_load_16(r, off);
    tile_b_put(t, k, g, look_up(table, low_nibbles(q)));
    tile_b_put(t, k, g + 2, look_up(table, high_nibbles(q)));
}

MC_INLINE void unpack_q4_0(struct tile_b *t, struct tile_b_sink *k, const struct tile_rows *r, int g)
{
    t->d[g / 4] = tile_f16(r, AT(q4_0, d));
    put_nibbles(t, k, r, AT(q4_0, qs), g);
}
TILE_B_MATMUL(q4_0, 1, .len = 32, .step = 4, .bias = 8, .narrow = true)

MC_INLINE void unpack_q4_1(struct tile_b *t, struct tile_b_sink *k, const struct tile_rows *r, int g)
{
    t->d[g / 4] = tile_f16(r, AT(q4_1, d));
    t->m[g / 4] = tile_f16(r, AT(q4_1, m));
    put_nibbles(t, k, r, AT(q4_1, qs), g);
}
TILE_B_MATMUL(q4_1, 1, .len = 32, .step = 4, .narrow = true, .min = true)

MC_INLINE void unpack_iq4_nl(struct tile_b *t, struct tile_b_sink *k, const struct tile_rows *r, int g)
{
    t->d[g / 4] = tile_f16(r, AT(iq4_nl, d));
    put_values(t, k, r, AT(iq4_nl, qs), g, table_of(quant_iq4_values, 0));
}
TILE_B_MATMUL(iq4_nl, 1, .len = 32, .step = 4, .is_signed = true)

/* (float) half of 2^(e-127); e < 2 is subnormal. */
MC_INLINE __m256 e8m0_half_8(const struct tile_rows *r, size_t off)
{
    uint64_t all = 0;
    for (int i = 0; i < TILE_ROWS; i++) all |= (uint64_t)r->p[i][off] << (8 * i);
    const __m256i e = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)all));
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const __m256i tiny = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(tiny, normal, _mm256_cmpgt_epi32(e, _mm256_set1_epi32(1))));
}

MC_INLINE void unpack_mxfp4(struct tile_b *t, struct tile_b_sink *k, const struct tile_rows *r, int g)
{
    t->d[g / 4] = e8m0_half_8(r, AT(mxfp4, e));
    put_values(t, k, r, AT(mxfp4, qs), g, table_of(quant_fp4_values, 12));
}
TILE_B_MATMUL(mxfp4, 3, .len = 32, .step = 4, .bias = 12)

/* ---- five bits: bit i of qh belongs to weight i ---- */

MC_INLINE struct tile_16 with_fifth_bits(struct tile_16 q, const __m256i h[2], int o)
{
    for (int i = 0; i < 4; i++) q.v[i] = _mm256_or_si256(q.v[i], tile_and(tile_bits(h[i % 2], o + i / 2), 16));
    return q;
}

MC_INLINE void put_five_bits(struct tile_b *t, struct tile_b_sink *k, const struct tile_rows *r, size_t qs, size_t qh, int g)
{
    const struct tile_16 q = tile_load_16(r, qs);
    __m256i h[2];
    tile_load_8(h, r, qh);
    tile_b_put(t, k, g, with_fifth_bits(low_nibbles(q), h, 0));
    tile_b_put(t, k, g + 2, with_fifth_bits(high_nibbles(q), h, 2));
}

MC_INLINE void unpack_q5_0(struct tile_b *t, struct tile_b_sink *k, const struct tile_rows *r, int g)
{
    t->d[g / 4] = tile_f16(r, AT(q5_0, d));
    put_five_bits(t, k, r, AT(q5_0, qs), AT(q5_0, qh), g);
}
TILE_B_MATMUL(q5_0, 1, .len = 32, .step = 4, .bias = 16)

MC_INLINE void unpack_q5_1(struct tile_b *t, struct tile_b_sink *k, const struct tile_rows *r, int g)
{
    t->d[g / 4] = tile_f16(r, AT(q5_1, d));
    t->m[g / 4] = tile_f16(r, AT(q5_1, m));
    put_five_bits(t, k, r, AT(q5_1, qs), AT(q5_1, qh), g);
}
TILE_B_MATMUL(q5_1, 1, .len = 32, .step = 4, .min = true)

/* ---- whole bytes ---- */

MC_INLINE void unpack_q8_0(struct tile_b *t, struct tile_b_sink *k, const struct tile_rows *r, int g)
{
    t->d[g / 4] = tile_f16(r, AT(q8_0, d));
    tile_b_put(t, k, g, tile_load_16(r, AT(q8_0, q)));
    tile_b_put(t, k, g + 2, tile_load_16(r, AT(q8_0, q) + 16));
}
TILE_B_MATMUL(q8_0, 3, .len = 32, .step = 4, .is_signed = true)

/* ---- q2_0: four consecutive weights in a byte ---- */

/* Bytes 2o, 2o+1 of each lane as 8 codes. Each 16-bit piece gets the byte in its high half, keeps one nibble, and the
 * multiplication brings the two codes of that nibble to bits 16 and 24 of the product. */
MC_INLINE __m256i quad_codes(__m256i q, int o)
{
    const long long low = (long long)(0x01FF01FF00FF00FF + 0x0200020002000200u * (unsigned)o), high = low + 0x0800080008000800;
    const __m256i v = _mm256_shuffle_epi8(q, _mm256_setr_epi64x(low, high, low, high));
    const __m256i nibble = _mm256_and_si256(v, _mm256_set1_epi32((int)0xF0000F00));
    return tile_and(_mm256_mulhi_epu16(nibble, _mm256_set1_epi32(0x04104100)), 3);
}

/* Octets o, o+1 (o even, below 8) of a block. */
MC_INLINE void piece_q2_0(struct tile_b *t, struct tile_b_sink *k, const struct tile_16 *q, int g, int o)
{
    const __m256i a = q->v[o / 4 * 2], b = q->v[o / 4 * 2 + 1];
    tile_b_put(
        t, k, g + o,
        (struct tile_16){{quad_codes(a, o % 4), quad_codes(b, o % 4), quad_codes(a, o % 4 + 1), quad_codes(b, o % 4 + 1)}});
}

MC_INLINE void unpack_q2_0(struct tile_b *t, struct tile_b_sink *k, const struct tile_rows *r, int g)
{
    const struct tile_16 q = tile_load_16(r, AT(q2_0, qs));
    t->d[g / 4] = t->d[g / 4 + 1] = tile_f16(r, AT(q2_0, d));
    piece_q2_0(t, k, &q, g, 0);
    piece_q2_0(t, k, &q, g, 2);
    piece_q2_0(t, k, &q, g, 4);
    piece_q2_0(t, k, &q, g, 6);
}
TILE_B_MATMUL(q2_0, 3, .len = 64, .step = 4, .bias = 1, .narrow = true)

/* ---- q1_0: a bit a weight; nvfp4: a scale for 16 ---- */

/* Octets 2n, 2n+1 of a block: bits to 0 or 2. */
MC_INLINE void piece_q1_0(struct tile_b *t, struct tile_b_sink *k, const struct tile_16 *q, int g, int n)
{
    const int o = 2 * n % 8;
    const __m256i a = q->v[n / 4 * 2], b = q->v[n / 4 * 2 + 1];
    tile_b_put(t, k, g + 2 * n,
               (struct tile_16){{tile_and(tile_bits(a, o), 2), tile_and(tile_bits(b, o), 2), tile_and(tile_bits(a, o + 1), 2),
                                 tile_and(tile_bits(b, o + 1), 2)}});
}

MC_INLINE void unpack_q1_0(struct tile_b *t, struct tile_b_sink *k, const struct tile_rows *r, int g)
{
    const struct tile_16 q = tile_load_16(r, AT(q1_0, qs));
    const __m256 d = tile_f16(r, AT(q1_0, d));
    for (int j = 0; j < 4; j++) t->d[g / 4 + j] = d;
    TILE_FOR_8(piece_q1_0, t, k, &q, g);
}
TILE_B_MATMUL(q1_0, 1, .len = 128, .step = 4, .bias = 1, .narrow = true)

/* Half of the E4M3 value, bit 7 ignored, 0x7F: 0. As a float16 the byte's fields read 2^-8 times too small: shift, scale. */
MC_INLINE __m256 ue4m3_half_8(const struct tile_rows *r, size_t off)
{
    uint64_t all = 0;
    for (int i = 0; i < TILE_ROWS; i++) all |= (uint64_t)r->p[i][off] << (8 * i);
    const __m128i e = _mm_cvtepu8_epi16(_mm_cvtsi64_si128((long long)all));
    const __m128i bad = _mm_cmpeq_epi16(e, _mm_set1_epi16(0x7F));
    const __m128i half = _mm_slli_epi16(_mm_and_si128(e, _mm_set1_epi16(0x7F)), 7);
    return _mm256_mul_ps(_mm256_cvtph_ps(_mm_andnot_si128(bad, half)), _mm256_set1_ps(0x1p7f));
}

/* Sub-blocks 2c and 2c+1: in each 8 bytes the low nibbles are one octet, the high ones the next. */
MC_INLINE void piece_nvfp4(struct tile_b *t, struct tile_b_sink *k, const struct tile_rows *r, int g, int c)
{
    const __m256i table = table_of(quant_fp4_values, 0);
    const struct tile_16 q = tile_load_16(r, AT(nvfp4, qs) + (size_t)(16 * c));
    const struct tile_16 low = look_up(table, low_nibbles(q)), high = look_up(table, high_nibbles(q));
    tile_b_put(t, k, g + 4 * c, (struct tile_16){{low.v[0], low.v[1], high.v[0], high.v[1]}});
    tile_b_put(t, k, g + 4 * c + 2, (struct tile_16){{low.v[2], low.v[3], high.v[2], high.v[3]}});
}

MC_INLINE void unpack_nvfp4(struct tile_b *t, struct tile_b_sink *k, const struct tile_rows *r, int g)
{
    for (int j = 0; j < 4; j++) t->d[g / 2 + j] = ue4m3_half_8(r, AT(nvfp4, sc) + (size_t)j);
    piece_nvfp4(t, k, r, g, 0);
    piece_nvfp4(t, k, r, g, 1);
}
TILE_B_MATMUL(nvfp4, 1, .len = 64, .step = 2, .is_signed = true)

void avx2_matmul_q8_0(struct kern_table *t)
{
    t->matmul[QUANT_Q8_0] = matmul_q8_0;
    t->matmul[QUANT_Q4_0] = matmul_q4_0;
    t->matmul[QUANT_Q4_1] = matmul_q4_1;
    t->matmul[QUANT_Q5_0] = matmul_q5_0;
    t->matmul[QUANT_Q5_1] = matmul_q5_1;
    t->matmul[QUANT_IQ4_NL] = matmul_iq4_nl;
    t->matmul[QUANT_MXFP4] = matmul_mxfp4;
    t->matmul[QUANT_NVFP4] = matmul_nvfp4;
    t->matmul[QUANT_Q2_0] = matmul_q2_0;
    t->matmul[QUANT_Q1_0] = matmul_q1_0;
}
