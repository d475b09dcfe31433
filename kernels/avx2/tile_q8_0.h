/* tile_q8_0.h - products with Q8_0 activations: everything about a 32-wide format but its unpacking.
 *
 * The float chain makes one step for each activation block of 32 (nvfp4: two), so sums stay in int16 as long as the codes
 * allow:    I = sum(u * a) - bias * sum32        u = code + bias
 *
 * A format's unpack function sets the scales d (and m), then hands over its codes 16 columns at a time, steps in order
 * (tile_b_put). For a few activation columns these are multiplied on the spot; for more they go to a tile (tile.h) of up to
 * 8 activation blocks that all columns share.
 * An always-inline template: `unpack`, `shape` and the number of columns are constants of each instance. */
#ifndef KERNELS_AVX2_TILE_Q8_0_H
#define KERNELS_AVX2_TILE_Q8_0_H

#include "kernels/avx2/tile.h"

struct tile_b {
    __m256 d[16]; /* [step], lane = row */
    __m256 m[8];
    __m256i w[2 * TILE_OCTETS];
};

struct tile_b_shape {
    int len;        /* columns of a weight block */
    int step;       /* octets of a float step: 4 (nvfp4: 2) */
    bool is_signed; /* codes signed, no bias */
    bool narrow;    /* u <= 16: 16 products fit int16; otherwise 8 must (u <= 32) unless signed */
    int bias;
    bool min; /* acc = fma(m, s, acc) after each step */
};

/* Where the parts of an activation row are, in bytes from its start. */
struct tile_b_act {
    size_t d, sum32, s;
};

/* Where unpacked codes go. n == 0: into the tile; otherwise they meet n columns, from activation block `block` on. */
struct tile_b_sink {
    struct tile_b_shape s;
    int n;
    struct tile_b_act o;
    size_t block;
    const char *x[TILE_DIRECT];
    __m256i a[TILE_DIRECT], b[TILE_DIRECT]; /* sums of the step at hand */
    __m256 f[TILE_DIRECT];                  /* the float chain */
};

/* Unpacks one weight block to octets g and following. */
typedef void (*tile_b_unpack_fn)(struct tile_b *t, struct tile_b_sink *k, const struct tile_rows *r, int g);

MC_INLINE struct tile_b_act tile_b_act_of(const void *x, size_t k)
{
    const struct kern_q8_0 v = kern_q8_0_view(x, k);
    const char *base = x;
    return (struct tile_b_act){(size_t)((const char *)v.d - base), (size_t)((const char *)v.sum32 - base),
                               (size_t)((const char *)v.s - base)};
}

/* sum + the products of one octet: int32 for signed codes, otherwise int16 */
MC_INLINE __m256i tile_b_add(__m256i sum, __m256i w, __m256i x, const struct tile_b_shape s)
{
    const __m256i dot = tile_dot(w, x, s.is_signed);
    return s.is_signed ? tile_add_32(sum, _mm256_madd_epi16(dot, _mm256_set1_epi16(1))) : tile_add_16(sum, dot);
}

/* f + one step of the float chain: step h of the tile, activation block b. */
MC_INLINE __m256 tile_b_finish(const struct tile_b *t, const char *row, struct tile_b_act o, size_t b, int h, __m256i sum_a,
                               __m256i sum_b, __m256 f, const struct tile_b_shape s)
{
    const __m256i one = _mm256_set1_epi16(1);
    __m256i sum;
    if (s.narrow)
        sum = _mm256_madd_epi16(_mm256_hadd_epi16(sum_a, sum_b), one);
    else if (s.is_signed)
        sum = _mm256_hadd_epi32(sum_a, sum_b);
    else
        sum = _mm256_hadd_epi32(_mm256_madd_epi16(sum_a, one), _mm256_madd_epi16(sum_b, one));
    if (s.bias) {
        int16_t sum32;
        memcpy(&sum32, row + o.sum32 + 2 * b, 2);
        sum = _mm256_sub_epi32(sum, _mm256_madd_epi16(_mm256_set1_epi16(sum32), _mm256_set1_epi32(s.bias)));
    }
    f = _mm256_fmadd_ps(_mm256_mul_ps(t->d[h], tile_float(row + o.d + 4 * b)), _mm256_cvtepi32_ps(sum), f);
    return s.min ? _mm256_fmadd_ps(t->m[h], tile_float(row + o.s + 4 * b), f) : f;
}

/* Octets g, g+1 (g even) of A and B. */
MC_INLINE void tile_b_put(struct tile_b *t, struct tile_b_sink *k, int g, const struct tile_16 w)
{
    if (k->n == 0)
        for (int i = 0; i < 4; i++) t->w[2 * g + i] = w.v[i];
    for (int c = 0; c < k->n; c++) {
        const char *q = k->x[c] + 32 * k->block + 8 * g;
        const __m256i x0 = tile_broadcast_8(q), x1 = tile_broadcast_8(q + 8), zero = _mm256_setzero_si256();
        const bool first = g % k->s.step == 0, last = g % k->s.step == k->s.step - 2;
        k->a[c] = tile_b_add(tile_b_add(first ? zero : k->a[c], w.v[0], x0, k->s), w.v[2], x1, k->s);
        k->b[c] = tile_b_add(tile_b_add(first ? zero : k->b[c], w.v[1], x0, k->s), w.v[3], x1, k->s);
        if (last)
            k->f[c] = tile_b_finish(t, k->x[c], k->o, k->block + (size_t)g / 4, g / k->s.step, k->a[c], k->b[c], k->f[c], k->s);
    }
}

