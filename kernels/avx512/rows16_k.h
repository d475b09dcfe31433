/* rows16_k.h - products with q8_K activations: blocks of 256 columns, integer sub-scales, minima (rows16.h says how).
 *
 * I = sum over units of scale * sum(codes * a) + sum of pairs * sums: the pairs carry the bias of the unsigned codes, the
 * shifts of the ternary formats, or (law.minimum) the minima, which then make an integer of their own. */
#ifndef KERNELS_AVX512_ROWS16_K_H
#define KERNELS_AVX512_ROWS16_K_H

#include "kernels/avx512/rows16.h"

struct k_law {
    unsigned bytes; /* of a block of 256 weights */
    unsigned unit;  /* columns under one integer scale: 16 or 32; 256: none */
    bool strided;   /* step (h, c) makes units 8h + 2i + c instead of 4 step + i */
    unsigned pairs; /* pairs of sums: 4 of sum32, 8 of sum16, 16 of sum8, 0 none */
    bool minimum;   /* pairs are the minimum M; otherwise they belong to I */
};

typedef void (*k_head_fn)(struct tile *t, const uint8_t *p, const struct strides *s);
/* x[4i + v], i < 4: dword v of unit i of the step (a quarter of the block) */
typedef void (*k_codes_fn)(__m512i x[16], const struct tile *t, const uint8_t *p, const struct strides *s, unsigned step);

MC_INLINE unsigned k_unit(struct k_law law, unsigned step, unsigned i)
{
    return law.strided ? 8 * (step / 2) + 2 * i + step % 2 : 4 * step + i;
}

struct k_col {
    const int8_t *q;
    const int16_t *sums;
    const float *d;
};

MC_INLINE struct k_col k_col_of(struct k_law law, const void *x, size_t k)
{
    const struct kern_q8_k v = kern_q8_k_view(x, k);
    struct k_col c = {v.q, law.pairs == 16 ? v.sum8 : law.pairs == 8 ? v.sum16 : v.sum32, v.d};
    return c;
}

/* ---- for the heads of formats ---- */

/* int16 pairs (lo, hi) from the low halves of dword lanes */
MC_INLINE __m512i pair_of(__m512i lo, __m512i hi)
{
    return _mm512_mask_blend_epi16(0xAAAAAAAA, lo, _mm512_slli_epi32(hi, 16));
}

MC_INLINE void put(void *dst, __m512i v)
{
    _mm512_storeu_si512(dst, v);
}

/* Byte i of each lane, as an unsigned dword. */
MC_INLINE __m512i byte_of(__m512i v, unsigned i)
{
    return _mm512_and_si512(_mm512_srli_epi32(v, 8 * i), _mm512_set1_epi32(255));
}

/* Scales of units j and j + 1 (j even), and the factors that take the bias of the codes off. */
MC_INLINE void put_scales(struct tile *t, unsigned j, __m512i lo, __m512i hi, int bias)
{
    put(t->scale[j], lo);
    put(t->scale[j + 1], hi);
    put(t->pair[j / 2], _mm512_mullo_epi16(pair_of(lo, hi), _mm512_set1_epi16((short)-bias)));
}

/* 2 * (bits at `shift` of each lane, n of them) + 1 */
MC_INLINE __m512i odd_scale(__m512i v, unsigned shift, unsigned n)
{
    const __m512i twice = shift ? _mm512_srli_epi32(v, shift - 1) : _mm512_slli_epi32(v, 1), one = _mm512_set1_epi32(1);
    return or_and(one, twice, _mm512_set1_epi32((int)((2u << n) - 2)));
}

/* ---- products ---- */

/* Ends a block of one column: I and the pairs become floats. */
MC_INLINE __m512 k_finish(struct k_law law, const struct tile *t, const int16_t *sums, float da, __m512i I, __m512 f)
{
    const __m512 va = _mm512_set1_ps(da);
    /* short chains: nothing else is left to do at the end of a block */
    __m512i part[4] = {law.minimum ? _mm512_setzero_si512() : I};
    part[1] = part[2] = part[3] = _mm512_setzero_si512();
    MC_UNROLL for (unsigned i = 0; i < law.pairs; i++) part[i % 4] =
        _mm512_dpwssd_epi32(part[i % 4], bytes64(t->pair[i]), dword_all(sums + 2 * i));
    const __m512i m = _mm512_add_epi32(_mm512_add_epi32(part[0], part[1]), _mm512_add_epi32(part[2], part[3]));
    if (!law.minimum) return _mm512_fmadd_ps(_mm512_mul_ps(_mm512_loadu_ps(t->d[0]), va), _mm512_cvtepi32_ps(m), f);
    f = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_loadu_ps(t->d[0]), va), _mm512_cvtepi32_ps(I), f);
    return _mm512_fnmadd_ps(_mm512_mul_ps(_mm512_loadu_ps(t->m[0]), va), _mm512_cvtepi32_ps(m), f);
}

