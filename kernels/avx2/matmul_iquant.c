/* matmul_iquant.c - iq2_xxs, iq2_xs, iq2_s, iq3_xxs, iq3_s and iq4_xs with Q8_K activations (quants.md 4.4).
 *
 * Magnitudes come from a codebook; with the sign applied and a bias (43, 62 or 15, the largest magnitude) added they are
 * unsigned. */
#include "kernels/avx2/codebook.h"
#include "kernels/avx2/matmul.h"
#include "kernels/avx2/tile_q8_k.h"
#include "kernels/quant/blocks.h"
#include "kernels/quant/grids.h"

#define AT(type, field) offsetof(struct block_##type, field)

enum { BIAS_IQ2 = 43, BIAS_IQ3_XXS = 62, BIAS_IQ3_S = 15 };

/* Scales of sub-blocks 4q..4q+3, four int16 a lane. */
MC_INLINE void set_scales(struct tile_k *t, int q, int i, __m256i ls, int bias)
{
    t->fix[2 * q + i] = _mm256_mullo_epi16(ls, _mm256_set1_epi16((short)bias));
    for (int j = 0; j < 4; j++) t->scale[8 * q + 2 * j + i] = tile_spread_16(ls, j);
}

/* 2 * nibble + 1 for n sub-blocks, two in a byte at `off`. */
MC_INLINE void nibble_scales(struct tile_k *t, const struct tile_rows *r, size_t off, int n, int bias)
{
    __m256i s[2];
    tile_load_8(s, r, off);
    for (int q = 0; q < n / 4; q++)
        for (int i = 0; i < 2; i++) set_scales(t, q, i, codebook_odd_scales(s[i], q), bias);
}

/* Eight words of 4 sign codes and a scale to 32 sign bytes and eight int16 scales. */
MC_INLINE void signs_and_scales(uint8_t signs[32], int16_t scale[8], __m256i x)
{
    const __m256i ls = _mm256_add_epi32(_mm256_slli_epi32(_mm256_srli_epi32(x, 28), 1), _mm256_set1_epi32(1));
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(ls, ls), 0x08);
    _mm256_storeu_si256((void *)signs, codebook_signs(codebook_codes_7(x)));
    _mm_storeu_si128((void *)scale, _mm256_castsi256_si128(packed));
}

MC_INLINE void scratch_scales(struct tile_k *t, int16_t (*scale)[8], int bias)
{
    const struct tile_rows rows = codebook_rows((const uint8_t *)scale, sizeof scale[0]);
    const struct tile_16 s = tile_load_16(&rows, 0);
    for (int q = 0; q < 2; q++)
        for (int i = 0; i < 2; i++) set_scales(t, q, i, s.v[2 * q + i], bias);
}

/* ---- entries of eight magnitudes ---- */

/* Octets 8e+2n, 8e+2n+1. */
MC_INLINE void two_octets(struct tile_k *t, struct tile_k_sink *k, codebook_entry_fn entry, const void *ctx,
                          const __m256i signs[2], int e, int n)
{
    codebook_put(t, k, 8 * e + 2 * n, codebook_octets(entry, ctx, 8 * e + 2 * n), signs, 2 * n, BIAS_IQ2);
}

/* Octets 8e .. 8e+7; sign bytes at `off` of the rows `signs`. */
MC_INLINE void eight_octets(struct tile_k *t, struct tile_k_sink *k, codebook_entry_fn entry, const void *ctx,
                            const struct tile_rows *signs, size_t off, int e)
{
    __m256i s[2];
    tile_load_8(s, signs, off + (size_t)(8 * e));
    TILE_FOR_4(two_octets, t, k, entry, ctx, s, e);
}

MC_INLINE const void *entry_iq2_xxs(const void *rows, int row, int g)
{
    const struct tile_rows *r = rows;
    return quant_iq2_xxs_grid[r->p[row][(int)AT(iq2_xxs, sub) + g / 4 * 8 + g % 4]];
}

