/* quantize.c - float rows to 8-bit rows (quants.md 3; row layout: kernels.h), the bytes of ref/quantize.c.
 *
 * Largest magnitudes are found in any order (a maximum is exact); Q8_K needs the sign of the first of them, which a second look
 * finds. Codes stay within +-127 by construction: |x| * (127 / amax) rounds to at most 127. */
#include "kernels/avx2/matmul.h"
#include "platform/base/compiler.h"

#include <assert.h>
#include <immintrin.h>

#define SMALLEST_SCALED 0x1p-119f

/* Rows are read through const views; their writer takes the const away in this one place. */
#define WRITABLE(type, p) ((type *)(uintptr_t)(p))

/* Magnitudes as bit patterns: these sort as the numbers do, and a NaN above all of them, so it is never lost. */
MC_INLINE __m256i magnitudes(const float *x)
{
    return _mm256_and_si256(_mm256_loadu_si256((const void *)x), _mm256_set1_epi32(0x7FFFFFFF));
}

MC_INLINE float max_lane(__m256i v)
{
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_max_epi32(m, _mm_unpackhi_epi64(m, m));
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_max_epi32(m, _mm_srli_epi64(m, 32))));
}

MC_INLINE float max_magnitude(const float *x, int n)
{
    __m256i m = _mm256_setzero_si256();
    for (int i = 0; i < n; i += 8) m = _mm256_max_epi32(m, magnitudes(x + i));
    return max_lane(m);
}

/* 32 codes, nearest even, in order. */
MC_INLINE __m256i codes_32(const float *x, __m256 scale)
{
    __m256i v[4];
    for (int i = 0; i < 4; i++) v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), scale));
    const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Sums of four adjacent codes. */
MC_INLINE __m256i sums_of_4(__m256i q)
{
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

MC_INLINE float through_f16(float f)
{
    return _cvtsh_ss(_cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT));
}

static void quantize_q8_0(void *row, const float *x, size_t k, size_t i0, size_t i1)
{
    const struct kern_q8_0 v = kern_q8_0_view(row, k);
    assert(i0 % 32 == 0 && i1 % 32 == 0 && i1 <= k);
    for (size_t b = i0 / 32; b < i1 / 32; b++) {
        const float amax = max_magnitude(x + 32 * b, 32);
        const float d = amax / 127.0f, inv = amax < SMALLEST_SCALED ? 0 : 127.0f / amax;
        const __m256i q = codes_32(x + 32 * b, _mm256_set1_ps(inv)), s4 = sums_of_4(q);
        __m128i s = _mm_add_epi32(_mm256_castsi256_si128(s4), _mm256_extracti128_si256(s4, 1));
        s = _mm_hadd_epi32(s, s);
        const int sum = _mm_cvtsi128_si32(_mm_hadd_epi32(s, s));
        _mm256_storeu_si256(WRITABLE(__m256i, v.q + 32 * b), q);
        WRITABLE(float, v.d)[b] = through_f16(d);
        WRITABLE(int16_t, v.sum32)[b] = (int16_t)sum;
        WRITABLE(float, v.s)[b] = through_f16(d * (float)sum);
    }
}

/* The first of the 256 values whose magnitude is amax, with its sign. */
MC_INLINE float first_of_magnitude(const float *x, float amax)
{
    for (int i = 0; i < 256; i += 8) {
        const __m256i hit = _mm256_cmpeq_epi32(magnitudes(x + i), _mm256_castps_si256(_mm256_set1_ps(amax)));
        const unsigned mask = (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(hit));
        if (mask) return x[i + __builtin_ctz(mask)];
    }
    return 0;
}

/* Sums of 8, 16 and 32 codes of block b. */
MC_INLINE void write_sums(struct kern_q8_k v, size_t b)
{
    for (int i = 0; i < 2; i++) { /* 128 codes: 16 sums of eight */
        __m256i s4[4];
        for (int j = 0; j < 4; j++)
            s4[j] = sums_of_4(_mm256_loadu_si256((const void *)(v.q + 256 * b + 128 * (size_t)i + 32 * (size_t)j)));
        const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7), one = _mm256_set1_epi16(1);
        const __m256i half[2] = {_mm256_hadd_epi32(s4[0], s4[1]), _mm256_hadd_epi32(s4[2], s4[3])};
        /* 32-bit pieces of two sums each, 0a 1a 2a 3a, 0b 1b 2b 3b; the order makes it 0a 0b 1a 1b ... */
        const __m256i sums8 = _mm256_permutevar8x32_epi32(_mm256_packs_epi32(half[0], half[1]), order);
        const __m256i sums16 = _mm256_madd_epi16(sums8, one); /* 8 of them, int32 */
        const __m256i packed16 = _mm256_permute4x64_epi64(_mm256_packs_epi32(sums16, sums16), 0x08);
        const __m128i sums32 = _mm_madd_epi16(_mm256_castsi256_si128(packed16), _mm_set1_epi16(1));
        _mm256_storeu_si256(WRITABLE(__m256i, v.sum8 + 32 * b + 16 * i), sums8);
        _mm_storeu_si128(WRITABLE(__m128i, v.sum16 + 16 * b + 8 * i), _mm256_castsi256_si128(packed16));
        _mm_storel_epi64(WRITABLE(__m128i, v.sum32 + 8 * b + 4 * i), _mm_packs_epi32(sums32, sums32));
    }
}

static void quantize_q8_k(void *row, const float *x, size_t k, size_t i0, size_t i1)
{
    const struct kern_q8_k v = kern_q8_k_view(row, k);
    assert(i0 % 256 == 0 && i1 % 256 == 0 && i1 <= k);
    for (size_t b = i0 / 256; b < i1 / 256; b++) {
        const float *p = x + 256 * b;
        const float amax = max_magnitude(p, 256);
        const float iscale = amax < SMALLEST_SCALED ? 0 : -127.0f / first_of_magnitude(p, amax);
        for (size_t i = 0; i < 256; i += 32)
            _mm256_storeu_si256(WRITABLE(__m256i, v.q + 256 * b + i), codes_32(p + i, _mm256_set1_ps(iscale)));
        WRITABLE(float, v.d)[b] = amax < SMALLEST_SCALED ? 0 : 1.0f / iscale;
        write_sums(v, b);
    }
}

void avx2_quantize(struct kern_table *t)
{
    t->quantize[QUANT_ACT_Q8_0] = quantize_q8_0;
    t->quantize[QUANT_ACT_Q8_K] = quantize_q8_k;
}
