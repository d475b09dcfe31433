/* tile_q8_k.h - products with Q8_K activations: everything about a 256-wide format but its unpacking.
 *
 *   I = sum over sub-blocks of scale * sum(u * a)  -  sum over sub-blocks of fix * sum(a)      u = code + bias, fix = bias *
 * scale M = sum over sub-blocks of min * sum(a)
 *
 * A format's unpack function sets the scales and hands over its codes 16 columns at a time (tile_k_put). For a few activation
 * columns these are multiplied on the spot and never leave the registers; for more they go to a tile (tile.h) that all columns
 * share. An always-inline template: `unpack`, `shape` and the number of columns are constants of each instance. */
#ifndef KERNELS_AVX2_TILE_Q8_K_H
#define KERNELS_AVX2_TILE_Q8_K_H

#include "kernels/avx2/tile.h"

struct tile_k {
    __m256i scale[32]; /* [sub-block][A, B]: four equal int16 in each lane */
    __m256i fix[8];    /* [four sub-blocks][A, B]: four int16 in each lane; or the minima, for formats that have them */
    __m256 d, dmin;    /* lane = row */
    __m256i w[2 * TILE_OCTETS];
};

struct tile_k_shape {
    int sub;        /* octets of a sub-block: 2, 4, 32 (32: no scale at all) */
    int group;      /* octets whose products fit int16: 1, 2, 4, 32 */
    bool is_signed; /* codes signed, no fix */
    bool fix;
    bool min;
    bool split; /* magnitudes and signs come apart (codebook.h): fix only in the tile */
};

/* Where unpacked codes go. n == 0: into the tile; otherwise they meet block q[c] of n columns. */
struct tile_k_sink {
    struct tile_k_shape s;
    int n;
    const char *q[TILE_DIRECT];
    __m256i a[TILE_DIRECT], b[TILE_DIRECT];
};

typedef void (*tile_k_unpack_fn)(struct tile_k *t, struct tile_k_sink *k, const struct tile_rows *r);

/* Where the parts of an activation row are, in bytes from its start. */
struct tile_k_act {
    size_t d, sums;
};

MC_INLINE struct tile_k_act tile_k_act_of(const void *x, size_t k, struct tile_k_shape s)
{
    const struct kern_q8_k v = kern_q8_k_view(x, k);
    const char *base = x, *sums = (const char *)(s.sub == 2 ? v.sum16 : v.sum32);
    return (struct tile_k_act){(size_t)((const char *)v.d - base), (size_t)(sums - base)};
}

MC_INLINE __m256i tile_k_scale(const struct tile_k *t, struct tile_k_shape s, int g, int i)
{
    return s.sub == 32 ? _mm256_set1_epi16(1) : t->scale[2 * (g / s.sub) + i];
}

/* Octets g, g+1 (g even) of A and B. */
MC_INLINE void tile_k_put(struct tile_k *t, struct tile_k_sink *k, int g, const struct tile_16 w)
{
    if (k->n == 0)
        for (int i = 0; i < 4; i++) t->w[2 * g + i] = w.v[i];
    for (int c = 0; c < k->n; c++) {
        const __m256i sa = tile_k_scale(t, k->s, g, 0), sb = tile_k_scale(t, k->s, g, 1);
        const __m256i x0 = tile_broadcast_8(k->q[c] + 8 * g), x1 = tile_broadcast_8(k->q[c] + 8 * g + 8);
        const __m256i a0 = tile_dot(w.v[0], x0, k->s.is_signed), b0 = tile_dot(w.v[1], x0, k->s.is_signed);
        const __m256i a1 = tile_dot(w.v[2], x1, k->s.is_signed), b1 = tile_dot(w.v[3], x1, k->s.is_signed);
        if (k->s.group == 1) {
            k->a[c] = tile_add_32(k->a[c], _mm256_madd_epi16(a0, sa));
            k->b[c] = tile_add_32(k->b[c], _mm256_madd_epi16(b0, sb));
            k->a[c] = tile_add_32(k->a[c], _mm256_madd_epi16(a1, sa));
            k->b[c] = tile_add_32(k->b[c], _mm256_madd_epi16(b1, sb));
        } else {
            k->a[c] = tile_add_32(k->a[c], _mm256_madd_epi16(_mm256_add_epi16(a0, a1), sa));
            k->b[c] = tile_add_32(k->b[c], _mm256_madd_epi16(_mm256_add_epi16(b0, b1), sb));
        }
    }
}

