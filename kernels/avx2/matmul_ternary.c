/* matmul_ternary.c - tq1_0 and tq2_0 with Q8_K activations (quants.md 4.5): codes 0..2 with bias 1, one scale for all 256. */
#include "kernels/avx2/matmul.h"
#include "kernels/avx2/tile_q8_k.h"
#include "kernels/quant/blocks.h"

#define AT(type, field) offsetof(struct block_##type, field)

MC_INLINE void set_head(struct tile_k *t, const struct tile_rows *r, size_t d)
{
    for (int i = 0; i < 4; i++) t->fix[i] = _mm256_set1_epi16(1);
    t->d = tile_f16(r, d);
}

MC_INLINE struct tile_16 codes_tq2_0(struct tile_16 q, int j)
{
    for (int i = 0; i < 4; i++) q.v[i] = j ? tile_shr(q.v[i], 2 * j, 3) : tile_and(q.v[i], 3);
    return q;
}

/* Piece n: 16 bytes c = n % 2 of half h = n / 2; bits 2j of byte l are weight 128h + 32j + l. */
MC_INLINE void piece_tq2_0(struct tile_k *t, struct tile_k_sink *k, const struct tile_rows *r, int n)
{
    const int g = n / 2 * 16 + n % 2 * 2;
    const struct tile_16 q = tile_load_16(r, (size_t)(16 * n));
    tile_k_put(t, k, g, codes_tq2_0(q, 0));
    tile_k_put(t, k, g + 4, codes_tq2_0(q, 1));
    tile_k_put(t, k, g + 8, codes_tq2_0(q, 2));
    tile_k_put(t, k, g + 12, codes_tq2_0(q, 3));
}

MC_INLINE void unpack_tq2_0(struct tile_k *t, struct tile_k_sink *k, const struct tile_rows *r)
{
    set_head(t, r, AT(tq2_0, d));
    TILE_FOR_4(piece_tq2_0, t, k, r);
}
TILE_K_MATMUL(tq2_0, 1, .sub = 32, .group = 32, .fix = true)

/* 3 * b of each byte, modulo 256. */
MC_INLINE __m256i times_3(__m256i b)
{
    return _mm256_add_epi8(_mm256_add_epi8(b, b), b);
}

/* First base-3 digit of each byte, 3 * b >> 8: how many of 86 and 171 it reaches. */
MC_INLINE __m256i first_digit(__m256i b)
{
    const __m256i one = _mm256_cmpeq_epi8(_mm256_max_epu8(b, _mm256_set1_epi8(86)), b);
    const __m256i two = _mm256_cmpeq_epi8(_mm256_max_epu8(b, _mm256_set1_epi8((char)171)), b);
    return _mm256_abs_epi8(_mm256_add_epi8(one, two));
}

MC_INLINE void unpack_tq1_0(struct tile_k *t, struct tile_k_sink *k, const struct tile_rows *r)
{
    set_head(t, r, AT(tq1_0, d));
    for (int c = 0; c < 3; c++) { /* five digits of bytes 16c..16c+15: the first two to rows of 32 columns, the third to 16 */
        struct tile_16 q = tile_load_16(r, (size_t)(16 * c));
        for (int j = 0; j < 5; j++) {
            struct tile_16 w;
            for (int i = 0; i < 4; i++) {
                w.v[i] = first_digit(q.v[i]);
                q.v[i] = times_3(q.v[i]);
            }
            tile_k_put(t, k, c < 2 ? 4 * j + 2 * c : 20 + 2 * j, w);
        }
    }
    __m256i h[2]; /* four bytes of four digits: digits 0 and 1 make octet 30, digits 2 and 3 octet 31 */
    struct tile_16 w;
    tile_load_8(h, r, AT(tq1_0, qh));
    for (int i = 0; i < 2; i++) {
        const __m256i b = _mm256_shuffle_epi32(h[i], 0xA0), b01 = _mm256_blend_epi32(b, times_3(b), 0xAA);
        w.v[i] = first_digit(b01);
        w.v[2 + i] = first_digit(times_3(times_3(b01)));
    }
    tile_k_put(t, k, 30, w);
}
TILE_K_MATMUL(tq1_0, 1, .sub = 32, .group = 32, .fix = true)

void avx2_matmul_ternary(struct kern_table *t)
{
    t->matmul[QUANT_TQ1_0] = matmul_tq1_0;
    t->matmul[QUANT_TQ2_0] = matmul_tq2_0;
}
