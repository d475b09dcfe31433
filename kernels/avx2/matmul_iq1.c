/* matmul_iq1.c - iq1_s and iq1_m with Q8_K activations (quants.md 4.4): ternary octets of an 11-bit codebook, shifted by 1/8.
 *
 * I is eight times the sum. iq1_s: u = value + 1, scale 8 ls, and the shift joins the bias: fix = ls (8 - sigma).
 * iq1_m, whose shift changes every 8 weights: u = 8 (value + 1) + sigma + 1, scale ls, fix = 9 ls. */
#include "kernels/avx2/codebook.h"
#include "kernels/avx2/matmul.h"
#include "kernels/avx2/tile_q8_k.h"
#include "kernels/quant/blocks.h"
#include "kernels/quant/grids.h"

#define AT(type, field) offsetof(struct block_##type, field)

MC_INLINE const void *entry_iq1(const void *idx, int row, int g)
{
    return quant_iq1_s_grid[codebook_index(idx, 32 * row + g)];
}

/* Octets g, g+1 of all rows, as value + 1. */
MC_INLINE struct tile_16 octets(const void *idx, int g)
{
    struct tile_16 w = codebook_octets(entry_iq1, idx, g);
    for (int i = 0; i < 4; i++) w.v[i] = _mm256_add_epi8(w.v[i], _mm256_set1_epi8(1));
    return w;
}

/* ---- iq1_s ---- */

/* All 32 indices of a row: three bits of each 16-bit word above every low byte. */
MC_INLINE void indices_iq1_s(uint16_t idx[32], const uint8_t *p)
{
    const __m256i qh = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)(p + AT(iq1_s, qh))));
    for (int e = 0; e < 2; e++) {
        const long long j0 = 0x0100010001000100 + 0x0808080808080808 * e, step = 0x0202020202020202;
        const __m256i word = _mm256_shuffle_epi8(qh, _mm256_setr_epi64x(j0, j0 + step, j0 + 2 * step, j0 + 3 * step));
        const __m256i left = _mm256_mullo_epi16(word, _mm256_set1_epi64x(0x0000000400200100)); /* << 8, 5, 2 */
        const __m256i high = _mm256_blend_epi16(left, _mm256_srli_epi16(word, 1), 0x88);
        codebook_indices_16(idx + 16 * e, p + AT(iq1_s, lo) + 16 * e, _mm256_and_si256(high, _mm256_set1_epi16(0x0700)));
    }
}

MC_INLINE void piece_iq1_s(struct tile_k *t, struct tile_k_sink *k, const void *idx, int j)
{
    tile_k_put(t, k, 4 * j, octets(idx, 4 * j));
    tile_k_put(t, k, 4 * j + 2, octets(idx, 4 * j + 2));
}

MC_INLINE void unpack_iq1_s(struct tile_k *t, struct tile_k_sink *k, const struct tile_rows *r)
{
    uint16_t idx[TILE_ROWS][32];
    for (int i = 0; i < TILE_ROWS; i++) indices_iq1_s(idx[i], r->p[i]);
    const void *scratch = codebook_scratch(idx);
    const struct tile_16 qh = tile_load_16(r, AT(iq1_s, qh));
    for (int q = 0; q < 2; q++)
        for (int i = 0; i < 2; i++) {
            const __m256i h = qh.v[2 * q + i], one = _mm256_set1_epi16(1);
            const __m256i ls = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(h, 11), _mm256_set1_epi16(14)), one);
            const __m256i ls8 = _mm256_slli_epi16(ls, 3);
            t->fix[2 * q + i] = _mm256_sub_epi16(ls8, _mm256_sign_epi16(ls, _mm256_or_si256(h, one)));
            for (int j = 0; j < 4; j++) t->scale[8 * q + 2 * j + i] = tile_spread_16(ls8, j);
        }
    t->d = _mm256_mul_ps(tile_f16(r, AT(iq1_s, d)), _mm256_set1_ps(0.125f));
    TILE_FOR_8(piece_iq1_s, t, k, scratch);
}
TILE_K_MATMUL(iq1_s, 4, .sub = 4, .group = 4, .fix = true)

/* ---- iq1_m ---- */

