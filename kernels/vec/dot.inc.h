/* dot.inc.h - dot products by rule R2 and the matrix products of the float formats.
 *
 * A tile is na rows of A against nb rows of B: na * nb independent chains of fma hide the latency of each other, a value of A
 * is loaded (and converted) once for nb products, one of B for na. Where 16 partial sums need two registers (AVX2) each half is
 * summed by itself over a stretch of columns short enough to stay in the first cache. Rows that are missing at an edge are
 * replaced by a neighbour's pointer and their result is dropped, so every output is made by the same instructions. */
#ifndef KERNELS_VEC_DOT_INC_H
#define KERNELS_VEC_DOT_INC_H

enum {
    DOT_TILE = 16,  /* at most so many products in a tile */
    DOT_STRIP = 24, /* rows: whole tiles of every shape */
};

/* Columns [i0, i1), a multiple of 16, for `parts` parts of the partial sums from `part` on. sums[p][j*na + i] is part p of
 * (a[i], b[j]). */
MC_INLINE void dot_stretch(vf (*sums)[DOT_TILE], enum vec_kind kind, const void *const *a, const float *const *b, size_t i0,
                           size_t i1, size_t part, size_t parts, int na, int nb)
{
    vf s[VEC_PARTS][DOT_TILE];
    for (size_t p = 0; p < parts; p++)
        for (int t = 0; t < na * nb; t++) s[p][t] = sums[part + p][t];
    for (size_t i = i0 + part * VL; i < i1; i += 16)
        for (size_t p = 0; p < parts; p++) {
            vf y[DOT_TILE];
            for (int j = 0; j < nb; j++) y[j] = v_load(b[j] + i + p * VL);
            for (int k = 0; k < na; k++) {
                const vf x = v_load_kind(kind, a[k], i + p * VL);
                for (int j = 0; j < nb; j++) s[p][j * na + k] = v_fma(x, y[j], s[p][j * na + k]);
            }
        }
    for (size_t p = 0; p < parts; p++)
        for (int t = 0; t < na * nb; t++) sums[part + p][t] = s[p][t];
}

/* The last n % 16 columns, padded with zeros; all 16 partial sums make the step. */
MC_INLINE void dot_tail(vf (*sums)[DOT_TILE], enum vec_kind kind, const void *const *a, const float *const *b, size_t i,
                        size_t n, int na, int nb)
{
    for (size_t part = 0; part < VEC_PARTS; part++, i += VL) {
        const size_t count = i < n ? vec_min(n - i, VL) : 0, at = i < n ? i : 0;
        for (int k = 0; k < na; k++) {
            const vf x = v_load_kind_part(kind, a[k], at, count);
            for (int j = 0; j < nb; j++)
                sums[part][j * na + k] = v_fma(x, v_load_part(b[j] + at, count), sums[part][j * na + k]);
        }
    }
}

/* One dot product: a single chain, for a single row or a tile of one. */
MC_INLINE float dot_one(enum vec_kind kind, const void *a, const float *b, size_t n)
{
    vf s[VEC_PARTS];
    const size_t whole = n / 16 * 16;
    for (int p = 0; p < VEC_PARTS; p++) s[p] = v_zero();
    for (size_t i = 0; i < whole; i += 16)
        for (size_t p = 0; p < VEC_PARTS; p++) s[p] = v_fma(v_load_kind(kind, a, i + p * VL), v_load(b + i + p * VL), s[p]);
    for (size_t p = 0, i = whole; whole < n && p < VEC_PARTS; p++, i += VL) {
        const size_t count = i < n ? vec_min(n - i, VL) : 0, at = i < n ? i : 0;
        s[p] = v_fma(v_load_kind_part(kind, a, at, count), v_load_part(b + at, count), s[p]);
    }
    return v_sum16(s);
}