MC_INLINE void unpack_iq2_xxs(struct tile_k *t, struct tile_k_sink *k, const struct tile_rows *r)
{
    uint8_t signs[TILE_ROWS][32];
    int16_t scale[TILE_ROWS][8];
    for (int i = 0; i < TILE_ROWS; i++) {
        const uint8_t *p = r->p[i] + AT(iq2_xxs, sub);
        const __m256 v0 = _mm256_loadu_ps((const void *)p), v1 = _mm256_loadu_ps((const void *)(p + 32));
        const __m256i x = _mm256_permute4x64_epi64(_mm256_castps_si256(_mm256_shuffle_ps(v0, v1, 0xDD)), 0xD8); /* odd words */
        signs_and_scales(signs[i], scale[i], x);
    }
    scratch_scales(t, scale, BIAS_IQ2);
    t->d = _mm256_mul_ps(tile_f16(r, AT(iq2_xxs, d)), _mm256_set1_ps(0.125f));
    const struct tile_rows rows = codebook_rows(signs[0], sizeof signs[0]);
    TILE_FOR_4(eight_octets, t, k, entry_iq2_xxs, r, &rows, 0);
}
TILE_K_MATMUL(iq2_xxs, 4, .sub = 4, .group = 1, .fix = true, .split = true)

MC_INLINE const void *entry_iq2_xs(const void *idx, int row, int g)
{
    return quant_iq2_xs_grid[codebook_index(idx, 32 * row + g)];
}

MC_INLINE void unpack_iq2_xs(struct tile_k *t, struct tile_k_sink *k, const struct tile_rows *r)
{
    uint16_t idx[TILE_ROWS][32];
    uint8_t signs[TILE_ROWS][32];
    for (int i = 0; i < TILE_ROWS; i++) {
        const uint8_t *p = r->p[i] + AT(iq2_xs, q);
        const __m256i v0 = _mm256_loadu_si256((const void *)p), v1 = _mm256_loadu_si256((const void *)(p + 32));
        const __m256i low = _mm256_set1_epi16(511);
        _mm256_storeu_si256((void *)idx[i], _mm256_and_si256(v0, low));
        _mm256_storeu_si256((void *)(idx[i] + 16), _mm256_and_si256(v1, low));
        const __m256i code = _mm256_packus_epi16(_mm256_srli_epi16(v0, 9), _mm256_srli_epi16(v1, 9));
        _mm256_storeu_si256((void *)signs[i], codebook_signs(_mm256_permute4x64_epi64(code, 0xD8)));
    }
    nibble_scales(t, r, AT(iq2_xs, s), 16, BIAS_IQ2);
    t->d = _mm256_mul_ps(tile_f16(r, AT(iq2_xs, d)), _mm256_set1_ps(0.125f));
    const struct tile_rows rows = codebook_rows(signs[0], sizeof signs[0]);
    TILE_FOR_4(eight_octets, t, k, entry_iq2_xs, codebook_scratch(idx), &rows, 0);
}
TILE_K_MATMUL(iq2_xs, 4, .sub = 2, .group = 1, .fix = true, .split = true)

MC_INLINE const void *entry_iq2_s(const void *idx, int row, int g)
{
    return quant_iq2_s_grid[codebook_index(idx, 32 * row + g)];
}

/* 32 indices of a row: bits 2(g mod 4) of qh[g/4] above byte g of lo. */
MC_INLINE void indices_iq2_s(uint16_t idx[32], const uint8_t *p)
{
    const __m256i qh = tile_broadcast_8(p + AT(iq2_s, qh));
    for (int e = 0; e < 2; e++) {
        const long long j0 = (long long)0xFF00FF00FF00FF00 + 0x0004000400040004 * e, step = 0x0001000100010001;
        const __m256i byte = _mm256_shuffle_epi8(qh, _mm256_setr_epi64x(j0, j0 + step, j0 + 2 * step, j0 + 3 * step));
        const __m256i high = _mm256_mullo_epi16(byte, _mm256_set1_epi64x(0x0004001000400100)); /* << 8, 6, 4, 2 */
        codebook_indices_16(idx + 16 * e, p + AT(iq2_s, lo) + 16 * e, _mm256_and_si256(high, _mm256_set1_epi16(0x0300)));
    }
}

