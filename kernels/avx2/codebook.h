/* codebook.h - what the codebook formats share: indices and signs are prepared row by row with wide instructions into a small
 * scratch of all 8 rows, then entries are fetched straight into the lanes of the tile (tile.h). */
#ifndef KERNELS_AVX2_CODEBOOK_H
#define KERNELS_AVX2_CODEBOOK_H

#include "kernels/avx2/tile.h"

/* Rows of a scratch array, for tile_load_*. */
#define CODEBOOK_ROWS(array)                                                                                                   \
    (struct tile_rows)                                                                                                         \
    {                                                                                                                          \
        {                                                                                                                      \
            (const uint8_t *)(array)[0], (const uint8_t *)(array)[1], (const uint8_t *)(array)[2],                             \
                (const uint8_t *)(array)[3], (const uint8_t *)(array)[4], (const uint8_t *)(array)[5],                         \
                (const uint8_t *)(array)[6], (const uint8_t *)(array)[7]                                                       \
        }                                                                                                                      \
    }

/* Rows of A and B in lane order. */
enum { A0 = 0, A1 = 1, A2 = 4, A3 = 5, B0 = 2, B1 = 3, B2 = 6, B3 = 7 };

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

/* +-magnitude + bias, the signs in byte j of each lane. */
MC_INLINE __m256i codebook_signed(__m256i magnitude, __m256i signs, int j, int bias)
{
    const __m256i minus = tile_bits(signs, j);
    return _mm256_sub_epi8(_mm256_xor_si256(magnitude, minus), _mm256_sub_epi8(minus, _mm256_set1_epi8((char)bias)));
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