/* out[j*na + i] = dot(a[i], b[j]) over n columns. kind, na, nb are constants; out has room for whole registers. */
MC_INLINE void dot_tile(float *out, enum vec_kind kind, const void *const *a, const float *const *b, size_t n, int na, int nb)
{
    if (na * nb == 1) {
        *out = dot_one(kind, a[0], b[0], n);
        return;
    }
    /* All parts at once if the registers allow it. */
    const size_t parts = na * nb * VEC_PARTS <= TILE_ROWS * TILE_COLS ? VEC_PARTS : 1;
    const size_t whole = n / 16 * 16, step = parts == VEC_PARTS ? whole : 512;
    vf sums[VEC_PARTS][DOT_TILE];
    for (size_t p = 0; p < VEC_PARTS; p++)
        for (int t = 0; t < DOT_TILE; t++) sums[p][t] = v_zero();
    for (size_t i = 0; i < whole; i += step)
        for (size_t p = 0; p < VEC_PARTS; p += parts)
            dot_stretch(sums, kind, a, b, i, vec_min(i + step, whole), p, parts, na, nb);
    if (whole < n) dot_tail(sums, kind, a, b, whole, n, na, nb);
    for (int t = 0; t < na * nb; t += VL) v_store(out + t, v_sum16_block(&sums[0][t], DOT_TILE));
}

/* Rows [r0, r1) against columns c .. c + nb-1, of which `cols` exist. */
MC_INLINE void matmul_strip(enum vec_kind kind, float *const *y, const char *w, size_t w_stride, const void *const *x, size_t k,
                            size_t r0, size_t r1, size_t c, size_t cols, int na, int nb)
{
    const float *b[DOT_TILE];
    for (int j = 0; j < nb; j++) b[j] = x[c + vec_min((size_t)j, cols - 1)];
    for (size_t r = r0; r < r1; r += (size_t)na) {
        const void *a[DOT_TILE];
        float out[DOT_TILE];
        const size_t rows = vec_min((size_t)na, r1 - r);
        for (int i = 0; i < na; i++) a[i] = w + (r + vec_min((size_t)i, rows - 1)) * w_stride;
        dot_tile(out, kind, a, b, k, na, nb);
        for (size_t j = 0; j < cols; j++) memcpy(y[c + j] + r, out + j * (size_t)na, rows * sizeof(float));
    }
}

/* Strips of 24 rows meet all columns of a block while they are in cache; a block of columns (about 512 KiB of x) is kept for
 * all rows. Neither changes a sum. */
MC_INLINE void matmul_float(enum vec_kind kind, float *const *y, const void *w, size_t w_stride, const void *const *x, size_t k,
                            size_t rows, size_t cols)
{
    if (rows == 1 && cols == 1) {
        y[0][0] = dot_one(kind, w, x[0], k);
        return;
    }
    const size_t fits = ((size_t)1 << 17) / k / 4 * 4, block = fits < 4 ? 4 : fits;
    for (size_t c0 = 0; c0 < cols; c0 += block) {
        const size_t c1 = vec_min(cols, c0 + block);
        for (size_t r = 0; r < rows; r += DOT_STRIP) {
            const size_t r1 = vec_min(rows, r + DOT_STRIP);
            for (size_t c = c0, n; c < c1; c += n) {
                n = TWO_COL_ROWS > 0 && c1 - c == TILE_COLS + 1 ? 2 : vec_min(TILE_COLS, c1 - c);
                if (n == 1)
                    matmul_strip(kind, y, w, w_stride, x, k, r, r1, c, n, ONE_COL_ROWS, 1);
                else if (n == 2 && TWO_COL_ROWS > 0)
                    matmul_strip(kind, y, w, w_stride, x, k, r, r1, c, n, TWO_COL_ROWS, 2);
                else
                    matmul_strip(kind, y, w, w_stride, x, k, r, r1, c, n, TILE_ROWS, TILE_COLS);
            }
        }
    }
}

static void matmul_f32(float *const *y, const void *w, size_t w_stride, const void *const *x, size_t k, size_t rows,
                       size_t cols)
{
    matmul_float(VEC_F32, y, w, w_stride, x, k, rows, cols);
}

static void matmul_f16(float *const *y, const void *w, size_t w_stride, const void *const *x, size_t k, size_t rows,
                       size_t cols)
{
    matmul_float(VEC_F16, y, w, w_stride, x, k, rows, cols);
}

static void matmul_bf16(float *const *y, const void *w, size_t w_stride, const void *const *x, size_t k, size_t rows,
                        size_t cols)
{
    matmul_float(VEC_BF16, y, w, w_stride, x, k, rows, cols);
}

#endif
