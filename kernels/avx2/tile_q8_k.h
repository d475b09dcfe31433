/* tile_q8_k.h - products of a tile (tile.h) with Q8_K activations: everything about a 256-wide format but its unpacking.
 *
 *   I = sum over sub-blocks of scale * sum(u * a)  -  sum over sub-blocks of fix * sum(a)      u = code + bias, fix = bias *
 * scale M = sum over sub-blocks of min * sum(a)
 *
 * An always-inline template: `unpack` and `shape` are constants of each instance. */
#ifndef KERNELS_AVX2_TILE_Q8_K_H
#define KERNELS_AVX2_TILE_Q8_K_H

#include "kernels/avx2/tile.h"

struct tile_k {
    __m256i w[2 * TILE_OCTETS];
    __m256i scale[32]; /* [sub-block][A, B]: four equal int16 in each lane */
    __m256i fix[8];    /* [four sub-blocks][A, B]: four int16 in each lane; or the minima, for formats that have them */
    __m256 d, dmin;    /* lane = row */
};

struct tile_k_shape {
    int sub;        /* octets of a sub-block: 2, 4, 32 (32: no scale at all) */
    int group;      /* octets whose products fit int16; divides or exceeds sub */
    bool is_signed; /* codes signed, no fix */
    bool fix;
    bool min;
};

typedef void (*tile_k_unpack_fn)(struct tile_k *t, const struct tile_rows *r);

/* Where the parts of an activation row are, in bytes from its start, and which block is meant. */
struct tile_k_act {
    size_t q, d, sums;
};

MC_INLINE struct tile_k_act tile_k_act_of(const void *x, size_t k, struct tile_k_shape s)
{
    const struct kern_q8_k v = kern_q8_k_view(x, k);
    const char *base = x, *sums = (const char *)(s.sub == 2 ? v.sum16 : v.sum32);
    return (struct tile_k_act){0, (size_t)((const char *)v.d - base), (size_t)(sums - base)};
}

/* sums of sub-blocks times four int16 a lane, one vector each for A and B */
MC_INLINE __m256i tile_k_sums(const __m256i *coef, const char *sums, int subs)
{
    __m256i a = _mm256_setzero_si256(), b = a;
    for (int j = 0; j < subs / 4; j++) {
        const __m256i s = tile_broadcast_8(sums + 8 * j);
        a = _mm256_add_epi32(a, _mm256_madd_epi16(coef[2 * j], s));
        b = _mm256_add_epi32(b, _mm256_madd_epi16(coef[2 * j + 1], s));
    }
    return _mm256_hadd_epi32(a, b);
}

/* n columns (a constant, at most 4) of block b. */
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
                pa[c] = v ? _mm256_add_epi16(pa[c], da) : da;
                pb[c] = v ? _mm256_add_epi16(pb[c], db) : db;
            }
        }
        const __m256i one = _mm256_set1_epi16(1);
        const __m256i sa = s.sub == 32 ? one : t->scale[2 * (g / s.sub)],
                      sb = s.sub == 32 ? one : t->scale[2 * (g / s.sub) + 1];
        for (int c = 0; c < n; c++) {
            sum_a[c] = _mm256_add_epi32(sum_a[c], _mm256_madd_epi16(pa[c], sa));
            sum_b[c] = _mm256_add_epi32(sum_b[c], _mm256_madd_epi16(pb[c], sb));
        }
    }
    for (int c = 0; c < n; c++) {
        const char *row = x[c];
        float d;
        memcpy(&d, row + o.d + 4 * b, 4);
        const __m256 da = _mm256_set1_ps(d);
        __m256i sum = _mm256_hadd_epi32(sum_a[c], sum_b[c]), other = _mm256_setzero_si256();
        if (s.fix || s.min) other = tile_k_sums(t->fix, row + o.sums + b * (s.sub == 2 ? 32 : 16), s.sub == 2 ? 16 : 8);
        if (s.fix) sum = _mm256_sub_epi32(sum, other);
        __m256 f = _mm256_fmadd_ps(_mm256_mul_ps(t->d, da), _mm256_cvtepi32_ps(sum), _mm256_loadu_ps(acc[c]));
        if (s.min) f = _mm256_fnmadd_ps(_mm256_mul_ps(t->dmin, da), _mm256_cvtepi32_ps(other), f);
        _mm256_storeu_ps(acc[c], f);
    }
}

MC_INLINE void tile_k_block(const struct tile_k *t, const void *const *x, struct tile_k_act o, size_t b, float (*acc)[8],
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

MC_INLINE void tile_k_matmul(float *const *y, const void *w, size_t w_stride, const void *const *x, size_t k, size_t rows,
                             size_t cols, size_t block_bytes, tile_k_unpack_fn unpack, const struct tile_k_shape s)
{
    assert(k % 256 == 0);
    const struct tile_k_act o = tile_k_act_of(x[0], k, s);
    for (size_t c0 = 0; c0 < cols; c0 += TILE_COLS_MAX) {
        const size_t n = cols - c0 < TILE_COLS_MAX ? cols - c0 : TILE_COLS_MAX;
        for (size_t r0 = 0; r0 < rows; r0 += TILE_ROWS) {
            const size_t m = rows - r0 < TILE_ROWS ? rows - r0 : TILE_ROWS;
            struct tile_rows r = tile_rows_at((const uint8_t *)w + r0 * w_stride, w_stride, m);
            float acc[TILE_COLS_MAX][TILE_ROWS];
            struct tile_k t;
            memset(acc, 0, n * sizeof acc[0]);
            for (size_t b = 0; b < k / 256; b++) {
                unpack(&t, &r);
                tile_k_block(&t, x + c0, o, b, acc, n, s);
                tile_advance(&r, block_bytes);
            }
            for (size_t c = 0; c < n; c++) tile_store(y[c0 + c] + r0, acc[c], m);
        }
    }
}

/* TILE_K_MATMUL(q4_K, .sub = 4, .group = 4, .min = true) makes matmul_q4_K from block_q4_K and unpack_q4_K. */
#define TILE_K_MATMUL(name, ...)                                                                                               \
    static void matmul_##name(float *const *y, const void *w, size_t w_stride, const void *const *x, size_t k, size_t rows,    \
                              size_t cols)                                                                                     \
    {                                                                                                                          \
        tile_k_matmul(y, w, w_stride, x, k, rows, cols, sizeof(struct block_##name), unpack_##name,                            \
                      (struct tile_k_shape){__VA_ARGS__});                                                                     \
    }

#endif