MC_INLINE void unpack_iq2_s(struct tile_k *t, struct tile_k_sink *k, const struct tile_rows *r)
{
    uint16_t idx[TILE_ROWS][32];
    for (int i = 0; i < TILE_ROWS; i++) indices_iq2_s(idx[i], r->p[i]);
    nibble_scales(t, r, AT(iq2_s, s), 16, BIAS_IQ2);
    t->d = _mm256_mul_ps(tile_f16(r, AT(iq2_s, d)), _mm256_set1_ps(0.125f));
    TILE_FOR_4(eight_octets, t, k, entry_iq2_s, codebook_scratch(idx), r, AT(iq2_s, sg));
}
TILE_K_MATMUL(iq2_s, 4, .sub = 2, .group = 1, .fix = true, .split = true)

/* ---- entries of four magnitudes ---- */

MC_INLINE void four_quads(struct tile_k *t, struct tile_k_sink *k, codebook_entry_fn entry, const void *ctx,
                          const __m256i signs[2], int bias, int e, int n)
{
    codebook_put(t, k, 8 * e + 2 * n, codebook_quads(entry, ctx, 8 * e + 2 * n), signs, 2 * n, bias);
}

/* Octets 8e .. 8e+7; sign bytes at `off` of the rows `signs`. */
MC_INLINE void sixteen_quads(struct tile_k *t, struct tile_k_sink *k, codebook_entry_fn entry, const void *ctx,
                             const struct tile_rows *signs, size_t off, int bias, int e)
{
    __m256i s[2];
    tile_load_8(s, signs, off + (size_t)(8 * e));
    TILE_FOR_4(four_quads, t, k, entry, ctx, s, bias, e);
}

MC_INLINE const void *entry_iq3_xxs(const void *rows, int row, int n)
{
    const struct tile_rows *r = rows;
    return quant_iq3_xxs_grid[r->p[row][(int)AT(iq3_xxs, idx) + n]];
}

MC_INLINE void unpack_iq3_xxs(struct tile_k *t, struct tile_k_sink *k, const struct tile_rows *r)
{
    uint8_t signs[TILE_ROWS][32];
    int16_t scale[TILE_ROWS][8];
    for (int i = 0; i < TILE_ROWS; i++)
        signs_and_scales(signs[i], scale[i], _mm256_loadu_si256((const void *)(r->p[i] + AT(iq3_xxs, x))));
    scratch_scales(t, scale, BIAS_IQ3_XXS);
    t->d = _mm256_mul_ps(tile_f16(r, AT(iq3_xxs, d)), _mm256_set1_ps(0.25f));
    const struct tile_rows rows = codebook_rows(signs[0], sizeof signs[0]);
    TILE_FOR_4(sixteen_quads, t, k, entry_iq3_xxs, r, &rows, 0, BIAS_IQ3_XXS);
}
TILE_K_MATMUL(iq3_xxs, 4, .sub = 4, .group = 1, .fix = true, .split = true)

/* 64 indices of a row: bit n mod 8 of qh[n/8] above byte n of lo. */
MC_INLINE void indices_iq3_s(uint16_t idx[64], const uint8_t *p)
{
    const __m256i qh = tile_broadcast_8(p + AT(iq3_s, qh));
    const __m256i bit = _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128);
    for (int e = 0; e < 4; e++) {
        const long long j0 = (long long)0xFF00FF00FF00FF00 + 0x0002000200020002 * e, j1 = j0 + 0x0001000100010001;
        const __m256i byte = _mm256_shuffle_epi8(qh, _mm256_setr_epi64x(j0, j0, j1, j1));
        const __m256i set = _mm256_cmpeq_epi16(_mm256_and_si256(byte, bit), bit);
        codebook_indices_16(idx + 16 * e, p + AT(iq3_s, lo) + 16 * e, _mm256_and_si256(set, _mm256_set1_epi16(0x0100)));
    }
}

MC_INLINE const void *entry_iq3_s(const void *idx, int row, int n)
{
    return quant_iq3_s_grid[codebook_index(idx, 64 * row + n)];
}

