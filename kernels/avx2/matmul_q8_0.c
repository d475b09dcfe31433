/* matmul_q8_0.c - the formats that meet Q8_0 activations (quants.md 4.1, 4.2): blocks of 32 to 128 weights to tiles. */
#include "kernels/avx2/matmul.h"
#include "kernels/avx2/tile_q8_0.h"
#include "kernels/quant/blocks.h"
#include "kernels/quant/grids.h"

#define AT(type, field) offsetof(struct block_##type, field)

/* ---- nibbles: byte i holds weights i and i + 16 ---- */

/* Low nibbles to octets g, g+1, high ones to g+2, g+3. */
MC_INLINE void unpack_nibbles(__m256i *w, const struct tile_16 *q)
{
    for (int i = 0; i < 4; i++) {
        w[i] = tile_and(q->v[i], 15);
        w[4 + i] = tile_shr(q->v[i], 4, 15);
    }
}

MC_INLINE void look_up(__m256i *w, int n, __m256i table)
{
    for (int i = 0; i < n; i++) w[i] = _mm256_shuffle_epi8(table, w[i]);
}

/* 16 code values plus a bias, in both halves. */
MC_INLINE __m256i table_of(const int8_t values[16], int bias)
{
    const __m128i v = _mm_loadu_si128((const void *)values);
    return _mm256_add_epi8(_mm256_broadcastsi128_si256(v), _mm256_set1_epi8((char)bias));
}

MC_INLINE void unpack_q4_0(struct tile_b *t, const struct tile_rows *r, int g)
{
    const struct tile_16 q = tile_load_16(r, AT(q4_0, qs));
    unpack_nibbles(t->w + 2 * g, &q);
    t->d[g / 4] = tile_f16(r, AT(q4_0, d));
}
TILE_B_MATMUL(q4_0, .len = 32, .step = 4, .bias = 8, .narrow = true)

MC_INLINE void unpack_q4_1(struct tile_b *t, const struct tile_rows *r, int g)
{
    const struct tile_16 q = tile_load_16(r, AT(q4_1, qs));
    unpack_nibbles(t->w + 2 * g, &q);
    t->d[g / 4] = tile_f16(r, AT(q4_1, d));
    t->m[g / 4] = tile_f16(r, AT(q4_1, m));
}
TILE_B_MATMUL(q4_1, .len = 32, .step = 4, .narrow = true, .min = true)

MC_INLINE void unpack_iq4_nl(struct tile_b *t, const struct tile_rows *r, int g)
{
    const struct tile_16 q = tile_load_16(r, AT(iq4_nl, qs));
    unpack_nibbles(t->w + 2 * g, &q);
    look_up(t->w + 2 * g, 8, table_of(quant_iq4_values, 0));
    t->d[g / 4] = tile_f16(r, AT(iq4_nl, d));
}
TILE_B_MATMUL(iq4_nl, .len = 32, .step = 4, .is_signed = true)

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

MC_INLINE void unpack_mxfp4(struct tile_b *t, const struct tile_rows *r, int g)
{
    const struct tile_16 q = tile_load_16(r, AT(mxfp4, qs));
    unpack_nibbles(t->w + 2 * g, &q);
    look_up(t->w + 2 * g, 8, table_of(quant_fp4_values, 12));
    t->d[g / 4] = e8m0_half_8(r, AT(mxfp4, e));
}
TILE_B_MATMUL(mxfp4, .len = 32, .step = 4, .bias = 12)

/* ---- five bits ---- */

MC_INLINE void add_fifth_bits(__m256i *w, const struct tile_rows *r, size_t qh)
{
    __m256i h[2];
    tile_load_8(h, r, qh);
    for (int o = 0; o < 4; o++)
        for (int i = 0; i < 2; i++) w[2 * o + i] = _mm256_or_si256(w[2 * o + i], tile_and(tile_bits(h[i], o), 16));
}

