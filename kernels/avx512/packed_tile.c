/* packed_tile.c - an unpacked tile of 16 rows x 256 columns of weights times any number of columns of activations.
 *
 * The bytes no longer know their format: three shapes of sums (a float step for each 32 or 16 columns; an integer scale for
 * each 16 or 32; no scales) are all there is. Eight columns at a time keep their sums in registers; y itself is the float
 * accumulator between tiles. */
#include "kernels/avx512/packed.h"

/* Every column reads 256 bytes of a row of its own, where the hardware does not see a stream. */
MC_INLINE void ask_for(const void *const *x, size_t i0, size_t cols)
{
    for (size_t c = 0; c < cols; c++)
        for (size_t i = 0; i < 256; i += 64) _mm_prefetch((const char *)x[c] + i0 + i, _MM_HINT_T0);
}

/* ---- float steps (q8_0 rows) ---- */

struct steps_at {
    size_t q, d, sum, s;
};

MC_INLINE __m512i bias_sum_16(const char *q, int bias) /* of 16 activations, times -bias */
{
    const __m128i z = _mm_setzero_si128();
    __m128i s = _mm_dpbusd_epi32(z, _mm_set1_epi8((char)bias), _mm_loadu_si128((const void *)q));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1));
    s = _mm_sub_epi32(z, _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E)));
    return _mm512_broadcastd_epi32(s);
}

MC_INLINE void steps_cols(const struct packed_tile *t, struct packed_steps law, unsigned step, unsigned cols, float *const *y,
                          size_t r0, const void *const *x, struct steps_at at, size_t i0, size_t n)
{
    const __m512i minus_bias = _mm512_set1_epi32((uint16_t)-law.bias);
    const char *row[8];
    __m512 acc[8];
    MC_UNROLL for (unsigned c = 0; c < cols; c++)
    {
        row[c] = x[c];
        acc[c] = i0 ? _mm512_loadu_ps(y[c] + r0) : _mm512_setzero_ps();
    }
    for (size_t s = 0; s < n / step; s++) {
        const size_t b = s * step / 32;
        __m512i sum[8];
        MC_UNROLL for (unsigned c = 0; c < cols; c++)
        {
            sum[c] = step == 16 ? bias_sum_16(row[c] + at.q + 16 * s, law.bias)
                                : _mm512_dpwssd_epi32(_mm512_setzero_si512(), minus_bias, dword_at(row[c] + at.sum + 2 * b));
        }
        MC_UNROLL for (unsigned v = 0; v < step / 4; v++)
        {
            const __m512i u = line_at(t->q[s * step / 4 + v]);
            MC_UNROLL for (unsigned c = 0; c < cols; c++) sum[c] =
                _mm512_dpbusd_epi32(sum[c], u, dword_at(row[c] + at.q + s * step + 4 * v));
        }
        MC_UNROLL for (unsigned c = 0; c < cols; c++)
        {
            const __m512 d = _mm512_mul_ps(_mm512_load_ps(t->d[s]), float_at(row[c] + at.d + 4 * b));
            acc[c] = _mm512_fmadd_ps(d, _mm512_cvtepi32_ps(sum[c]), acc[c]);
            if (law.minimum) acc[c] = _mm512_fmadd_ps(_mm512_load_ps(t->m[b]), float_at(row[c] + at.s + 4 * b), acc[c]);
        }
    }
    MC_UNROLL for (unsigned c = 0; c < cols; c++) _mm512_storeu_ps(y[c] + r0, acc[c]);
}

#define CASE(n)                                                                                                                \
    case n:                                                                                                                    \
        steps_cols(t, law, step, n, y, r0, x, at, i0, width);                                                                  \
        break;
MC_INLINE void steps_walk(const struct packed_tile *t, struct packed_steps law, unsigned step, float *const *y, size_t r0,
                          const void *const *x, struct steps_at at, size_t i0, size_t width, size_t cols)
{
    for (size_t c = 0; c < cols; c += 8, x += 8, y += 8) {
        if (c + 16 <= cols) ask_for(x + 8, i0, 8);
        switch (cols - c) {
            CASE(1)
            CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) default : steps_cols(t, law, step, 8, y, r0, x, at, i0, width);
            break;
        }
    }
}
#undef CASE

void avx512_packed_steps_tile(const struct packed_tile *t, struct packed_steps law, float *const *y, size_t r0,
                              const void *const *x, size_t k, size_t i0, size_t n, size_t cols)
{
    const size_t d = KERN_PAD(k), sum = d + KERN_PAD(k / 32 * 4), s = sum + KERN_PAD(k / 32 * 2);
    const struct steps_at at = {i0, d + i0 / 8, sum + i0 / 16, s + i0 / 8};
    if (law.step == 32)
        steps_walk(t, law, 32, y, r0, x, at, i0, n, cols);
    else
        steps_walk(t, law, 16, y, r0, x, at, i0, n, cols);
}

