/* matmul_kquant.c - q2_K, q3_K, q4_K, q5_K, q6_K with Q8_K activations (quants.md 4.3): bit fields to tiles. */
#include "kernels/avx2/matmul.h"
#include "kernels/avx2/tile_q8_k.h"
#include "kernels/quant/blocks.h"

#define AT(type, field) offsetof(struct block_##type, field)

/* ---- q4_K, q5_K ---- */

/* The 12 packed bytes as 8 scale bytes and 8 minimum bytes. head: lanes d, dmin, s[0..3]; tail: lanes s[4..11]. */
MC_INLINE void packed_scales(__m256i *scale, __m256i *min, __m256i head, __m256i tail)
{
    const __m256i low6 = _mm256_set1_epi64x(0x000000003F3F3F3F), high4 = _mm256_set1_epi64x(0x0F0F0F0F00000000),
                  high2 = _mm256_set1_epi64x(0x3030303000000000);
    *scale =
        _mm256_or_si256(_mm256_or_si256(_mm256_and_si256(_mm256_srli_epi64(head, 32), low6), _mm256_and_si256(tail, high4)),
                        _mm256_and_si256(_mm256_srli_epi64(head, 2), high2));
    *min = _mm256_or_si256(_mm256_or_si256(_mm256_and_si256(tail, low6), _mm256_and_si256(_mm256_srli_epi64(tail, 4), high4)),
                           _mm256_and_si256(_mm256_slli_epi64(tail, 30), high2));
}

MC_INLINE void packed_head(struct tile_k *t, const struct tile_rows *r)
{
    const struct tile_16 h = tile_load_16(r, 0);
    for (int i = 0; i < 2; i++) {
        __m256i scale, min;
        packed_scales(&scale, &min, h.v[i], h.v[2 + i]);
        for (int j = 0; j < 8; j++) t->scale[2 * j + i] = tile_spread_u8(scale, j);
        for (int q = 0; q < 2; q++) t->fix[2 * q + i] = tile_widen_u8(min, q);
    }
    t->d = tile_f16(r, AT(q4_K, d));
    t->dmin = tile_f16(r, AT(q4_K, dmin));
}

/* Piece n: 16 bytes c = n % 2 of sub-blocks 2p and 2p + 1, p = n / 2. */
MC_INLINE void piece_q4_K(struct tile_k *t, struct tile_k_sink *k, const struct tile_rows *r, int n)
{
    const int g = n / 2 * 8 + n % 2 * 2;
    const struct tile_16 q = tile_load_16(r, AT(q4_K, qs) + (size_t)(16 * n));
    struct tile_16 w;
    for (int i = 0; i < 4; i++) w.v[i] = tile_and(q.v[i], 15);
    tile_k_put(t, k, g, w);
    for (int i = 0; i < 4; i++) w.v[i] = tile_shr(q.v[i], 4, 15);
    tile_k_put(t, k, g + 4, w);
}

MC_INLINE void unpack_q4_K(struct tile_k *t, struct tile_k_sink *k, const struct tile_rows *r)
{
    packed_head(t, r);
    TILE_FOR_8(piece_q4_K, t, k, r);
}
TILE_K_MATMUL(q4_K, 3, .sub = 4, .group = 4, .min = true)

/* Bit j of each byte at bit 4. */
MC_INLINE __m256i fifth_bit(__m256i h, int j)
{
    return j < 4 ? tile_shl(h, 4 - j, 16) : tile_shr(h, j - 4, 16);
}

/* Pieces as in q4_K; h: the high bits of columns 16c .. 16c+15 of all sub-blocks. */
MC_INLINE void piece_q5_K(struct tile_k *t, struct tile_k_sink *k, const struct tile_rows *r, const struct tile_16 *h, int c,
                          int p)
{
    const int g = 8 * p + 2 * c;
    const struct tile_16 q = tile_load_16(r, AT(q5_K, qs) + (size_t)(32 * p + 16 * c));
    struct tile_16 w;
    for (int i = 0; i < 4; i++) w.v[i] = _mm256_or_si256(tile_and(q.v[i], 15), fifth_bit(h->v[i], 2 * p));
    tile_k_put(t, k, g, w);
    for (int i = 0; i < 4; i++) w.v[i] = _mm256_or_si256(tile_shr(q.v[i], 4, 15), fifth_bit(h->v[i], 2 * p + 1));
    tile_k_put(t, k, g + 4, w);
}

