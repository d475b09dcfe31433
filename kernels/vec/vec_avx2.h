/* vec_avx2.h - vec.h with ymm registers of 8 lanes; 16 partial sums are two of them. Contracts: vec.h. */
#ifndef KERNELS_VEC_VEC_AVX2_H
#define KERNELS_VEC_VEC_AVX2_H

#include "kernels/f16.h"
#include "platform/base/compiler.h"

#include <immintrin.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { VL = 8, TILE_ROWS = 4, TILE_COLS = 3, ONE_COL_ROWS = 6, TWO_COL_ROWS = 4 };

typedef __m256 vf;

MC_INLINE vf v_zero(void)
{
    return _mm256_setzero_ps();
}
MC_INLINE vf v_set1(float x)
{
    return _mm256_set1_ps(x);
}
MC_INLINE vf v_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
MC_INLINE void v_store(float *p, vf v)
{
    _mm256_storeu_ps(p, v);
}
MC_INLINE vf v_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}
MC_INLINE vf v_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}
MC_INLINE vf v_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}
MC_INLINE vf v_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}
MC_INLINE vf v_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
MC_INLINE vf v_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
MC_INLINE vf v_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
MC_INLINE vf v_abs(vf a)
{
    return _mm256_and_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF)));
}
MC_INLINE vf v_if_less(vf a, vf b, vf x, vf y)
{
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}

MC_INLINE __m256i v_mask(size_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

MC_INLINE vf v_load_part(const float *p, size_t n)
{
    return _mm256_maskload_ps(p, v_mask(n));
}

MC_INLINE void v_store_part(float *p, vf v, size_t n)
{
    _mm256_maskstore_ps(p, v_mask(n), v);
}

/* n halves, the rest 0. AVX2 has no masks for 16-bit elements; tails are rare. */
MC_INLINE __m128i v_halves_part(const void *p, size_t n)
{
    uint16_t h[8] = {0};
    memcpy(h, p, 2 * n);
    return _mm_loadu_si128((const void *)h);
}

MC_INLINE vf v_of_bf16(__m128i h)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

MC_INLINE vf v_load_f16(const void *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128(p));
}
MC_INLINE vf v_load_f16_part(const void *p, size_t n)
{
    return _mm256_cvtph_ps(v_halves_part(p, n));
}
MC_INLINE vf v_load_bf16(const void *p)
{
    return v_of_bf16(_mm_loadu_si128(p));
}
MC_INLINE vf v_load_bf16_part(const void *p, size_t n)
{
    return v_of_bf16(v_halves_part(p, n));
}

MC_INLINE void v_store_f16(void *p, vf v)
{
    _mm_storeu_si128(p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

MC_INLINE void v_store_f16_part(void *p, vf v, size_t n)
{
    uint16_t h[8];
    v_store_f16(h, v);
    memcpy(p, h, 2 * n);
}

MC_INLINE vf v_load_i8(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p)));
}

MC_INLINE void v_store_i8(int8_t *p, vf v)
{
    const __m256i low = _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, /**/
                                         0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    const __m256i t = _mm256_castps_si256(_mm256_add_ps(v, _mm256_set1_ps(0x1.8p23f)));
    const __m256i b = _mm256_shuffle_epi8(t, low);
    _mm_storel_epi64((void *)p, _mm_unpacklo_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1)));
}

MC_INLINE vf v_pow2(vf n)
{
    const __m256i t = _mm256_castps_si256(_mm256_add_ps(n, _mm256_set1_ps(0x1.8p23f)));
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(t, 23), _mm256_set1_epi32(0x3F800000)));
}

MC_INLINE vf v_swap(vf a, int d)
{
    switch (d) {
    case 1:
        return _mm256_permute_ps(a, 0xB1);
    case 2:
        return _mm256_permute_ps(a, 0x4E);
    default:
        return _mm256_permute2f128_ps(a, a, 1);
    }
}

MC_INLINE float v_sum16(const vf parts[2])
{
    const __m256 s8 = _mm256_add_ps(parts[0], parts[1]);
    const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}

/* As in vec_avx512.h: every step adds upper to lower halves of two vectors and packs both results into one. */
MC_INLINE vf v_sum_step4(vf a, vf b)
{
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}

MC_INLINE vf v_sum_step2(vf a, vf b)
{
    const __m256d x = _mm256_castps_pd(a), y = _mm256_castps_pd(b);
    return _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(x, y)), _mm256_castpd_ps(_mm256_unpackhi_pd(x, y)));
}

MC_INLINE vf v_sum_step1(vf a, vf b)
{
    return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xDD));
}

MC_INLINE vf v_sum16_block(const vf *sums, size_t stride)
{
    vf s[VL];
    for (size_t i = 0; i < VL; i++) s[i] = _mm256_add_ps(sums[i], sums[stride + i]); /* s[j] += s[j+8] */
    const vf a = v_sum_step4(s[0], s[4]), b = v_sum_step4(s[1], s[5]);               /* 128-bit lane L: four sums of s[4L] */
    const vf c = v_sum_step4(s[2], s[6]), d = v_sum_step4(s[3], s[7]);
    return v_sum_step1(v_sum_step2(a, b), v_sum_step2(c, d));
}

#include "kernels/vec/vec.h"

#endif
