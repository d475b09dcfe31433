/* attend.inc.h - attention of one token to a part of its rows, and the scores of the indexer.
 *
 *   scratch of attend_part:  | rows as floats [n_rows][dim] | scores, then weights [n_rows][heads of the block] |
 *
 * Each row is converted once for all heads. Heads go in blocks of 64. In the score matrix the lane is the head, so maximum, exp
 * and the sum in order of the rows need no shuffles. Both products are tiles: TILE_ROWS heads x TILE_COLS rows (scores),
 * TILE_ROWS heads x TILE_COLS registers of the value row (values). The phases are not inlined, so that each has all registers.
 */
#ifndef KERNELS_VEC_ATTEND_INC_H
#define KERNELS_VEC_ATTEND_INC_H

enum { ATTEND_HEADS = 64, INDEX_DIM = 512, AHEAD_ROWS = 8 };

/* p[r][h] = dot(q[h], rows[r]) * scale */
MC_NOINLINE static void attend_scores(float *p, const float *q, size_t n_heads, size_t dim, const float *rows, size_t n_rows,
                                      float scale)
{
    for (size_t r = 0; r < n_rows; r += TILE_COLS) {
        const size_t nr = vec_min(TILE_COLS, n_rows - r);
        const float *b[TILE_COLS];
        for (size_t j = 0; j < TILE_COLS; j++) b[j] = rows + (r + vec_min(j, nr - 1)) * dim;
        for (size_t h = 0; h < n_heads; h += TILE_ROWS) {
            const size_t nh = vec_min(TILE_ROWS, n_heads - h);
            const void *a[TILE_ROWS];
            float out[DOT_TILE] = {0};
            for (size_t i = 0; i < TILE_ROWS; i++) a[i] = q + (h + vec_min(i, nh - 1)) * dim;
            dot_tile(out, VEC_F32, a, b, dim, TILE_ROWS, TILE_COLS);
            for (int t = 0; t < DOT_TILE; t += VL) v_store(out + t, v_mul(v_load(out + t), v_set1(scale)));
            for (size_t j = 0; j < nr; j++) memcpy(p + (r + j) * n_heads + h, out + j * TILE_ROWS, nh * sizeof(float));
        }
    }
}

/* Scores become weights exp(s - max); m and z take the part in; the old values count `old` times, the new ones `fresh` times.
 */
MC_NOINLINE static void attend_weights(float *p, float *m, float *z, float *old, float *fresh, size_t n_heads, size_t n_rows)
{
    for (size_t h = 0; h < n_heads; h += VL) {
        const size_t count = vec_min(VL, n_heads - h);
        vf most = v_load_n(p + h, count), sum = v_zero();
        for (size_t r = 1; r < n_rows; r++) most = v_max(most, v_load_n(p + r * n_heads + h, count));
        for (size_t r = 0; r < n_rows; r++) {
            float *at = p + r * n_heads + h;
            const vf e = v_exp(v_sub(v_load_n(at, count), most));
            v_store_n(at, e, count);
            sum = v_add(sum, e);
        }
        const vf before = v_load_n(m + h, count), now = v_max(before, most);
        const vf a = v_exp(v_sub(before, now)), b = v_exp(v_sub(most, now));
        v_store_n(z + h, v_fma(v_load_n(z + h, count), a, v_mul(sum, b)), count);
        v_store_n(m + h, now, count);
        v_store(old + h, a);
        v_store(fresh + h, b);
    }
}

/* acc[h][0 .. nv*VL) for heads h .. h+TILE_ROWS-1, of which nh exist; v: the same columns of the first row. */
MC_INLINE void attend_tile(float *acc, const float *p, const float *old, const float *fresh, size_t nh, size_t n_heads,
                           size_t dim, const float *v, size_t n_rows, int nv)
{
    size_t head[TILE_ROWS];
    vf s[TILE_ROWS][TILE_COLS];
    for (size_t i = 0; i < TILE_ROWS; i++) {
        head[i] = vec_min(i, nh - 1);
        for (int j = 0; j < nv; j++) s[i][j] = v_zero();
    }
    for (size_t r = 0; r < n_rows; r++, v += dim, p += n_heads) {
        vf x[TILE_COLS];
        for (int j = 0; j < nv; j++) x[j] = v_load(v + j * VL);
        for (size_t i = 0; i < TILE_ROWS; i++) {
            const vf weight = v_set1(p[head[i]]);
            for (int j = 0; j < nv; j++) s[i][j] = v_fma(weight, x[j], s[i][j]);
        }
    }
    for (size_t i = 0; i < nh; i++)
        for (int j = 0; j < nv; j++) {
            float *at = acc + i * dim + (size_t)j * VL;
            v_store(at, v_fma(v_load(at), v_set1(old[i]), v_mul(s[i][j], v_set1(fresh[i]))));
        }
}