/* n columns (a constant, at most 4) of activation blocks b .. b+blocks-1, which fill the tile. */
MC_INLINE void tile_b_columns(const struct tile_b *t, const void *const *x, struct tile_b_act o, size_t b, int blocks,
                              float (*acc)[8], const int n, const struct tile_b_shape s)
{
    const char *q[4];
    for (int c = 0; c < n; c++) q[c] = (const char *)x[c] + 32 * b;
    for (int g = 0; g < 4 * blocks; g += s.step) {
        __m256i sum_a[4], sum_b[4];
        for (int c = 0; c < n; c++) sum_a[c] = sum_b[c] = _mm256_setzero_si256();
        for (int v = 0; v < s.step; v++) {
            const __m256i wa = t->w[2 * (g + v)], wb = t->w[2 * (g + v) + 1];
            for (int c = 0; c < n; c++) {
                const __m256i a = tile_broadcast_8(q[c] + 8 * (g + v));
                sum_a[c] = tile_b_add(sum_a[c], wa, a, s);
                sum_b[c] = tile_b_add(sum_b[c], wb, a, s);
            }
        }
        for (int c = 0; c < n; c++) {
            const __m256 f =
                tile_b_finish(t, x[c], o, b + (size_t)g / 4, g / s.step, sum_a[c], sum_b[c], _mm256_loadu_ps(acc[c]), s);
            _mm256_storeu_ps(acc[c], f);
        }
    }
}

MC_INLINE void tile_b_shared(const struct tile_b *t, const void *const *x, struct tile_b_act o, size_t b, int blocks,
                             float (*acc)[8], size_t cols, const struct tile_b_shape s)
{
    size_t c = 0;
    for (; c + 4 <= cols; c += 4) tile_b_columns(t, x + c, o, b, blocks, acc + c, 4, s);
    switch (cols - c) {
    case 3:
        tile_b_columns(t, x + c, o, b, blocks, acc + c, 3, s);
        break;
    case 2:
        tile_b_columns(t, x + c, o, b, blocks, acc + c, 2, s);
        break;
    case 1:
        tile_b_columns(t, x + c, o, b, blocks, acc + c, 1, s);
        break;
    default:
        break;
    }
}

/* 8 rows, any number of columns, through the tile. */
MC_INLINE void tile_b_rows(float (*acc)[8], struct tile_rows r, const void *const *x, size_t k, size_t cols, size_t block_bytes,
                           tile_b_unpack_fn unpack, const struct tile_b_shape s)
{
    const struct tile_b_act o = tile_b_act_of(x[0], k);
    struct tile_b_sink sink = {.s = s, .n = 0};
    struct tile_b t;
    memset(acc, 0, cols * sizeof acc[0]);
    for (size_t i0 = 0; i0 < k; i0 += 256) {
        const int len = k - i0 < 256 ? (int)(k - i0) : 256;
        for (int i = 0; i < len; i += s.len) {
            unpack(&t, &sink, &r, i / 8);
            tile_advance(&r, block_bytes);
        }
        tile_b_shared(&t, x, o, i0 / 32, len / 32, acc, cols, s);
    }
}

/* 8 rows, n columns (a constant), codes straight from the registers. */
MC_INLINE void tile_b_direct(float (*acc)[8], struct tile_rows r, const void *const *x, size_t k, const int n,
                             size_t block_bytes, tile_b_unpack_fn unpack, const struct tile_b_shape s)
{
    struct tile_b_sink sink;
    struct tile_b t;
    sink.s = s;
    sink.n = n;
    sink.o = tile_b_act_of(x[0], k);
    sink.block = 0;
    for (int c = 0; c < n; c++) {
        sink.x[c] = x[c];
        sink.f[c] = _mm256_setzero_ps();
    }
    for (size_t i = 0; i < k; i += (size_t)s.len) {
        unpack(&t, &sink, &r, 0);
        tile_advance(&r, block_bytes);
        sink.block += (size_t)s.len / 32;
    }
    for (int c = 0; c < n; c++) _mm256_storeu_ps(acc[c], sink.f[c]);
}

/* TILE_B_MATMUL(q4_0, 1, .len = 32, .step = 4, .bias = 8, .narrow = true) makes matmul_q4_0 from block_q4_0 and unpack_q4_0.
 * One function for each way, not inlined: register allocation falls apart when they share one. */
#define TILE_B_DIRECT(name, n, shape)                                                                                          \
    static MC_NOINLINE void rows_##name##_##n(float(*acc)[8], const struct tile_rows *r, const void *const *x, size_t k,       \
                                              size_t cols)                                                                     \
    {                                                                                                                          \
        (void)cols;                                                                                                            \
        tile_b_direct(acc, *r, x, k, n, sizeof(struct block_##name), unpack_##name, shape);                                    \
    }
#define TILE_B_MATMUL(name, most, ...)                                                                                         \
    static MC_NOINLINE void rows_##name##_0(float(*acc)[8], const struct tile_rows *r, const void *const *x, size_t k,         \
                                            size_t cols)                                                                       \
    {                                                                                                                          \
        tile_b_rows(acc, *r, x, k, cols, sizeof(struct block_##name), unpack_##name, (struct tile_b_shape){__VA_ARGS__});      \
    }                                                                                                                          \
    TILE_UP_TO_##most(TILE_B_DIRECT, name, ((struct tile_b_shape){__VA_ARGS__})) static void matmul_##name(                    \
        float *const *y, const void *w, size_t w_stride, const void *const *x, size_t k, size_t rows, size_t cols)             \
    {                                                                                                                          \
        static const tile_rows_fn ways[TILE_DIRECT + 1] = TILE_WAYS_##most(name);                                              \
        assert(k % (size_t)((struct tile_b_shape){__VA_ARGS__}).len == 0);                                                     \
        tile_matmul(y, w, w_stride, x, k, rows, cols, ways);                                                                   \
    }

#endif
