/* packed_tile_steps.c - unpacked tiles of 16 rows x 256 columns of weights times any number of columns of q8_0 activations.
 *
 * The bytes no longer know their format. Two tiles at a time share each broadcast of an activation, which otherwise would be
 * what limits the speed (2 loads a cycle); 2 x 6 sums and their floats stay in registers. y is the float accumulator between
 * tiles. */
#include "kernels/avx512/packed.h"

struct at {
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

MC_INLINE void columns(const struct packed_tile *t, unsigned tiles, struct packed_steps law, unsigned cols, float *const *y,
                       size_t r0, const void *const *x, struct at at, size_t i0, size_t n)
{
    const __m512i minus_bias = _mm512_set1_epi32((uint16_t)-law.bias);
    const char *row[PACKED_TILE_COLS];
    __m512 acc[2][PACKED_TILE_COLS];
    MC_UNROLL for (unsigned c = 0; c < cols; c++)
    {
        row[c] = x[c];
        MC_UNROLL for (unsigned h = 0; h < tiles; h++) acc[h][c] =
            i0 ? _mm512_loadu_ps(y[c] + r0 + 16 * h) : _mm512_setzero_ps();
    }
    for (size_t s = 0; s < n / law.step; s++) {
        const size_t b = s * law.step / 32;
        __m512i sum[2][PACKED_TILE_COLS];
        MC_UNROLL for (unsigned c = 0; c < cols; c++)
        {
            sum[0][c] = law.step == 16
                            ? bias_sum_16(row[c] + at.q + 16 * s, law.bias)
                            : _mm512_dpwssd_epi32(_mm512_setzero_si512(), minus_bias, dword_at(row[c] + at.sum + 2 * b));
            sum[1][c] = sum[0][c];
        }
        MC_UNROLL for (unsigned v = 0; v < law.step / 4; v++)
        {
            __m512i u[2];
            MC_UNROLL for (unsigned h = 0; h < tiles; h++) u[h] = line_at(t[h].q[s * law.step / 4 + v]);
            MC_UNROLL for (unsigned c = 0; c < cols; c++)
            {
                const __m512i a = dword_at(row[c] + at.q + s * law.step + 4 * v);
                MC_UNROLL for (unsigned h = 0; h < tiles; h++) sum[h][c] = _mm512_dpbusd_epi32(sum[h][c], u[h], a);
            }
        }
        MC_UNROLL for (unsigned c = 0; c < cols; c++) MC_UNROLL for (unsigned h = 0; h < tiles; h++)
        {
            const __m512 d = _mm512_mul_ps(_mm512_load_ps(t[h].d[s]), float_at(row[c] + at.d + 4 * b));
            acc[h][c] = _mm512_fmadd_ps(d, _mm512_cvtepi32_ps(sum[h][c]), acc[h][c]);
            if (law.minimum) acc[h][c] = _mm512_fmadd_ps(_mm512_load_ps(t[h].m[b]), float_at(row[c] + at.s + 4 * b), acc[h][c]);
        }
    }
    MC_UNROLL for (unsigned c = 0; c < cols; c++) MC_UNROLL for (unsigned h = 0; h < tiles; h++)
        _mm512_storeu_ps(y[c] + r0 + 16 * h, acc[h][c]);
}

/* `law` with a constant step and minimum. */
MC_INLINE void walk(const struct packed_tile *t, unsigned tiles, struct packed_steps law, float *const *y, size_t r0,
                    const void *const *x, struct at at, size_t i0, size_t n, size_t cols)
{
    for (size_t take; cols > 0; cols -= take, x += take, y += take) {
        take = packed_take(cols);
        ask_columns(x, i0, take, cols);
        switch (take) {
        case 1:
            columns(t, tiles, law, 1, y, r0, x, at, i0, n);
            break;
        case 2:
            columns(t, tiles, law, 2, y, r0, x, at, i0, n);
            break;
        case 3:
            columns(t, tiles, law, 3, y, r0, x, at, i0, n);
            break;
        case 4:
            columns(t, tiles, law, 4, y, r0, x, at, i0, n);
            break;
        case 5:
            columns(t, tiles, law, 5, y, r0, x, at, i0, n);
            break;
        default:
            columns(t, tiles, law, PACKED_TILE_COLS, y, r0, x, at, i0, n);
            break;
        }
    }
}

void avx512_packed_steps_tile(const struct packed_tile *t, unsigned tiles, struct packed_steps law, float *const *y, size_t r0,
                              const void *const *x, size_t k, size_t i0, size_t n, size_t cols)
{
    const size_t d = KERN_PAD(k), sum = d + KERN_PAD(k / 32 * 4), s = sum + KERN_PAD(k / 32 * 2);
    const struct at at = {i0, d + i0 / 8, sum + i0 / 16, s + i0 / 8};
    const struct packed_steps plain = {32, law.bias, false}, minimum = {32, 0, true}, short_steps = {16, law.bias, false};
    if (law.step == 16 && tiles == 2)
        walk(t, 2, short_steps, y, r0, x, at, i0, n, cols);
    else if (law.step == 16)
        walk(t, 1, short_steps, y, r0, x, at, i0, n, cols);
    else if (law.minimum && tiles == 2)
        walk(t, 2, minimum, y, r0, x, at, i0, n, cols);
    else if (law.minimum)
        walk(t, 1, minimum, y, r0, x, at, i0, n, cols);
    else if (tiles == 2)
        walk(t, 2, plain, y, r0, x, at, i0, n, cols);
    else
        walk(t, 1, plain, y, r0, x, at, i0, n, cols);
}
