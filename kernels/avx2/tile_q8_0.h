/* tile_q8_0.h - products of a tile (tile.h) with Q8_0 activations: everything about a 32-wide format but its unpacking.
 *
 * A tile covers up to 8 activation blocks of 32 columns; the float chain makes one step for each (nvfp4: two), so sums stay in
 * int16 as long as the codes allow:    I = sum(u * a) - bias * sum32
 *
 * An always-inline template: `unpack` and `shape` are constants of each instance. */
#ifndef KERNELS_AVX2_TILE_Q8_0_H
#define KERNELS_AVX2_TILE_Q8_0_H

#include "kernels/avx2/tile.h"

struct tile_b {
    __m256i w[2 * TILE_OCTETS];
    __m256 d[16]; /* [step], lane = row */
    __m256 m[8];
};

struct tile_b_shape {
    int len;        /* columns of a weight block */
    int step;       /* octets of a float step: 4 (nvfp4: 2) */
    bool is_signed; /* codes signed, no bias */
    bool narrow;    /* u <= 16: 16 products fit int16; otherwise 8 must (u <= 32) unless signed */
    int bias;
    bool min; /* acc = fma(m, s, acc) after each step */
};

/* Unpacks one weight block into columns of the tile that start at octet g. */
typedef void (*tile_b_unpack_fn)(struct tile_b *t, const struct tile_rows *r, int g);

/* Where the parts of an activation row are, in bytes from its start. */
struct tile_b_act {
    size_t d, sum32, s;
};

MC_INLINE struct tile_b_act tile_b_act_of(const void *x, size_t k)
{
    const struct kern_q8_0 v = kern_q8_0_view(x, k);
    const char *base = x;
    return (struct tile_b_act){(size_t)((const char *)v.d - base), (size_t)((const char *)v.sum32 - base),
                               (size_t)((const char *)v.s - base)};
}

MC_INLINE __m256 tile_b_float(const char *p)
{
    float f;
    memcpy(&f, p, 4);
    return _mm256_set1_ps(f);
}

/* int32 sums of one step, lane = row; g: its first octet */
MC_INLINE __m256i tile_b_step(const struct tile_b *t, const char *q, int g, const struct tile_b_shape s)
{
    const __m256i one = _mm256_set1_epi16(1);
    __m256i a = _mm256_setzero_si256(), b = a;
    for (int v = 0; v < s.step; v++) {
        const __m256i x = tile_broadcast_8(q + 8 * (g + v));
        __m256i da = tile_dot(t->w[2 * (g + v)], x, s.is_signed), db = tile_dot(t->w[2 * (g + v) + 1], x, s.is_signed);
        if (s.is_signed) {
            a = _mm256_add_epi32(a, _mm256_madd_epi16(da, one));
            b = _mm256_add_epi32(b, _mm256_madd_epi16(db, one));
        } else {
            a = _mm256_add_epi16(a, da);
            b = _mm256_add_epi16(b, db);
        }
    }
    if (s.narrow) return _mm256_madd_epi16(_mm256_hadd_epi16(a, b), one);
    if (!s.is_signed) a = _mm256_madd_epi16(a, one), b = _mm256_madd_epi16(b, one);
    return _mm256_hadd_epi32(a, b);
}

/* n columns (a constant, at most 4) of activation blocks b .. b+blocks-1. */
MC_INLINE void tile_b_columns(const struct tile_b *t, const void *const *x, struct tile_b_act o, size_t b, int blocks,
                              float (*acc)[8], const int n, const struct tile_b_shape s)
{
    __m256 f[4];
    for (int c = 0; c < n; c++) f[c] = _mm256_loadu_ps(acc[c]);
    for (int j = 0; j < blocks; j++) {
        for (int c = 0; c < n; c++) {
            const char *row = x[c];
            const __m256 da = tile_b_float(row + o.d + 4 * (b + (size_t)j));
            for (int h = 0; h < 4 / s.step; h++) {
                __m256i sum = tile_b_step(t, row + 32 * b, 4 * j + s.step * h, s);
                if (s.bias) {
                    int16_t sum32;
                    memcpy(&sum32, row + o.sum32 + 2 * (b + (size_t)j), 2);
                    sum = _mm256_sub_epi32(sum, _mm256_madd_epi16(_mm256_set1_epi16(sum32), _mm256_set1_epi32(s.bias)));
                }
                f[c] = _mm256_fmadd_ps(_mm256_mul_ps(t->d[4 / s.step * j + h], da), _mm256_cvtepi32_ps(sum), f[c]);
            }
            if (s.min) f[c] = _mm256_fmadd_ps(t->m[j], tile_b_float(row + o.s + 4 * (b + (size_t)j)), f[c]);
        }
    }
    for (int c = 0; c < n; c++) _mm256_storeu_ps(acc[c], f[c]);
}

MC_INLINE void tile_b_block(const struct tile_b *t, const void *const *x, struct tile_b_act o, size_t b, int blocks,
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

MC_INLINE void tile_b_matmul(float *const *y, const void *w, size_t w_stride, const void *const *x, size_t k, size_t rows,
                             size_t cols, size_t block_bytes, tile_b_unpack_fn unpack, const struct tile_b_shape s)
{
    assert(k % (size_t)s.len == 0);
    const struct tile_b_act o = tile_b_act_of(x[0], k);
    for (size_t c0 = 0; c0 < cols; c0 += TILE_COLS_MAX) {
        const size_t n = cols - c0 < TILE_COLS_MAX ? cols - c0 : TILE_COLS_MAX;
        for (size_t r0 = 0; r0 < rows; r0 += TILE_ROWS) {
            const size_t m = rows - r0 < TILE_ROWS ? rows - r0 : TILE_ROWS;
            struct tile_rows r = tile_rows_at((const uint8_t *)w + r0 * w_stride, w_stride, m);
            float acc[TILE_COLS_MAX][TILE_ROWS];
            struct tile_b t;
            memset(acc, 0, n * sizeof acc[0]);
            for (size_t i0 = 0; i0 < k; i0 += 256) {
                const int len = k - i0 < 256 ? (int)(k - i0) : 256;
                for (int i = 0; i < len; i += s.len) {
                    unpack(&t, &r, i / 8);
                    tile_advance(&r, block_bytes);
                }
                tile_b_block(&t, x + c0, o, i0 / 32, len / 32, acc, n, s);
            }
            for (size_t c = 0; c < n; c++) tile_store(y[c0 + c] + r0, acc[c], m);
        }
    }
}

/* TILE_B_MATMUL(q4_0, .len = 32, .step = 4, .bias = 8, .narrow = true) makes matmul_q4_0 from block_q4_0 and unpack_q4_0. */
#define TILE_B_MATMUL(name, ...)                                                                                               \
    static void matmul_##name(float *const *y, const void *w, size_t w_stride, const void *const *x, size_t k, size_t rows,    \
                              size_t cols)                                                                                     \
    {                                                                                                                          \
        tile_b_matmul(y, w, w_stride, x, k, rows, cols, sizeof(struct block_##name), unpack_##name,                            \
                      (struct tile_b_shape){__VA_ARGS__});                                                                     \
    }

#endif