/* Nibble g of qh: low three bits above byte g of lo. */
MC_INLINE void indices_iq1_m(uint16_t idx[32], const uint8_t *p)
{
    const __m256i qh = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)(p + AT(iq1_m, qh))));
    for (int e = 0; e < 2; e++) {
        const long long j0 = (long long)0xFF01FF01FF00FF00 + 0x0008000800080008 * e, step = 0x0002000200020002;
        const __m256i byte = _mm256_shuffle_epi8(qh, _mm256_setr_epi64x(j0, j0 + step, j0 + 2 * step, j0 + 3 * step));
        const __m256i high = _mm256_mullo_epi16(byte, _mm256_set1_epi32(0x00100100)); /* << 8, << 4 */
        codebook_indices_16(idx + 16 * e, p + AT(iq1_m, lo) + 16 * e, _mm256_and_si256(high, _mm256_set1_epi16(0x0700)));
    }
}

/* The float16 in the top nibbles of four words, lane = row. */
MC_INLINE __m256 scale_iq1_m(const __m256i sc[2])
{
    const __m256i place = _mm256_set1_epi64x(0x1000010000100001);
    const __m256i a = _mm256_madd_epi16(_mm256_srli_epi16(sc[0], 12), place),
                  b = _mm256_madd_epi16(_mm256_srli_epi16(sc[1], 12), place);
    const __m256i bits = _mm256_hadd_epi32(a, b);
    const __m256i halves = _mm256_permute4x64_epi64(_mm256_packus_epi32(bits, bits), 0x08);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
}

/* Sub-block n of half e. */
MC_INLINE void piece_iq1_m(struct tile_k *t, struct tile_k_sink *k, const void *idx, __m256i (*plus)[2], int e, int n)
{
    struct tile_16 w = octets(idx, 16 * e + 2 * n);
    for (int i = 0; i < 4; i++) w.v[i] = _mm256_or_si256(_mm256_slli_epi16(w.v[i], 3), tile_spread_byte(plus[i % 2][i / 2], n));
    tile_k_put(t, k, 16 * e + 2 * n, w);
}

MC_INLINE void unpack_iq1_m(struct tile_k *t, struct tile_k_sink *k, const struct tile_rows *r)
{
    uint16_t idx[TILE_ROWS][32];
    for (int i = 0; i < TILE_ROWS; i++) indices_iq1_m(idx[i], r->p[i]);
    const void *scratch = codebook_scratch(idx);
    __m256i sc[2];
    tile_load_8(sc, r, AT(iq1_m, sc));
    t->d = _mm256_mul_ps(scale_iq1_m(sc), _mm256_set1_ps(0.125f));
    for (int q = 0; q < 4; q++)
        for (int i = 0; i < 2; i++) {
            /* the four fields of word q, brought to bits 9..11, then 2 * field + 1 */
            const __m256i field = _mm256_mullo_epi16(tile_spread_16(sc[i], q), _mm256_set1_epi64x(0x0001000800400200));
            const __m256i ls =
                _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(field, 8), _mm256_set1_epi16(14)), _mm256_set1_epi16(1));
            t->fix[2 * q + i] = _mm256_add_epi16(_mm256_slli_epi16(ls, 3), ls);
            for (int j = 0; j < 4; j++) t->scale[8 * q + 2 * j + i] = tile_spread_16(ls, j);
        }
    const struct tile_16 qh = tile_load_16(r, AT(iq1_m, qh));
    for (int e = 0; e < 2; e++) {
        __m256i plus[2][2]; /* [A, B][g % 2]: 2 where the shift is positive */
        for (int i = 0; i < 2; i++) {
            const __m256i clear = _mm256_xor_si256(qh.v[2 * e + i], _mm256_set1_epi8(-1));
            plus[i][0] = tile_shr(clear, 2, 2);
            plus[i][1] = tile_shr(clear, 6, 2);
        }
        TILE_FOR_8(piece_iq1_m, t, k, scratch, plus, e);
    }
}
TILE_K_MATMUL(iq1_m, 4, .sub = 2, .group = 2, .fix = true)

void avx2_matmul_iq1(struct kern_table *t)
{
    t->matmul[QUANT_IQ1_S] = matmul_iq1_s;
    t->matmul[QUANT_IQ1_M] = matmul_iq1_m;
}