MC_INLINE void unpack_q5_0(struct tile_b *t, const struct tile_rows *r, int g)
{
    const struct tile_16 q = tile_load_16(r, AT(q5_0, qs));
    unpack_nibbles(t->w + 2 * g, &q);
    add_fifth_bits(t->w + 2 * g, r, AT(q5_0, qh));
    t->d[g / 4] = tile_f16(r, AT(q5_0, d));
}
TILE_B_MATMUL(q5_0, .len = 32, .step = 4, .bias = 16)

MC_INLINE void unpack_q5_1(struct tile_b *t, const struct tile_rows *r, int g)
{
    const struct tile_16 q = tile_load_16(r, AT(q5_1, qs));
    unpack_nibbles(t->w + 2 * g, &q);
    add_fifth_bits(t->w + 2 * g, r, AT(q5_1, qh));
    t->d[g / 4] = tile_f16(r, AT(q5_1, d));
    t->m[g / 4] = tile_f16(r, AT(q5_1, m));
}
TILE_B_MATMUL(q5_1, .len = 32, .step = 4, .min = true)

/* ---- whole bytes ---- */

MC_INLINE void unpack_q8_0(struct tile_b *t, const struct tile_rows *r, int g)
{
    for (int c = 0; c < 2; c++) {
        const struct tile_16 q = tile_load_16(r, AT(q8_0, q) + (size_t)(16 * c));
        for (int i = 0; i < 4; i++) t->w[2 * g + 4 * c + i] = q.v[i];
    }
    t->d[g / 4] = tile_f16(r, AT(q8_0, d));
}
TILE_B_MATMUL(q8_0, .len = 32, .step = 4, .is_signed = true)

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

MC_INLINE void unpack_q2_0(struct tile_b *t, const struct tile_rows *r, int g)
{
    const struct tile_16 q = tile_load_16(r, AT(q2_0, qs));
    for (int o = 0; o < 8; o++)
        for (int i = 0; i < 2; i++) t->w[2 * (g + o) + i] = quad_codes(q.v[o / 4 * 2 + i], o % 4);
    t->d[g / 4] = t->d[g / 4 + 1] = tile_f16(r, AT(q2_0, d));
}
TILE_B_MATMUL(q2_0, .len = 64, .step = 4, .bias = 1, .narrow = true)

/* ---- q1_0: a bit a weight; nvfp4: a scale for 16 ---- */

MC_INLINE void unpack_q1_0(struct tile_b *t, const struct tile_rows *r, int g)
{
    const struct tile_16 q = tile_load_16(r, AT(q1_0, qs));
    for (int o = 0; o < 16; o++)
        for (int i = 0; i < 2; i++) t->w[2 * (g + o) + i] = tile_and(tile_bits(q.v[o / 8 * 2 + i], o % 8), 2);
    const __m256 d = tile_f16(r, AT(q1_0, d));
    for (int j = 0; j < 4; j++) t->d[g / 4 + j] = d;
}
TILE_B_MATMUL(q1_0, .len = 128, .step = 4, .bias = 1, .narrow = true)

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

MC_INLINE void unpack_nvfp4(struct tile_b *t, const struct tile_rows *r, int g)
{
    const __m256i table = table_of(quant_fp4_values, 0);
    for (int c = 0; c < 2; c++) {
        const struct tile_16 q = tile_load_16(r, AT(nvfp4, qs) + (size_t)(16 * c));
        for (int i = 0; i < 4; i++) {
            const int o = 4 * c + i / 2 * 2; /* bytes 0..7 of a lane: low nibbles octet o, high ones octet o + 1 */
            t->w[2 * (g + o) + i % 2] = _mm256_shuffle_epi8(table, tile_and(q.v[i], 15));
            t->w[2 * (g + o + 1) + i % 2] = _mm256_shuffle_epi8(table, tile_shr(q.v[i], 4, 15));
        }
    }
    for (int j = 0; j < 4; j++) t->d[g / 2 + j] = ue4m3_half_8(r, AT(nvfp4, sc) + (size_t)j);
}
TILE_B_MATMUL(nvfp4, .len = 64, .step = 2, .is_signed = true)

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