MC_INLINE void unpack_iq3_s(struct tile_k *t, struct tile_k_sink *k, const struct tile_rows *r)
{
    uint16_t idx[TILE_ROWS][64];
    for (int i = 0; i < TILE_ROWS; i++) indices_iq3_s(idx[i], r->p[i]);
    nibble_scales(t, r, AT(iq3_s, s), 8, BIAS_IQ3_S);
    t->d = tile_f16(r, AT(iq3_s, d));
    TILE_FOR_4(sixteen_quads, t, k, entry_iq3_s, codebook_scratch(idx), r, AT(iq3_s, sg), BIAS_IQ3_S);
}
TILE_K_MATMUL(iq3_s, 4, .sub = 4, .group = 4, .fix = true, .split = true)

/* ---- iq4_xs: nibbles through a table ---- */

/* ls of sub-blocks 4q..4q+3 from a lane d, sh, sl[4]: low nibble from sl, two bits from sh, minus 32. */
MC_INLINE __m256i scales_iq4_xs(__m256i head, int q)
{
    const long long at = (long long)(0xFF05FF05FF04FF04 + 0x0002000200020002u * (unsigned)q), at_high = at + 0x0008000800080008;
    const __m256i pair = _mm256_shuffle_epi8(head, _mm256_setr_epi64x(at, at_high, at, at_high));
    const __m256i low = _mm256_srli_epi16(_mm256_mullo_epi16(pair, _mm256_set1_epi32(0x00010010)), 4);
    const __m256i sh = _mm256_srli_epi16(tile_spread_16(head, 1), 8 * q);
    const __m256i high = _mm256_srli_epi16(_mm256_mullo_epi16(sh, _mm256_set1_epi64x(0x0040010004001000)), 8);
    const __m256i field =
        _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi16(15)), _mm256_and_si256(high, _mm256_set1_epi16(48)));
    return _mm256_sub_epi16(field, _mm256_set1_epi16(32));
}

MC_INLINE void piece_iq4_xs(struct tile_k *t, struct tile_k_sink *k, const struct tile_rows *r, int j)
{
    const __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)quant_iq4_values));
    const struct tile_16 q = tile_load_16(r, AT(iq4_xs, qs) + (size_t)(16 * j));
    struct tile_16 w;
    for (int i = 0; i < 4; i++) w.v[i] = _mm256_shuffle_epi8(table, tile_and(q.v[i], 15));
    tile_k_put(t, k, 4 * j, w);
    for (int i = 0; i < 4; i++) w.v[i] = _mm256_shuffle_epi8(table, tile_shr(q.v[i], 4, 15));
    tile_k_put(t, k, 4 * j + 2, w);
}

MC_INLINE void unpack_iq4_xs(struct tile_k *t, struct tile_k_sink *k, const struct tile_rows *r)
{
    __m256i head[2];
    tile_load_8(head, r, 0);
    for (int q = 0; q < 2; q++)
        for (int i = 0; i < 2; i++) {
            const __m256i ls = scales_iq4_xs(head[i], q);
            for (int j = 0; j < 4; j++) t->scale[8 * q + 2 * j + i] = tile_spread_16(ls, j);
        }
    t->d = tile_f16(r, AT(iq4_xs, d));
    TILE_FOR_8(piece_iq4_xs, t, k, r);
}
TILE_K_MATMUL(iq4_xs, 3, .sub = 4, .group = 1, .is_signed = true)

void avx2_matmul_iquant(struct kern_table *t)
{
    t->matmul[QUANT_IQ2_XXS] = matmul_iq2_xxs;
    t->matmul[QUANT_IQ2_XS] = matmul_iq2_xs;
    t->matmul[QUANT_IQ2_S] = matmul_iq2_s;
    t->matmul[QUANT_IQ3_XXS] = matmul_iq3_xxs;
    t->matmul[QUANT_IQ3_S] = matmul_iq3_s;
    t->matmul[QUANT_IQ4_XS] = matmul_iq4_xs;
}