MC_INLINE void half_q5_K(struct tile_k *t, struct tile_k_sink *k, const struct tile_rows *r, int c)
{
    const struct tile_16 h = tile_load_16(r, AT(q5_K, qh) + (size_t)(16 * c));
    TILE_FOR_4(piece_q5_K, t, k, r, &h, c);
}

MC_INLINE void unpack_q5_K(struct tile_k *t, struct tile_k_sink *k, const struct tile_rows *r)
{
    packed_head(t, r);
    TILE_FOR_2(half_q5_K, t, k, r);
}
TILE_K_MATMUL(q5_K, 3, .sub = 4, .group = 4, .min = true)

/* ---- q6_K: codes 0..63, bias 32 ---- */

/* Piece n: 16 bytes c = n % 2 of the four rows of 32 columns of half h = n / 2. */
MC_INLINE void piece_q6_K(struct tile_k *t, struct tile_k_sink *k, const struct tile_rows *r, int n)
{
    const int h = n / 2, c = n % 2, g = 16 * h + 2 * c;
    const struct tile_16 hi = tile_load_16(r, AT(q6_K, qh) + (size_t)(32 * h + 16 * c));
    struct tile_16 w, q = tile_load_16(r, (size_t)(64 * h + 16 * c));
    for (int i = 0; i < 4; i++) w.v[i] = _mm256_or_si256(tile_and(q.v[i], 15), tile_shl(hi.v[i], 4, 48));
    tile_k_put(t, k, g, w);
    for (int i = 0; i < 4; i++) w.v[i] = _mm256_or_si256(tile_shr(q.v[i], 4, 15), tile_and(hi.v[i], 48));
    tile_k_put(t, k, g + 8, w);
    q = tile_load_16(r, (size_t)(64 * h + 32 + 16 * c));
    for (int i = 0; i < 4; i++) w.v[i] = _mm256_or_si256(tile_and(q.v[i], 15), tile_shl(hi.v[i], 2, 48));
    tile_k_put(t, k, g + 4, w);
    for (int i = 0; i < 4; i++) w.v[i] = _mm256_or_si256(tile_shr(q.v[i], 4, 15), tile_shr(hi.v[i], 2, 48));
    tile_k_put(t, k, g + 12, w);
}

MC_INLINE void unpack_q6_K(struct tile_k *t, struct tile_k_sink *k, const struct tile_rows *r)
{
    const struct tile_16 sc = tile_load_16(r, AT(q6_K, sc));
    for (int i = 0; i < 2; i++)
        for (int e = 0; e < 2; e++) {
            for (int j = 0; j < 8; j++) t->scale[16 * e + 2 * j + i] = tile_spread_s8(sc.v[2 * e + i], j);
            for (int q = 0; q < 2; q++) t->fix[4 * e + 2 * q + i] = _mm256_slli_epi16(tile_widen_s8(sc.v[2 * e + i], q), 5);
        }
    t->d = tile_f16(r, AT(q6_K, d));
    TILE_FOR_4(piece_q6_K, t, k, r);
}
TILE_K_MATMUL(q6_K, 3, .sub = 2, .group = 2, .fix = true)

/* ---- q2_K, q3_K ---- */

/* Two-bit codes: weight 128h + 32j + l is bits 2j of byte 32h + l; the high bits of q3_K (bit 4h+j of byte l) come in at bit 2.
 */
MC_INLINE struct tile_16 pairs(struct tile_16 q, const struct tile_16 *high, int h, int j)
{
    const int bit = 4 * h + j;
    for (int i = 0; i < 4; i++) {
        q.v[i] = j ? tile_shr(q.v[i], 2 * j, 3) : tile_and(q.v[i], 3);
        if (high)
            q.v[i] = _mm256_or_si256(q.v[i], bit < 2 ? tile_shl(high->v[i], 2 - bit, 4) : tile_shr(high->v[i], bit - 2, 4));
    }
    return q;
}

