/* packed_tile_blocks.c - unpacked tiles of 16 rows x 256 columns of weights times any number of columns of q8_K activations.
 *
 * As packed_tile_steps.c, with integers all through the tile and one float step at its end. Three shapes of sums are all that
 * is left of the formats: a scale for each 16 columns, for each 32, or none because the bytes carry it. */
#include "kernels/avx512/packed.h"

struct at {
    size_t q, d, sums;
};

MC_INLINE void add_pairs(__m512i total[2][PACKED_TILE_COLS], const struct packed_tile *t, unsigned tiles, unsigned pairs,
                         unsigned cols, const char *const row[PACKED_TILE_COLS], size_t at)
{
    MC_UNROLL for (unsigned c = 0; c < cols; c++) MC_UNROLL for (unsigned h = 0; h < tiles; h++) total[h][c] =
        _mm512_setzero_si512();
    for (unsigned p = 0; p < pairs; p++) MC_UNROLL for (unsigned c = 0; c < cols; c++)
        {
            const __m512i a = dword_at(row[c] + at + 4 * p);
            MC_UNROLL for (unsigned h = 0; h < tiles; h++) total[h][c] =
                _mm512_dpwssd_epi32(total[h][c], line_at(t[h].pair[p]), a);
        }
}

/* Columns i .. i + run of the tile into sum. */
MC_INLINE void add_products(__m512i sum[2][PACKED_TILE_COLS], const struct packed_tile *t, unsigned tiles, unsigned cols,
                            const char *const row[PACKED_TILE_COLS], size_t at, size_t i, unsigned run)
{
    MC_UNROLL for (unsigned v = 0; v < run / 4; v++)
    {
        __m512i u[2];
        MC_UNROLL for (unsigned h = 0; h < tiles; h++) u[h] = line_at(t[h].q[i / 4 + v]);
        MC_UNROLL for (unsigned c = 0; c < cols; c++)
        {
            const __m512i a = dword_at(row[c] + at + i + 4 * v);
            MC_UNROLL for (unsigned h = 0; h < tiles; h++) sum[h][c] = _mm512_dpbusd_epi32(sum[h][c], u[h], a);
        }
    }
}

MC_INLINE void columns(const struct packed_tile *t, unsigned tiles, struct packed_block law, unsigned cols, float *const *y,
                       size_t r0, const void *const *x, struct at at, bool first)
{
    const unsigned run = law.sub == 16 ? 16 : 32;
    const char *row[PACKED_TILE_COLS];
    __m512i total[2][PACKED_TILE_COLS], sum[2][PACKED_TILE_COLS];
    MC_UNROLL for (unsigned c = 0; c < cols; c++) row[c] = x[c];
    add_pairs(total, t, tiles, law.minimum ? 0 : law.pairs, cols, row, at.sums);
    for (size_t i = 0; i < 256; i += run) {
        if (law.sub == 256) {
            add_products(total, t, tiles, cols, row, at.q, i, run);
            continue;
        }
        MC_UNROLL for (unsigned c = 0; c < cols; c++) sum[0][c] = sum[1][c] = _mm512_setzero_si512();
        add_products(sum, t, tiles, cols, row, at.q, i, run);
        MC_UNROLL for (unsigned c = 0; c < cols; c++) MC_UNROLL for (unsigned h = 0; h < tiles; h++) total[h][c] =
            _mm512_add_epi32(total[h][c], _mm512_mullo_epi32(sum[h][c], line_at(t[h].scale[i / run])));
    }
    if (law.minimum) add_pairs(sum, t, tiles, law.pairs, cols, row, at.sums);
    MC_UNROLL for (unsigned c = 0; c < cols; c++) MC_UNROLL for (unsigned h = 0; h < tiles; h++)
    {
        const __m512 da = float_at(row[c] + at.d);
        float *out = y[c] + r0 + 16 * h;
        __m512 acc = first ? _mm512_setzero_ps() : _mm512_loadu_ps(out);
        acc = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_load_ps(t[h].d[0]), da), _mm512_cvtepi32_ps(total[h][c]), acc);
        if (law.minimum)
            acc = _mm512_fnmadd_ps(_mm512_mul_ps(_mm512_load_ps(t[h].m[0]), da), _mm512_cvtepi32_ps(sum[h][c]), acc);
        _mm512_storeu_ps(out, acc);
    }
}

/* law.sub and law.minimum are constants. */
MC_INLINE void walk(const struct packed_tile *t, unsigned tiles, struct packed_block law, float *const *y, size_t r0,
                    const void *const *x, struct at at, size_t i0, size_t cols)
{
    for (size_t take; cols > 0; cols -= take, x += take, y += take) {
        take = packed_take(cols);
        ask_columns(x, i0, take, cols);
        switch (take) {
        case 1:
            columns(t, tiles, law, 1, y, r0, x, at, i0 == 0);
            break;
        case 2:
            columns(t, tiles, law, 2, y, r0, x, at, i0 == 0);
            break;
        case 3:
            columns(t, tiles, law, 3, y, r0, x, at, i0 == 0);
            break;
        case 4:
            columns(t, tiles, law, 4, y, r0, x, at, i0 == 0);
            break;
        case 5:
            columns(t, tiles, law, 5, y, r0, x, at, i0 == 0);
            break;
        default:
            columns(t, tiles, law, PACKED_TILE_COLS, y, r0, x, at, i0 == 0);
            break;
        }
    }
}

#define WALK(sub, minimum)                                                                                                     \
    static MC_NOINLINE void walk_##sub##_##minimum(const struct packed_tile *t, unsigned tiles, struct packed_block law,       \
                                                   float *const *y, size_t r0, const void *const *x, struct at at, size_t i0,  \
                                                   size_t cols)                                                                \
    {                                                                                                                          \
        const struct packed_block constant = {sub, law.pairs, law.width, minimum};                                             \
        if (tiles == 2)                                                                                                        \
            walk(t, 2, constant, y, r0, x, at, i0, cols);                                                                      \
        else                                                                                                                   \
            walk(t, 1, constant, y, r0, x, at, i0, cols);                                                                      \
    }
WALK(16, false)
WALK(32, false)
WALK(32, true)
WALK(256, false)
WALK(256, true)

void avx512_packed_block_tile(const struct packed_tile *t, unsigned tiles, struct packed_block law, float *const *y, size_t r0,
                              const void *const *x, size_t k, size_t i0, size_t cols)
{
    const size_t d = KERN_PAD(k), sum32 = d + KERN_PAD(k / 256 * 4), sum16 = sum32 + KERN_PAD(k / 32 * 2);
    const size_t sum8 = sum16 + KERN_PAD(k / 16 * 2), sums = law.width == 32 ? sum32 : law.width == 16 ? sum16 : sum8;
    const struct at at = {i0, d + i0 / 64, sums + i0 / law.width * 2};
    if (law.sub == 16)
        walk_16_false(t, tiles, law, y, r0, x, at, i0, cols);
    else if (law.sub == 32)
        (law.minimum ? walk_32_true : walk_32_false)(t, tiles, law, y, r0, x, at, i0, cols);
    else
        (law.minimum ? walk_256_true : walk_256_false)(t, tiles, law, y, r0, x, at, i0, cols);
}