MC_INLINE __m512i k_step_one(struct k_law law, k_codes_fn codes, const struct tile *t, const uint8_t *p,
                             const struct strides *s, const int8_t *a, __m512i I, unsigned step)
{
    __m512i x[16], u = law.unit == 256 ? I : _mm512_setzero_si512();
    codes(x, t, p, s, step);
    MC_UNROLL for (unsigned i = 0; i < 4; i++)
    {
        const unsigned unit = k_unit(law, step, i);
        if (law.unit == 16 || (law.unit == 32 && i % 2 == 0)) u = _mm512_setzero_si512();
        MC_UNROLL for (unsigned v = 0; v < 4; v++) u = _mm512_dpbusd_epi32(u, x[4 * i + v], dword_all(a + 16 * unit + 4 * v));
        if (law.unit == 16) I = _mm512_add_epi32(I, _mm512_mullo_epi32(u, bytes64(t->scale[unit])));
        if (law.unit == 32 && i % 2) I = _mm512_add_epi32(I, _mm512_mullo_epi32(u, bytes64(t->scale[unit / 2])));
    }
    return law.unit == 256 ? u : I;
}

/* One column, 16 rows. */
MC_INLINE void k_group_one(struct k_law law, k_head_fn head, k_codes_fn codes, float *y, const struct rows16 *g, struct k_col x,
                           size_t blocks)
{
    struct tile t;
    MC_ALIGNED(64) uint8_t buf[16 * ROWS16_BLOCK_MAX + 64];
    __m512 f = _mm512_setzero_ps();
    const struct strides s = g->s;
    for (size_t b = 0; b < blocks; b++) {
        const uint8_t *p = g->p + b * law.bytes;
        if (g->copied)
            p = rows16_copy(buf, g, p, law.bytes);
        else
            rows16_prefetch(g, b, law.bytes);
        const int8_t *a = x.q + 256 * b;
        head(&t, p, &s);
        __m512i I = _mm512_setzero_si512();
        I = k_step_one(law, codes, &t, p, &s, a, I, 0);
        I = k_step_one(law, codes, &t, p, &s, a, I, 1);
        I = k_step_one(law, codes, &t, p, &s, a, I, 2);
        I = k_step_one(law, codes, &t, p, &s, a, I, 3);
        f = k_finish(law, &t, x.sums + 2 * law.pairs * b, x.d[b], I, f);
    }
    _mm512_mask_storeu_ps(y + g->r0, g->live, f);
}

MC_INLINE void k_step_tile(struct k_law law, k_codes_fn codes, struct tile *t, const uint8_t *p, const struct strides *s,
                           unsigned step)
{
    __m512i x[16];
    codes(x, t, p, s, step);
    MC_UNROLL for (unsigned i = 0; i < 16; i++) _mm512_storeu_si512(t->q[4 * k_unit(law, step, i / 4) + i % 4], x[i]);
}

/* N columns over a tile. */
MC_INLINE void k_columns(struct k_law law, unsigned n, const struct tile *t, const struct k_col *x, size_t b, float (*acc)[16])
{
    __m512i I[8];
    const int8_t *a[8];
    for (unsigned c = 0; c < n; c++) I[c] = _mm512_setzero_si512(), a[c] = x[c].q + 256 * b;
    for (size_t j = 0; j < 256 / law.unit; j++) {
        const __m512i scale = bytes64(t->scale[j]);
        __m512i u[8];
        for (unsigned c = 0; c < n; c++) u[c] = _mm512_setzero_si512();
        MC_UNROLL for (size_t i = 0; i < law.unit / 4; i++)
        {
            const size_t v = j * (law.unit / 4) + i;
            const __m512i w = bytes64(t->q[v]);
            for (unsigned c = 0; c < n; c++) u[c] = _mm512_dpbusd_epi32(u[c], w, dword_all(a[c] + 4 * v));
        }
        for (unsigned c = 0; c < n; c++)
            I[c] = law.unit == 256 ? u[c] : _mm512_add_epi32(I[c], _mm512_mullo_epi32(u[c], scale));
    }
    for (unsigned c = 0; c < n; c++)
        _mm512_storeu_ps(acc[c], k_finish(law, t, x[c].sums + 2 * law.pairs * b, x[c].d[b], I[c], _mm512_loadu_ps(acc[c])));
}

typedef void (*k_columns_fn)(const struct tile *t, const struct k_col *x, size_t b, float (*acc)[16]);

