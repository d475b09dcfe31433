/* packed_tile_blocks.c - unpacked tiles of 16 rows x 256 columns of weights times any number of columns of q8_K activations.
 *
 * As packed_tile_steps.c, with integers all through the tile and one float step at its end. What is left of the formats: how
 * many columns have one scale and how many vectors of products fit 16 bits. */
#include "kernels/avx2/packed.h"

MC_INLINE void add_pairs(__m256i total[2][PACKED_TILE_COLS], const struct packed_tile *t, unsigned pairs, unsigned cols,
                         const struct packed_act *x)
{
    MC_UNROLL for (unsigned c = 0; c < cols; c++) MC_UNROLL for (unsigned h = 0; h < 2; h++) total[h][c] =
        _mm256_setzero_si256();
    for (unsigned p = 0; p < pairs; p++) MC_UNROLL for (unsigned c = 0; c < cols; c++)
        {
            const __m256i a = dword_at(x[c].sums + 4 * p);
            MC_UNROLL for (unsigned h = 0; h < 2; h++) total[h][c] = add_words(total[h][c], half_at(t->pair[p] + 16 * h), a);
        }
}

/* VNNI: plus the products of the tile. Totals wait in memory while the sums of a sub-block fill the registers. */
MC_INLINE void add_tile(__m256i total[2][PACKED_TILE_COLS], const struct packed_tile *t, unsigned sub, unsigned cols,
                        const char *q[PACKED_TILE_COLS])
{
    const unsigned vectors = sub == 16 ? 4 : 8;
    for (unsigned i = 0; i < 64 / vectors; i++) {
        __m256i sum[2][PACKED_TILE_COLS];
        MC_UNROLL for (unsigned c = 0; c < cols; c++) MC_UNROLL for (unsigned h = 0; h < 2; h++) sum[h][c] =
            sub == 256 ? total[h][c] : _mm256_setzero_si256();
        MC_UNROLL for (unsigned v = 0; v < vectors; v++)
        {
            __m256i w[2];
            MC_UNROLL for (unsigned h = 0; h < 2; h++)
            {
                w[h] = half_at(t->q[vectors * i + v] + 32 * h);
                MC_OPAQUE_VECTOR(w[h]); /* loaded once */
            }
            MC_UNROLL for (unsigned c = 0; c < cols; c++)
            {
                const __m256i a = dword_at(q[c] + 4 * v);
                MC_UNROLL for (unsigned h = 0; h < 2; h++) sum[h][c] = add_bytes(sum[h][c], w[h], a);
            }
        }
        MC_UNROLL for (unsigned c = 0; c < cols; c++)
        {
            q[c] += 4 * vectors;
            MC_UNROLL for (unsigned h = 0; h < 2; h++) total[h][c] =
                sub == 256 ? sum[h][c]
                           : _mm256_add_epi32(total[h][c], _mm256_mullo_epi32(sum[h][c], half_at(t->scale[i] + 16 * h)));
        }
    }
}

/* All of law but its pairs is constant. */
MC_INLINE void columns(const struct packed_tile *t, struct packed_block law, unsigned cols, float *const *y, size_t r0,
                       const struct packed_act *x, bool first)
{
    const unsigned vectors = law.sub == 16 ? 4 : 8, per = law.flipped ? 8 : 4, rounds = law.sub / 4 / vectors;
    const uint8_t *u = t->q[0];
    const char *q[PACKED_TILE_COLS];
    __m256i total[2][PACKED_TILE_COLS], sum[2][PACKED_TILE_COLS];
    MC_UNROLL for (unsigned c = 0; c < cols; c++) q[c] = x[c].q;
    add_pairs(total, t, law.minimum ? 0 : law.pairs, cols, x);
    if (VNNI) add_tile(total, t, law.sub, cols, q);
    for (unsigned i = 0; !VNNI && i < 256 / law.sub; i++) {
        MC_UNROLL for (unsigned c = 0; c < cols; c++) sum[0][c] = sum[1][c] = _mm256_setzero_si256();
        for (unsigned round = 0; round < rounds; round++, u += 64 * vectors) {
            MC_UNROLL for (unsigned v = 0; v < vectors; v++)
            {
                const bool starts = v % law.depth == 0 && rounds == 1, ends = v % law.depth + 1 == law.depth;
                __m256i w[2];
                MC_UNROLL for (unsigned h = 0; h < 2; h++)
                {
                    w[h] = half_at(u + 64 * v + 32 * h);
                    if (law.flipped) MC_OPAQUE_VECTOR(w[h]); /* loaded once */
                }
                MC_UNROLL for (unsigned c = 0; c < cols; c++) MC_UNROLL for (unsigned h = 0; h < 2; h++)
                {
                    const __m256i product = products(law.flipped, w[h], q[c] + per * v);
                    sum[h][c] = starts ? product : add_16(sum[h][c], product);
                    if (ends) total[h][c] = add_32(total[h][c], _mm256_madd_epi16(sum[h][c], half_at(t->scale[i] + 16 * h)));
                }
            }
            MC_UNROLL for (unsigned c = 0; c < cols; c++) q[c] += per * vectors;
        }
        if (rounds == 1) continue;
        MC_UNROLL for (unsigned c = 0; c < cols; c++) MC_UNROLL for (unsigned h = 0; h < 2; h++) total[h][c] =
            add_32(total[h][c], _mm256_madd_epi16(sum[h][c], half_at(t->scale[i] + 16 * h)));
    }
    if (law.minimum) add_pairs(sum, t, law.pairs, cols, x);
    MC_UNROLL for (unsigned c = 0; c < cols; c++) MC_UNROLL for (unsigned h = 0; h < 2; h++)
    {
        const __m256 da = float_at(x[c].d);
        float *out = y[c] + r0 + 8 * h;
        __m256 acc = first ? _mm256_setzero_ps() : _mm256_loadu_ps(out);
        acc = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_load_ps(t->d[0] + 8 * h), da), _mm256_cvtepi32_ps(total[h][c]), acc);
        if (law.minimum)
            acc = _mm256_fnmadd_ps(_mm256_mul_ps(_mm256_load_ps(t->m[0] + 8 * h), da), _mm256_cvtepi32_ps(sum[h][c]), acc);
        _mm256_storeu_ps(out, acc);
    }
}