/* The same for magnitudes whose signs are apart: -1 where the weight is negative. The sign goes to the activation. */
MC_INLINE void tile_k_put_split(const struct tile_k *t, struct tile_k_sink *k, int g, const struct tile_16 w,
                                const struct tile_16 minus)
{
    const __m256i sa = tile_k_scale(t, k->s, g, 0), sb = tile_k_scale(t, k->s, g, 1);
    struct tile_16 sign;
    for (int i = 0; i < 4; i++) sign.v[i] = _mm256_or_si256(minus.v[i], _mm256_set1_epi8(1));
    for (int c = 0; c < k->n; c++) {
        const __m256i x0 = tile_broadcast_8(k->q[c] + 8 * g), x1 = tile_broadcast_8(k->q[c] + 8 * g + 8);
        const __m256i a0 = _mm256_maddubs_epi16(w.v[0], _mm256_sign_epi8(x0, sign.v[0]));
        const __m256i b0 = _mm256_maddubs_epi16(w.v[1], _mm256_sign_epi8(x0, sign.v[1]));
        const __m256i a1 = _mm256_maddubs_epi16(w.v[2], _mm256_sign_epi8(x1, sign.v[2]));
        const __m256i b1 = _mm256_maddubs_epi16(w.v[3], _mm256_sign_epi8(x1, sign.v[3]));
        k->a[c] = tile_add_32(k->a[c], _mm256_madd_epi16(_mm256_add_epi16(a0, a1), sa));
        k->b[c] = tile_add_32(k->b[c], _mm256_madd_epi16(_mm256_add_epi16(b0, b1), sb));
    }
}

/* The float chain of one column: adds block b to acc. */
MC_INLINE void tile_k_finish(const struct tile_k *t, const char *row, struct tile_k_act o, size_t b, __m256i sum_a,
                             __m256i sum_b, float acc[8], const struct tile_k_shape s)
{
    const int subs = s.sub == 2 ? 16 : 8;
    __m256i min_a = _mm256_setzero_si256(), min_b = min_a;
    for (int j = 0; j < subs / 4 && (s.fix || s.min); j++) {
        const __m256i sums = tile_broadcast_8(row + o.sums + b * (size_t)(2 * subs) + 8 * j);
        const __m256i fa = _mm256_madd_epi16(t->fix[2 * j], sums), fb = _mm256_madd_epi16(t->fix[2 * j + 1], sums);
        if (s.fix) sum_a = _mm256_sub_epi32(sum_a, fa), sum_b = _mm256_sub_epi32(sum_b, fb);
        if (s.min) min_a = tile_add_32(min_a, fa), min_b = tile_add_32(min_b, fb);
    }
    const __m256 da = tile_float(row + o.d + 4 * b), sum = _mm256_cvtepi32_ps(_mm256_hadd_epi32(sum_a, sum_b));
    __m256 f = _mm256_fmadd_ps(_mm256_mul_ps(t->d, da), sum, _mm256_loadu_ps(acc));
    if (s.min) f = _mm256_fnmadd_ps(_mm256_mul_ps(t->dmin, da), _mm256_cvtepi32_ps(_mm256_hadd_epi32(min_a, min_b)), f);
    _mm256_storeu_ps(acc, f);
}

/* Block b, n columns (a constant) without a tile. */
MC_INLINE void tile_k_direct(struct tile_k *t, const struct tile_rows *r, const void *const *x, struct tile_k_act o, size_t b,
                             float (*acc)[8], const int n, tile_k_unpack_fn unpack, const struct tile_k_shape s)
{
    struct tile_k_sink k;
    k.s = s;
    k.n = n;
    for (int c = 0; c < n; c++) {
        k.q[c] = (const char *)x[c] + 256 * b;
        k.a[c] = k.b[c] = _mm256_setzero_si256();
    }
    unpack(t, &k, r);
    struct tile_k_shape f = s;
    f.fix = s.fix && !s.split;
    for (int c = 0; c < n; c++) tile_k_finish(t, x[c], o, b, k.a[c], k.b[c], acc[c], f);
}