/* Up to ROWS16_COLS columns, 16 rows. */
MC_INLINE void k_group_many(struct k_law law, k_head_fn head, k_codes_fn codes, const k_columns_fn columns[4], float *const *y,
                            const struct rows16 *g, const struct k_col *x, size_t blocks, size_t cols)
{
    struct tile t;
    MC_ALIGNED(64) uint8_t buf[16 * ROWS16_BLOCK_MAX + 64];
    MC_ALIGNED(64) float acc[ROWS16_COLS][16];
    memset(acc, 0, cols * sizeof acc[0]);
    const struct strides s = g->s;
    for (size_t b = 0; b < blocks; b++) {
        const uint8_t *p = g->p + b * law.bytes;
        if (g->copied)
            p = rows16_copy(buf, g, p, law.bytes);
        else
            rows16_prefetch(g, b, law.bytes);
        head(&t, p, &s);
        k_step_tile(law, codes, &t, p, &s, 0);
        k_step_tile(law, codes, &t, p, &s, 1);
        k_step_tile(law, codes, &t, p, &s, 2);
        k_step_tile(law, codes, &t, p, &s, 3);
        size_t c = 0;
        for (; c + 8 <= cols; c += 8) columns[3](&t, x + c, b, acc + c);
        if (cols - c >= 4) columns[2](&t, x + c, b, acc + c), c += 4;
        if (cols - c >= 2) columns[1](&t, x + c, b, acc + c), c += 2;
        if (cols - c >= 1) columns[0](&t, x + c, b, acc + c);
    }
    for (size_t c = 0; c < cols; c++) _mm512_mask_storeu_ps(y[c] + g->r0, g->live, _mm512_loadu_ps(acc[c]));
}

typedef void (*k_one_fn)(float *y, const struct rows16 *g, const struct k_col *x, size_t blocks);
typedef void (*k_many_fn)(float *const *y, const struct rows16 *g, const struct k_col *x, size_t blocks, size_t cols);

MC_INLINE void k_matmul(struct k_law law, k_one_fn one, k_many_fn many, float *const *y, const void *w, size_t w_stride,
                        const void *const *x, size_t k, size_t rows, size_t cols)
{
    for (size_t c0 = 0; c0 < cols; c0 += ROWS16_COLS) {
        const size_t n = cols - c0 < ROWS16_COLS ? cols - c0 : ROWS16_COLS;
        struct k_col view[ROWS16_COLS];
        for (size_t c = 0; c < n; c++) view[c] = k_col_of(law, x[c0 + c], k);
        for (size_t r = 0; r < rows; r += 16) {
            const struct rows16 g = rows16_group(w, w_stride, r, rows);
            if (n == 1)
                one(y[c0], &g, view, k / 256);
            else
                many(y + c0, &g, view, k / 256, n);
        }
    }
}

/* Column kernels of one law, and the matmul of one format. */
#define K_COLUMNS_N(name, law, n)                                                                                              \
    static MC_NOINLINE void name##_##n(const struct tile *t, const struct k_col *x, size_t b, float(*acc)[16])                 \
    {                                                                                                                          \
        k_columns(law, n, t, x, b, acc);                                                                                       \
    }
#define K_COLUMNS(name, law)                                                                                                   \
    K_COLUMNS_N(name, law, 1)                                                                                                  \
    K_COLUMNS_N(name, law, 2)                                                                                                  \
    K_COLUMNS_N(name, law, 4)                                                                                                  \
    K_COLUMNS_N(name, law, 8)                                                                                                  \
    static const k_columns_fn name[4] = {name##_1, name##_2, name##_4, name##_8};

#define K_MATMUL(type, law, columns)                                                                                           \
    static MC_NOINLINE void type##_one(float *y, const struct rows16 *g, const struct k_col *x, size_t blocks)                 \
    {                                                                                                                          \
        k_group_one(law, type##_head, type##_codes, y, g, *x, blocks);                                                         \
    }                                                                                                                          \
    static MC_NOINLINE void type##_many(float *const *y, const struct rows16 *g, const struct k_col *x, size_t blocks,         \
                                        size_t cols)                                                                           \
    {                                                                                                                          \
        k_group_many(law, type##_head, type##_codes, columns, y, g, x, blocks, cols);                                          \
    }                                                                                                                          \
    static void matmul_##type(float *const *y, const void *w, size_t w_stride, const void *const *x, size_t k, size_t rows,    \
                              size_t cols)                                                                                     \
    {                                                                                                                          \
        k_matmul(law, type##_one, type##_many, y, w, w_stride, x, k, rows, cols);                                              \
    }

#endif
