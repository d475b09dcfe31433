/* packed_tile_steps.c - unpacked tiles of 16 rows x 256 columns of weights times any number of columns of q8_0 activations.
 *
 * The bytes no longer know their format, only how many of their products fit 16 bits. Both halves of a line share each
 * broadcast of an activation; y is the float accumulator between tiles. */
#include "kernels/avx2/packed.h"

MC_INLINE __m256i first_sum(struct packed_steps law, const struct packed_act *x, size_t s)
{
    const size_t b = s * law.step / 32;
    if (law.flipped) return dword_at(x->sums + 4 * b);
    if (law.step == 16) return bias_sum_16(x->q + 16 * s, law.bias);
    return _mm256_madd_epi16(_mm256_set1_epi32((uint16_t)-law.bias), dword_at(x->sums + 2 * b));
}

/* All of law but its bias is constant. */
MC_INLINE void columns(const struct packed_tile *t, struct packed_steps law, unsigned cols, float *const *y, size_t r0,
                       const struct packed_act *x, bool first, size_t n)
{
    const __m256i ones = _mm256_set1_epi16(1);
    const unsigned vectors = law.step / 4, per = law.flipped ? 8 : 4;
    const char *q[PACKED_TILE_COLS];
    __m256 acc[2][PACKED_TILE_COLS];
    MC_UNROLL for (unsigned c = 0; c < cols; c++)
    {
        q[c] = x[c].q;
        MC_UNROLL for (unsigned h = 0; h < 2; h++) acc[h][c] = first ? _mm256_setzero_ps() : _mm256_loadu_ps(y[c] + r0 + 8 * h);
    }
    for (size_t s = 0; s < n / law.step; s++) {
        const size_t b = s * law.step / 32;
        const uint8_t *u = t->q[s * vectors];
        __m256i total[2][PACKED_TILE_COLS], sum[2][PACKED_TILE_COLS];
        MC_UNROLL for (unsigned c = 0; c < cols; c++) total[0][c] = total[1][c] =
            law.minimum ? _mm256_setzero_si256() : first_sum(law, &x[c], s);
        MC_UNROLL for (unsigned v = 0; v < vectors; v++)
        {
            const bool starts = v % law.depth == 0, ends = v % law.depth + 1 == law.depth;
            __m256i w[2];
            MC_UNROLL for (unsigned h = 0; h < 2; h++)
            {
                w[h] = half_at(u + 64 * v + 32 * h);
                if (law.flipped) MC_OPAQUE_VECTOR(w[h]); /* loaded once */
            }
            MC_UNROLL for (unsigned c = 0; c < cols; c++) MC_UNROLL for (unsigned h = 0; h < 2; h++)
            {
                if (VNNI) {
                    total[h][c] = add_bytes(total[h][c], w[h], dword_at(q[c] + per * v));
                    continue;
                }
                const __m256i product = products(law.flipped, w[h], q[c] + per * v);
                sum[h][c] = starts ? product : add_16(sum[h][c], product);
                if (!ends) continue;
                const __m256i dwords = _mm256_madd_epi16(sum[h][c], ones);
                total[h][c] = law.minimum && v < law.depth ? dwords : add_32(total[h][c], dwords);
            }
        }
        MC_UNROLL for (unsigned c = 0; c < cols; c++)
        {
            q[c] += per * vectors;
            MC_UNROLL for (unsigned h = 0; h < 2; h++)
            {
                const __m256 d = _mm256_mul_ps(_mm256_load_ps(t->d[s] + 8 * h), float_at(x[c].d + 4 * b));
                acc[h][c] = _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(total[h][c]), acc[h][c]);
                if (law.minimum)
                    acc[h][c] = _mm256_fmadd_ps(_mm256_load_ps(t->m[b] + 8 * h), float_at(x[c].s + 4 * b), acc[h][c]);
            }
        }
    }
    MC_UNROLL for (unsigned c = 0; c < cols; c++) MC_UNROLL for (unsigned h = 0; h < 2; h++)
        _mm256_storeu_ps(y[c] + r0 + 8 * h, acc[h][c]);
}

/* One function for each shape and number of columns. */
typedef void (*columns_fn)(const struct packed_tile *t, struct packed_steps law, float *const *y, size_t r0,
                           const struct packed_act *x, bool first, size_t n);
#define COLUMNS(shape, cols, ...)                                                                                              \
    static MC_NOINLINE void shape##_##cols(const struct packed_tile *t, struct packed_steps law, float *const *y, size_t r0,   \
                                           const struct packed_act *x, bool first, size_t n)                                   \
    {                                                                                                                          \
        const struct packed_steps constant = {__VA_ARGS__};                                                                    \
        columns(t, constant, cols, y, r0, x, first, n);                                                                        \
    }

#if VNNI
PACKED_SHAPE(plain, 32, 8, law.bias, false, false)
PACKED_SHAPE(with_minimum, 32, 8, law.bias, true, false)

static const columns_fn *shape_of(struct packed_steps law)
{
    return law.minimum ? with_minimum : plain;
}
#else
PACKED_SHAPE(deep, 32, 8, law.bias, false, false)
PACKED_SHAPE(middling, 32, 4, law.bias, false, false)
PACKED_SHAPE(with_minimum, 32, 4, law.bias, true, false)
PACKED_SHAPE(short_steps, 16, 4, law.bias, false, false)
PACKED_SHAPE(flipped, 32, 1, law.bias, false, true)

static const columns_fn *shape_of(struct packed_steps law)
{
    if (law.flipped) return flipped;
    if (law.step == 16) return short_steps;
    return law.minimum ? with_minimum : law.depth == 8 ? deep : middling;
}
#endif

void PACKED_NAME(steps_tile)(const struct packed_tile *t, struct packed_steps law, float *const *y, size_t r0,
                             const struct packed_act *x, bool first, size_t n, size_t cols)
{
    const columns_fn *shape = shape_of(law);
    for (size_t take; cols > 0; cols -= take, x += take, y += take) {
        take = packed_take(cols);
        shape[take - 1](t, law, y, r0, x, first, n);
    }
}