/* ---- integer scales (q8_K rows) ---- */

struct block_at {
    size_t q, d, sums;
};

MC_INLINE void block_cols(const struct packed_tile *t, struct packed_block law, unsigned sub, unsigned cols, float *const *y,
                          size_t r0, const void *const *x, struct block_at at, bool first)
{
    const unsigned run = sub == 16 ? 16 : 32; /* columns without a loop */
    const char *row[8];
    __m512i total[8], pairs[8];
    MC_UNROLL for (unsigned c = 0; c < cols; c++)
    {
        row[c] = x[c];
        pairs[c] = _mm512_setzero_si512();
    }
    for (size_t p = 0; p < law.pairs; p++)
        MC_UNROLL for (unsigned c = 0; c < cols; c++) pairs[c] =
            _mm512_dpwssd_epi32(pairs[c], line_at(t->pair[p]), dword_at(row[c] + at.sums + 4 * p));
    MC_UNROLL for (unsigned c = 0; c < cols; c++) total[c] = law.minimum ? _mm512_setzero_si512() : pairs[c];
    for (size_t s = 0; s < 256 / sub; s++) {
        __m512i sum[8];
        MC_UNROLL for (unsigned c = 0; c < cols; c++) sum[c] = sub == 256 ? total[c] : _mm512_setzero_si512();
        for (size_t i = s * sub; i < (s + 1) * sub; i += run) {
            MC_UNROLL for (unsigned v = 0; v < run / 4; v++)
            {
                const __m512i u = line_at(t->q[i / 4 + v]);
                MC_UNROLL for (unsigned c = 0; c < cols; c++) sum[c] =
                    _mm512_dpbusd_epi32(sum[c], u, dword_at(row[c] + at.q + i + 4 * v));
            }
        }
        MC_UNROLL for (unsigned c = 0; c < cols; c++) total[c] =
            sub == 256 ? sum[c] : _mm512_add_epi32(total[c], _mm512_mullo_epi32(sum[c], line_at(t->scale[s])));
    }
    MC_UNROLL for (unsigned c = 0; c < cols; c++)
    {
        const __m512 da = float_at(row[c] + at.d);
        __m512 acc = first ? _mm512_setzero_ps() : _mm512_loadu_ps(y[c] + r0);
        acc = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_load_ps(t->d[0]), da), _mm512_cvtepi32_ps(total[c]), acc);
        if (law.minimum) acc = _mm512_fnmadd_ps(_mm512_mul_ps(_mm512_load_ps(t->m[0]), da), _mm512_cvtepi32_ps(pairs[c]), acc);
        _mm512_storeu_ps(y[c] + r0, acc);
    }
}

#define CASE(n)                                                                                                                \
    case n:                                                                                                                    \
        block_cols(t, law, sub, n, y, r0, x, at, i0 == 0);                                                                     \
        break;
MC_INLINE void block_walk(const struct packed_tile *t, struct packed_block law, unsigned sub, float *const *y, size_t r0,
                          const void *const *x, struct block_at at, size_t i0, size_t cols)
{
    for (size_t c = 0; c < cols; c += 8, x += 8, y += 8) {
        if (c + 16 <= cols) ask_for(x + 8, i0, 8);
        switch (cols - c) {
            CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) default : block_cols(t, law, sub, 8, y, r0, x, at, i0 == 0);
            break;
        }
    }
}
#undef CASE

void avx512_packed_block_tile(const struct packed_tile *t, struct packed_block law, float *const *y, size_t r0,
                              const void *const *x, size_t k, size_t i0, size_t cols)
{
    const size_t d = KERN_PAD(k), sum32 = d + KERN_PAD(k / 256 * 4), sum16 = sum32 + KERN_PAD(k / 32 * 2);
    const size_t sum8 = sum16 + KERN_PAD(k / 16 * 2), sums = law.width == 32 ? sum32 : law.width == 16 ? sum16 : sum8;
    const struct block_at at = {i0, d + i0 / 64, sums + i0 / law.width * 2};
    switch (law.sub) {
    case 16:
        block_walk(t, law, 16, y, r0, x, at, i0, cols);
        break;
    case 32:
        block_walk(t, law, 32, y, r0, x, at, i0, cols);
        break;
    default:
        block_walk(t, law, 256, y, r0, x, at, i0, cols);
        break;
    }
}
