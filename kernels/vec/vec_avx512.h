/* vec_avx512.h - vec.h with one zmm for the 16 lanes. Contracts: vec.h. */
#ifndef KERNELS_VEC_VEC_AVX512_H
#define KERNELS_VEC_VEC_AVX512_H

#include "kernels/f16.h"
#include "platform/base/compiler.h"

#include <immintrin.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { VL = 16, TILE_ROWS = 4, TILE_COLS = 4, ONE_COL_ROWS = 8, TWO_COL_ROWS = 8 };

typedef __m512 vf;

MC_INLINE vf v_zero(void)
{
    return _mm512_setzero_ps();
}
MC_INLINE vf v_set1(float x)
{
    return _mm512_set1_ps(x);
}
MC_INLINE vf v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
MC_INLINE void v_store(float *p, vf v)
{
    _mm512_storeu_ps(p, v);
}
MC_INLINE vf v_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
MC_INLINE vf v_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
MC_INLINE vf v_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
MC_INLINE vf v_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}
MC_INLINE vf v_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
MC_INLINE vf v_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
MC_INLINE vf v_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
MC_INLINE vf v_abs(vf a)
{
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32(0x7FFFFFFF)));
}

MC_INLINE vf v_if_less(vf a, vf b, vf x, vf y)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}

MC_INLINE __mmask16 v_mask(size_t n)
{
    return (__mmask16)((1u << n) - 1);
}

MC_INLINE vf v_load_part(const float *p, size_t n)
{
    return _mm512_maskz_loadu_ps(v_mask(n), p);
}

MC_INLINE void v_store_part(float *p, vf v, size_t n)
{
    _mm512_mask_storeu_ps(p, v_mask(n), v);
}

MC_INLINE vf v_of_bf16(__m256i h)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

MC_INLINE vf v_load_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}
MC_INLINE vf v_load_f16_part(const void *p, size_t n)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(v_mask(n), p));
}
MC_INLINE vf v_load_bf16(const void *p)
{
    return v_of_bf16(_mm256_loadu_si256(p));
}
MC_INLINE vf v_load_bf16_part(const void *p, size_t n)
{
    return v_of_bf16(_mm256_maskz_loadu_epi16(v_mask(n), p));
}

MC_INLINE void v_store_f16(void *p, vf v)
{
    _mm256_storeu_si256(p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

MC_INLINE void v_store_f16_part(void *p, vf v, size_t n)
{
    _mm256_mask_storeu_epi16(p, v_mask(n), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

MC_INLINE vf v_load_i8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p)));
}

MC_INLINE void v_store_i8(int8_t *p, vf v)
{
    const __m512i t = _mm512_castps_si512(_mm512_add_ps(v, _mm512_set1_ps(0x1.8p23f)));
    _mm_storeu_si128((void *)p, _mm512_cvtepi32_epi8(t));
}

MC_INLINE vf v_pow2(vf n)
{
    const __m512i t = _mm512_castps_si512(_mm512_add_ps(n, _mm512_set1_ps(0x1.8p23f)));
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(t, 23), _mm512_set1_epi32(0x3F800000)));
}

MC_INLINE vf v_swap(vf a, int d)
{
    switch (d) {
    case 1:
        return _mm512_permute_ps(a, 0xB1);
    case 2:
        return _mm512_permute_ps(a, 0x4E);
    case 4:
        return _mm512_shuffle_f32x4(a, a, 0xB1);
    default:
        return _mm512_shuffle_f32x4(a, a, 0x4E);
    }
}

MC_INLINE float v_sum16(const vf parts[1])
{
    const __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(parts[0]), _mm512_extractf32x8_ps(parts[0], 1));
    const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}

/* Each step joins two vectors: the upper halves of what remains of each sum are added to the lower ones, and the two results
 * share a register. s[j] += s[j+8], then +4, +2, +1, as R2 wants. */
MC_INLINE vf v_sum_step8(vf a, vf b)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
}

MC_INLINE vf v_sum_step4(vf a, vf b)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
}

MC_INLINE vf v_sum_step2(vf a, vf b)
{
    const __m512d x = _mm512_castps_pd(a), y = _mm512_castps_pd(b);
    return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
}

MC_INLINE vf v_sum_step1(vf a, vf b)
{
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xDD));
}

MC_INLINE vf v_sum16_block(const vf *s, size_t stride)
{
    (void)stride;                                                                /* one part */
    const vf a = v_sum_step4(v_sum_step8(s[0], s[4]), v_sum_step8(s[8], s[12])); /* 128-bit lane L: four sums of s[4L] */
    const vf b = v_sum_step4(v_sum_step8(s[1], s[5]), v_sum_step8(s[9], s[13]));
    const vf c = v_sum_step4(v_sum_step8(s[2], s[6]), v_sum_step8(s[10], s[14]));
    const vf d = v_sum_step4(v_sum_step8(s[3], s[7]), v_sum_step8(s[11], s[15]));
    return v_sum_step1(v_sum_step2(a, b), v_sum_step2(c, d));
}

#include "kernels/vec/vec.h"

#endif