/* Block b of the tile, n columns (a constant, at most 4). */
MC_INLINE void tile_k_columns(const struct tile_k *t, const void *const *x, struct tile_k_act o, size_t b, float (*acc)[8],
                              const int n, const struct tile_k_shape s)
{
    const char *q[4];
    __m256i sum_a[4], sum_b[4];
    for (int c = 0; c < n; c++) {
        q[c] = (const char *)x[c] + 256 * b;
        sum_a[c] = sum_b[c] = _mm256_setzero_si256();
    }
    const int span = s.group < s.sub ? s.group : s.sub; /* octets summed in int16 */
    for (int g = 0; g < TILE_OCTETS; g += span) {
        __m256i pa[4], pb[4];
        for (int v = 0; v < span; v++) {
            const __m256i wa = t->w[2 * (g + v)], wb = t->w[2 * (g + v) + 1];
            for (int c = 0; c < n; c++) {
                const __m256i a = tile_broadcast_8(q[c] + 8 * (g + v));
                const __m256i da = tile_dot(wa, a, s.is_signed), db = tile_dot(wb, a, s.is_signed);
                pa[c] = v ? tile_add_16(pa[c], da) : da;
                pb[c] = v ? tile_add_16(pb[c], db) : db;
            }
        }
        const __m256i sa = tile_k_scale(t, s, g, 0), sb = tile_k_scale(t, s, g, 1);
        for (int c = 0; c < n; c++) {
            sum_a[c] = tile_add_32(sum_a[c], _mm256_madd_epi16(pa[c], sa));
            sum_b[c] = tile_add_32(sum_b[c], _mm256_madd_epi16(pb[c], sb));
        }
    }
    for (int c = 0; c < n; c++) tile_k_finish(t, x[c], o, b, sum_a[c], sum_b[c], acc[c], s);
}

MC_INLINE void tile_k_shared(const struct tile_k *t, const void *const *x, struct tile_k_act o, size_t b, float (*acc)[8],
                             size_t cols, const struct tile_k_shape s)
{
    size_t c = 0;
    for (; c + 4 <= cols; c += 4) tile_k_columns(t, x + c, o, b, acc + c, 4, s);
    switch (cols - c) {
    case 3:
        tile_k_columns(t, x + c, o, b, acc + c, 3, s);
        break;
    case 2:
        tile_k_columns(t, x + c, o, b, acc + c, 2, s);
        break;
    case 1:
        tile_k_columns(t, x + c, o, b, acc + c, 1, s);
        break;
    default:
        break;
    }
}

/* 8 rows, cols columns; direct (a constant): cols, or 0 to go through the tile. */
MC_INLINE void tile_k_rows(float (*acc)[8], struct tile_rows r, const void *const *x, size_t k, size_t cols, size_t block_bytes,
                           tile_k_unpack_fn unpack, const struct tile_k_shape s, const int direct)
{
    const struct tile_k_act o = tile_k_act_of(x[0], k, s);
    struct tile_k t;
    memset(acc, 0, cols * sizeof acc[0]);
    for (size_t b = 0; b < k / 256; b++) {
        if (direct) {
            tile_k_direct(&t, &r, x, o, b, acc, direct, unpack, s);
        } else {
            struct tile_k_sink sink = {.s = s, .n = 0};
            unpack(&t, &sink, &r);
            tile_k_shared(&t, x, o, b, acc, cols, s);
        }
        tile_advance(&r, block_bytes);
    }
}

/* TILE_K_MATMUL(q4_K, 3, .sub = 4, .group = 4, .min = true) makes matmul_q4_K from block_q4_K and unpack_q4_K. One function for
 * each way, not inlined: register allocation falls apart when they share one. */
#define TILE_K_ROWS(name, direct, shape)                                                                                       \
    static MC_NOINLINE void rows_##name##_##direct(float(*acc)[8], const struct tile_rows *r, const void *const *x, size_t k,  \
                                                   size_t cols)                                                                \
    {                                                                                                                          \
        tile_k_rows(acc, *r, x, k, cols, sizeof(struct block_##name), unpack_##name, shape, direct);                           \
    }
#define TILE_K_MATMUL(name, most, ...)                                                                                         \
    TILE_K_ROWS(name, 0, ((struct tile_k_shape){__VA_ARGS__}))                                                                 \
    TILE_UP_TO_##most(TILE_K_ROWS, name, ((struct tile_k_shape){__VA_ARGS__})) static void matmul_##name(                      \
        float *const *y, const void *w, size_t w_stride, const void *const *x, size_t k, size_t rows, size_t cols)             \
    {                                                                                                                          \
        static const tile_rows_fn ways[TILE_DIRECT + 1] = TILE_WAYS_##most(name);                                              \
        assert(k % 256 == 0);                                                                                                  \
        tile_matmul(y, w, w_stride, x, k, rows, cols, ways);                                                                   \
    }

#endif
