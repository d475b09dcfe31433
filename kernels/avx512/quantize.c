/* quantize.c - float rows to 8-bit rows (quants.md 3.1 "simd", 3.2, 3.3; row layout: kernels.h). Equal to the scalar twin in
 * every bit: the largest magnitude does not depend on the order, and everything after it is element by element. */
#include "kernels/avx512/matmul.h"
#include "platform/base/compiler.h"

#include <assert.h>
#include <immintrin.h>
#include <string.h>

#define SMALLEST_SCALED 0x1p-119f

/* Rows are read through const views; their writer takes the const away in this one place. */
#define WRITABLE(type, p) ((type *)(uintptr_t)(p))

/* Magnitudes as bit patterns: these sort as the numbers do, and a NaN above all of them, so it is never lost. */
MC_INLINE __m512i magnitudes(__m512 v)
{
    return _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7FFFFFFF));
}

MC_INLINE float largest(__m512i magnitudes)
{
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(_mm512_reduce_max_epi32(magnitudes))));
}

/* Nearest even, saturated to bytes; |v| is at most 127 apart from the last place. */
MC_INLINE __m128i codes16(__m512 v)
{
    return _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(v));
}

MC_INLINE float f16_round(float v)
{
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtps_ph(_mm_set_ss(v), _MM_FROUND_TO_NEAREST_INT)));
}

static void quantize_q8_0(void *row, const float *x, size_t k, size_t i0, size_t i1)
{
    const struct kern_q8_0 v = kern_q8_0_view(row, k);
    assert(i0 % 32 == 0 && i1 % 32 == 0 && i1 <= k);
    for (size_t b = i0 / 32; b < i1 / 32; b++) {
        const __m512 lo = _mm512_loadu_ps(x + 32 * b), hi = _mm512_loadu_ps(x + 32 * b + 16);
        const float amax = largest(_mm512_max_epi32(magnitudes(lo), magnitudes(hi)));
        const float d = amax / 127.0f, inv = amax < SMALLEST_SCALED ? 0 : 127.0f / amax;
        const __m512 scale = _mm512_set1_ps(inv);
        const __m256i q = _mm256_set_m128i(codes16(_mm512_mul_ps(hi, scale)), codes16(_mm512_mul_ps(lo, scale)));
        const __m256i four = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), q);
        const __m128i two = _mm_add_epi32(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
        const __m128i one = _mm_add_epi32(two, _mm_unpackhi_epi64(two, two));
        const int sum = _mm_cvtsi128_si32(one) + _mm_extract_epi32(one, 1);
        _mm256_storeu_si256((void *)(uintptr_t)(v.q + 32 * b), q);
        WRITABLE(float, v.d)[b] = f16_round(d);
        WRITABLE(int16_t, v.sum32)[b] = (int16_t)sum;
        WRITABLE(float, v.s)[b] = f16_round(d * (float)sum);
    }
}

/* The element of largest magnitude, with its sign; among equals the first one. */
MC_INLINE float dominant(const float x[256], float *amax)
{
    __m512i most = _mm512_setzero_si512();
    for (unsigned i = 0; i < 256; i += 16) most = _mm512_max_epi32(most, magnitudes(_mm512_loadu_ps(x + i)));
    *amax = largest(most);
    most = _mm512_castps_si512(_mm512_set1_ps(*amax));
    for (unsigned i = 0; i < 256; i += 16) {
        const __mmask16 here = _mm512_cmpeq_epi32_mask(magnitudes(_mm512_loadu_ps(x + i)), most);
        if (here) return x[i + (unsigned)__builtin_ctz(here)];
    }
    return 0;
}

/* 64 codes: sums of 8, 16 and 32. */
MC_INLINE void write_sums(struct kern_q8_k v, size_t i, __m512i q)
{
    const __m512i four = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), q);
    const __m512i eight = _mm512_add_epi32(four, _mm512_srli_epi64(four, 32)); /* low half of each qword */
    const __m512i sixteen = _mm512_add_epi32(eight, _mm512_shuffle_epi32(eight, _MM_PERM_BADC));
    const __m512i thirty = _mm512_add_epi32(sixteen, _mm512_permutex_epi64(sixteen, 0x4E));
    const __m128i s8 = _mm512_cvtepi64_epi16(eight), s16 = _mm512_cvtepi64_epi16(sixteen), s32 = _mm512_cvtepi64_epi16(thirty);
    const int64_t sums16 =
        _mm_cvtsi128_si64(_mm_shuffle_epi8(s16, _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 0, 0, 0, 0, 0, 0, 0, 0)));
    const int32_t sums32 =
        _mm_cvtsi128_si32(_mm_shuffle_epi8(s32, _mm_setr_epi8(0, 1, 8, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)));
    _mm_storeu_si128((void *)(uintptr_t)(v.sum8 + i / 8), s8);
    memcpy(WRITABLE(int16_t, v.sum16) + i / 16, &sums16, 8);
    memcpy(WRITABLE(int16_t, v.sum32) + i / 32, &sums32, 4);
}

static void quantize_q8_k(void *row, const float *x, size_t k, size_t i0, size_t i1)
{
    const struct kern_q8_k v = kern_q8_k_view(row, k);
    assert(i0 % 256 == 0 && i1 % 256 == 0 && i1 <= k);
    for (size_t b = i0 / 256; b < i1 / 256; b++) {
        float amax;
        const float mx = dominant(x + 256 * b, &amax);
        const bool tiny = amax < SMALLEST_SCALED;
        const float iscale = tiny ? 0 : -127.0f / mx;
        const __m512 scale = _mm512_set1_ps(iscale);
        for (size_t i = 256 * b; i < 256 * b + 256; i += 64) {
            __m512i q = _mm512_castsi128_si512(codes16(_mm512_mul_ps(_mm512_loadu_ps(x + i), scale)));
            q = _mm512_inserti32x4(q, codes16(_mm512_mul_ps(_mm512_loadu_ps(x + i + 16), scale)), 1);
            q = _mm512_inserti32x4(q, codes16(_mm512_mul_ps(_mm512_loadu_ps(x + i + 32), scale)), 2);
            q = _mm512_inserti32x4(q, codes16(_mm512_mul_ps(_mm512_loadu_ps(x + i + 48), scale)), 3);
            _mm512_storeu_si512((void *)(uintptr_t)(v.q + i), q);
            write_sums(v, i, q);
        }
        WRITABLE(float, v.d)[b] = tiny ? 0 : 1.0f / iscale;
    }
}

void avx512_init_quantize(struct kern_table *t)
{
    t->quantize[QUANT_ACT_Q8_0] = quantize_q8_0;
    t->quantize[QUANT_ACT_Q8_K] = quantize_q8_k;
}
