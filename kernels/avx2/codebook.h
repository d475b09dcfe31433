/* codebook.h - what the codebook formats share: indices and signs are prepared row by row with wide instructions into a small
 * scratch of all 8 rows, then entries are fetched straight into the lanes of the tile (tile.h). */
#ifndef KERNELS_AVX2_CODEBOOK_H
#define KERNELS_AVX2_CODEBOOK_H

#include "kernels/avx2/tile_q8_k.h"

/* Rows of a scratch array, for tile_load_*. */
MC_INLINE struct tile_rows codebook_rows(const uint8_t *scratch, size_t bytes)
{
    struct tile_rows r;
    for (size_t i = 0; i < TILE_ROWS; i++) r.p[i] = scratch + i * bytes;
    r.ahead = scratch;
    return r;
}

/* The entry that stands for octet (or, of codebooks of four, quad) g of a row; ctx: indices or block rows. */
typedef const void *(*codebook_entry_fn)(const void *ctx, int row, int g);

/* Scratch just written with vectors, to be read as single indices: knowing where they come from, GCC would take them out of the
 * vector registers with vpextrw, at twice the cost of a load (measured: iq1_s 6.5 instead of 9 weights a cycle). */
MC_INLINE const void *codebook_scratch(const void *idx)
{
    MC_OPAQUE_POINTER(idx);
    return idx;
}

MC_INLINE unsigned codebook_index(const void *idx, int i)
{
    return ((const uint16_t *)idx)[i];
}

/* Octets g, g+1 of all rows. */
MC_INLINE struct tile_16 codebook_octets(codebook_entry_fn entry, const void *ctx, int g)
{
    return (struct tile_16){
        {tile_entries(entry(ctx, 0, g), entry(ctx, 1, g), entry(ctx, 4, g), entry(ctx, 5, g)),
         tile_entries(entry(ctx, 2, g), entry(ctx, 3, g), entry(ctx, 6, g), entry(ctx, 7, g)),
         tile_entries(entry(ctx, 0, g + 1), entry(ctx, 1, g + 1), entry(ctx, 4, g + 1), entry(ctx, 5, g + 1)),
         tile_entries(entry(ctx, 2, g + 1), entry(ctx, 3, g + 1), entry(ctx, 6, g + 1), entry(ctx, 7, g + 1))}};
}

MC_INLINE int codebook_int(const void *p)
{
    int v;
    memcpy(&v, p, 4);
    return v;
}

/* Quads n, n+1 of rows r0 and r1. */
MC_INLINE __m128i codebook_quads_of_2(codebook_entry_fn entry, const void *ctx, int r0, int r1, int n)
{
    const __m128i v =
        _mm_insert_epi32(_mm_cvtsi32_si128(codebook_int(entry(ctx, r0, n))), codebook_int(entry(ctx, r0, n + 1)), 1);
    return _mm_insert_epi32(_mm_insert_epi32(v, codebook_int(entry(ctx, r1, n)), 2), codebook_int(entry(ctx, r1, n + 1)), 3);
}

/* Octets g, g+1 of all rows, two quads each. */
MC_INLINE struct tile_16 codebook_quads(codebook_entry_fn entry, const void *ctx, int g)
{
    struct tile_16 w;
    for (int i = 0; i < 4; i++) {
        const int r = i % 2 * 2, n = 2 * (g + i / 2);
        w.v[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(codebook_quads_of_2(entry, ctx, r, r + 1, n)),
                                         codebook_quads_of_2(entry, ctx, r + 4, r + 5, n), 1);
    }
    return w;
}

/* 16 index bytes as int16, with the bits of `high` above them. */
MC_INLINE void codebook_indices_16(uint16_t *idx, const uint8_t *low, __m256i high)
{
    const __m256i v = _mm256_or_si256(_mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)low)), high);
    _mm256_storeu_si256((void *)idx, v);
}

/* 32 7-bit sign codes, one a byte, to sign bytes: bit 7 makes the parity even. */
MC_INLINE __m256i codebook_signs(__m256i code)
{
    const __m256i odd =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
    const __m256i folded = tile_and(_mm256_xor_si256(code, _mm256_srli_epi16(code, 4)), 15);
    return _mm256_or_si256(code, _mm256_shuffle_epi8(odd, folded));
}

/* Four 7-bit codes in the low 28 bits of each of 8 words. */
MC_INLINE __m256i codebook_codes_7(__m256i x)
{
    const __m256i c0 = _mm256_and_si256(x, _mm256_set1_epi32(0x7F));
    const __m256i c1 = _mm256_and_si256(_mm256_slli_epi32(x, 1), _mm256_set1_epi32(0x7F00));
    const __m256i c2 = _mm256_and_si256(_mm256_slli_epi32(x, 2), _mm256_set1_epi32(0x7F0000));
    const __m256i c3 = _mm256_and_si256(_mm256_slli_epi32(x, 3), _mm256_set1_epi32(0x7F000000));
    return _mm256_or_si256(_mm256_or_si256(c0, c1), _mm256_or_si256(c2, c3));
}

/* Magnitudes of octets g, g+1; their signs in bytes j, j+1 of each lane. Into the tile they go as +-magnitude + bias. */
MC_INLINE void codebook_put(struct tile_k *t, struct tile_k_sink *k, int g, struct tile_16 w, const __m256i signs[2], int j,
                            int bias)
{
    struct tile_16 minus;
    for (int i = 0; i < 4; i++) minus.v[i] = tile_bits(signs[i % 2], j + i / 2);
    if (k->n) {
        tile_k_put_split(t, k, g, w, minus);
        return;
    }
    for (int i = 0; i < 4; i++) {
        const __m256i less = _mm256_sub_epi8(minus.v[i], _mm256_set1_epi8((char)bias));
        w.v[i] = _mm256_sub_epi8(_mm256_xor_si256(w.v[i], minus.v[i]), less);
    }
    tile_k_put(t, k, g, w);
}

/* Nibbles of bytes 2q, 2q+1 of each lane, low one first, as four int16 2 * nibble + 1. */
MC_INLINE __m256i codebook_odd_scales(__m256i v, int q)
{
    const long long low = (long long)(0xFF01FF01FF00FF00 + 0x0002000200020002u * (unsigned)q), high = low + 0x0008000800080008;
    const __m256i pair = _mm256_shuffle_epi8(v, _mm256_setr_epi64x(low, high, low, high));
    const __m256i field = _mm256_srli_epi16(_mm256_mullo_epi16(pair, _mm256_set1_epi32(0x00010010)), 3);
    return _mm256_or_si256(_mm256_and_si256(field, _mm256_set1_epi16(30)), _mm256_set1_epi16(1));
}

#endif