/* One function for each shape and number of columns. */
typedef void (*columns_fn)(const struct packed_tile *t, struct packed_block law, float *const *y, size_t r0,
                           const struct packed_act *x, bool first);
#define COLUMNS(shape, cols, ...)                                                                                              \
    static MC_NOINLINE void shape##_##cols(const struct packed_tile *t, struct packed_block law, float *const *y, size_t r0,   \
                                           const struct packed_act *x, bool first)                                             \
    {                                                                                                                          \
        const struct packed_block constant = {__VA_ARGS__};                                                                    \
        columns(t, constant, cols, y, r0, x, first);                                                                           \
    }
#if VNNI
PACKED_SHAPE(sub_16, 16, 1, law.pairs, false, false)
PACKED_SHAPE(sub_32, 32, 1, law.pairs, false, false)
PACKED_SHAPE(sub_32_minimum, 32, 1, law.pairs, true, false)
PACKED_SHAPE(scaled, 256, 1, law.pairs, false, false)
PACKED_SHAPE(scaled_minimum, 256, 1, law.pairs, true, false)

static const columns_fn *shape_of(struct packed_block law)
{
    if (law.sub == 256) return law.minimum ? scaled_minimum : scaled;
    return law.sub == 16 ? sub_16 : law.minimum ? sub_32_minimum : sub_32;
}
#else
PACKED_SHAPE(sub_16_4, 16, 4, law.pairs, false, false)        /* q3_K, iq1_m */
PACKED_SHAPE(sub_16_4_minimum, 16, 4, law.pairs, true, false) /* q2_K */
PACKED_SHAPE(sub_16_2, 16, 2, law.pairs, false, false)        /* q6_K */
PACKED_SHAPE(sub_16_1, 16, 1, law.pairs, false, false)        /* iq2_xs, iq2_s */
PACKED_SHAPE(sub_32_8, 32, 8, law.pairs, false, false)        /* iq1_s, iq3_s */
PACKED_SHAPE(sub_32_8_minimum, 32, 8, law.pairs, true, false) /* q4_K */
PACKED_SHAPE(sub_32_4_minimum, 32, 4, law.pairs, true, false) /* q5_K */
PACKED_SHAPE(sub_32_1, 32, 1, law.pairs, false, false)        /* iq2_xxs, iq3_xxs */
PACKED_SHAPE(flipped, 32, 1, law.pairs, false, true)          /* iq4_xs */
PACKED_SHAPE(sub_128, 128, 32, law.pairs, false, false)       /* tq1_0, tq2_0 */

static const columns_fn *shape_of(struct packed_block law)
{
    if (law.flipped) return flipped;
    if (law.sub == 128) return sub_128;
    if (law.minimum) return law.sub == 16 ? sub_16_4_minimum : law.depth == 8 ? sub_32_8_minimum : sub_32_4_minimum;
    if (law.sub == 16) return law.depth == 4 ? sub_16_4 : law.depth == 2 ? sub_16_2 : sub_16_1;
    return law.depth == 8 ? sub_32_8 : sub_32_1;
}
#endif

void PACKED_NAME(block_tile)(const struct packed_tile *t, struct packed_block law, float *const *y, size_t r0,
                             const struct packed_act *x, bool first, size_t cols)
{
    const columns_fn *shape = shape_of(law);
    for (size_t take; cols > 0; cols -= take, x += take, y += take) {
        take = packed_take(cols);
        shape[take - 1](t, law, y, r0, x, first);
    }
}