MC_INLINE void piece_pairs(struct tile_k *t, struct tile_k_sink *k, const struct tile_rows *r, size_t qs,
                           const struct tile_16 *high, int c, int h)
{
    const struct tile_16 q = tile_load_16(r, qs + (size_t)(32 * h + 16 * c));
    tile_k_put(t, k, 16 * h + 2 * c, pairs(q, high, h, 0));
    tile_k_put(t, k, 16 * h + 2 * c + 4, pairs(q, high, h, 1));
    tile_k_put(t, k, 16 * h + 2 * c + 8, pairs(q, high, h, 2));
    tile_k_put(t, k, 16 * h + 2 * c + 12, pairs(q, high, h, 3));
}

MC_INLINE void half_q2_K(struct tile_k *t, struct tile_k_sink *k, const struct tile_rows *r, int c)
{
    TILE_FOR_2(piece_pairs, t, k, r, AT(q2_K, qs), NULL, c);
}

MC_INLINE void half_q3_K(struct tile_k *t, struct tile_k_sink *k, const struct tile_rows *r, int c)
{
    const struct tile_16 high = tile_load_16(r, AT(q3_K, hm) + (size_t)(16 * c));
    TILE_FOR_2(piece_pairs, t, k, r, AT(q3_K, qs), &high, c);
}

MC_INLINE void unpack_q2_K(struct tile_k *t, struct tile_k_sink *k, const struct tile_rows *r)
{
    const struct tile_16 sm = tile_load_16(r, AT(q2_K, sm));
    for (int e = 0; e < 2; e++)
        for (int i = 0; i < 2; i++) {
            const __m256i scale = tile_and(sm.v[2 * e + i], 15), min = tile_shr(sm.v[2 * e + i], 4, 15);
            for (int j = 0; j < 8; j++) t->scale[16 * e + 2 * j + i] = tile_spread_u8(scale, j);
            for (int q = 0; q < 2; q++) t->fix[4 * e + 2 * q + i] = tile_widen_u8(min, q);
        }
    t->d = tile_f16(r, AT(q2_K, d));
    t->dmin = tile_f16(r, AT(q2_K, dmin));
    TILE_FOR_2(half_q2_K, t, k, r);
}
TILE_K_MATMUL(q2_K, 3, .sub = 2, .group = 2, .min = true)

MC_INLINE void unpack_q3_K(struct tile_k *t, struct tile_k_sink *k, const struct tile_rows *r)
{
    const struct tile_16 s = tile_load_16(r, AT(q3_K, s)); /* lanes s[0..7] and s[8..11], d, two bytes beyond */
    for (int e = 0; e < 2; e++)
        for (int i = 0; i < 2; i++) {
            const __m256i low = e ? tile_shr(s.v[i], 4, 15) : tile_and(s.v[i], 15);
            const __m256i high =
                _mm256_srlv_epi32(_mm256_shuffle_epi32(s.v[2 + i], 0xA0), _mm256_set1_epi64x((2LL + 4 * e) << 32 | 4 * e));
            const __m256i scale =
                _mm256_sub_epi8(_mm256_or_si256(low, tile_shl(tile_and(high, 3), 4, 48)), _mm256_set1_epi8(32));
            for (int j = 0; j < 8; j++) t->scale[16 * e + 2 * j + i] = tile_spread_s8(scale, j);
            for (int q = 0; q < 2; q++) t->fix[4 * e + 2 * q + i] = _mm256_slli_epi16(tile_widen_s8(scale, q), 2);
        }
    t->d = tile_f16(r, AT(q3_K, d));
    TILE_FOR_2(half_q3_K, t, k, r);
}
TILE_K_MATMUL(q3_K, 3, .sub = 2, .group = 2, .fix = true)

void avx2_matmul_kquant(struct kern_table *t)
{
    t->matmul[QUANT_Q2_K] = matmul_q2_K;
    t->matmul[QUANT_Q3_K] = matmul_q3_K;
    t->matmul[QUANT_Q4_K] = matmul_q4_K;
    t->matmul[QUANT_Q5_K] = matmul_q5_K;
    t->matmul[QUANT_Q6_K] = matmul_q6_K;
}