MC_NOINLINE static void attend_values(float *acc, const float *p, const float *old, const float *fresh, size_t n_heads,
                                      size_t dim, const float *rows, size_t n_rows)
{
    const size_t wide = TILE_COLS * VL;
    size_t i = 0;
    for (; i + wide <= dim; i += wide)
        for (size_t h = 0; h < n_heads; h += TILE_ROWS)
            attend_tile(acc + h * dim + i, p + h, old + h, fresh + h, vec_min(TILE_ROWS, n_heads - h), n_heads, dim, rows + i,
                        n_rows, TILE_COLS);
    for (; i < dim; i += VL)
        for (size_t h = 0; h < n_heads; h += TILE_ROWS)
            attend_tile(acc + h * dim + i, p + h, old + h, fresh + h, vec_min(TILE_ROWS, n_heads - h), n_heads, dim, rows + i,
                        n_rows, 1);
}

/* Chosen rows lie anywhere in memory that no cache holds: between two tokens all the weights pass through it. */
MC_INLINE void ask_row(const void *row, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch((const char *)row + i);
}

static void attend_part(float *acc, float *m, float *z, const float *q, size_t n_heads, size_t dim, const void *const *rows,
                        size_t n_rows, enum kern_kv kv, float scale, float *scratch)
{
    float *p = scratch + n_rows * dim;
    assert(n_rows <= KERN_ATTEND_ROWS && dim % 16 == 0);
    if (n_rows == 0) return;
    for (size_t r = 0; r < n_rows; r++) {
        if (r + AHEAD_ROWS < n_rows) ask_row(rows[r + AHEAD_ROWS], kern_kv_row_bytes(kv, dim));
        kv_load(scratch + r * dim, rows[r], dim, kv);
    }
    for (size_t h = 0; h < n_heads; h += ATTEND_HEADS) {
        float old[ATTEND_HEADS], fresh[ATTEND_HEADS];
        const size_t nh = vec_min(ATTEND_HEADS, n_heads - h);
        attend_scores(p, q + h * dim, nh, dim, scratch, n_rows, scale);
        attend_weights(p, m + h, z + h, old, fresh, nh, n_rows);
        attend_values(acc + h * dim, p, old, fresh, nh, dim, scratch, n_rows);
    }
}

static void attend_finish(float *o, const float *acc, const float *z, size_t n_heads, size_t dim)
{
    for (size_t h = 0; h < n_heads; h++) {
        const vf sum = v_set1(z[h]);
        for (size_t i = 0; i < dim; i += VL) {
            const size_t at = h * dim + i, count = vec_min(VL, dim - i);
            v_store_n(o + at, v_div(v_load_n(acc + at, count), sum), count);
        }
    }
}

/* score[0 .. nr) of nr <= TILE_ROWS rows of floats. */
static void index_rows(float *score, const float *q, const float *w, size_t n_heads, size_t dim, const void *const *rows,
                       size_t nr)
{
    float sum[TILE_ROWS] = {0};
    for (size_t h = 0; h < n_heads; h += TILE_COLS) {
        const size_t nh = vec_min(TILE_COLS, n_heads - h);
        const float *b[TILE_COLS];
        float out[DOT_TILE] = {0};
        for (size_t j = 0; j < TILE_COLS; j++) b[j] = q + (h + vec_min(j, nh - 1)) * dim;
        dot_tile(out, VEC_F32, rows, b, dim, TILE_ROWS, TILE_COLS);
        for (int t = 0; t < DOT_TILE; t += VL) v_store(out + t, v_max(v_zero(), v_load(out + t)));
        for (size_t j = 0; j < nh; j++)
            for (size_t i = 0; i < TILE_ROWS; i++) sum[i] = kern_fma(w[h + j], out[j * TILE_ROWS + i], sum[i]);
    }
    memcpy(score, sum, nr * sizeof(float));
}

/* Four rows at a time share the queries (32 KiB); very long rows, which no model has, go one by one through scratch. */
static void index_scores(float *score, const float *q, const float *w, size_t n_heads, size_t dim, const void *const *rows,
                         size_t n_rows, enum kern_kv kv, float *scratch)
{
    float local[TILE_ROWS * INDEX_DIM];
    float *room = dim <= INDEX_DIM ? local : scratch;
    const size_t step = dim <= INDEX_DIM ? TILE_ROWS : 1;
    for (size_t r = 0; r < n_rows; r += step) {
        const size_t nr = vec_min(step, n_rows - r);
        const void *a[TILE_ROWS];
        for (size_t i = 0; i < TILE_ROWS; i++) a[i] = room + vec_min(i, nr - 1) * dim;
        for (size_t i = 0; i < nr; i++) kv_load(room + i * dim, rows[r + i], dim, kv);
        index_rows(score + r, q, w, n_heads, dim, a, nr);
    }
}

#endif
