/* rows16_q.h - products with q8_0 activations: one float step for each 32 columns (rows16.h says how).
 *
 * I = sum(codes * a) - bias * sum(a). Blocks are short and at odd addresses, so a few of them make a run that is loaded and
 * transposed as one stream of dwords; a piece that does not start at a dword of the stream takes one byte permute (stream_at).
 * A row whose blocks do not fill the last run is copied there and stops early. nvfp4 makes two half steps of 16, and its bias
 * is taken off by a second dot product, because the activation row has no sums of 16. */
#ifndef KERNELS_AVX512_ROWS16_Q_H
#define KERNELS_AVX512_ROWS16_Q_H

#include "kernels/avx512/rows16.h"

struct q_law {
    unsigned bytes;  /* of a file block */
    unsigned blocks; /* in a run */
    unsigned per;    /* steps of 32 in a file block; blocks * per is 1, 2, 4 or 8 */
    int bias;        /* what was added to the codes */
    bool half;       /* scales of 16 columns: d[2i], d[2i + 1] */
    bool add;        /* a minimum m, multiplied with the activation's s */
};

struct q_run {
    __m512 d[8]; /* of each step, or half step */
    __m512 m;
    __m512i raw[18]; /* what `codes` wants to find again */
};

/* reads the run at p */
typedef void (*q_load_fn)(struct q_run *h, const uint8_t *p, const struct strides *s);
/* x[v]: dword v of step i of the run */
typedef void (*q_codes_fn)(__m512i x[8], const struct q_run *h, const uint8_t *p, const struct strides *s, unsigned i);

MC_INLINE unsigned q_steps(struct q_law law)
{
    return law.blocks * law.per;
}

/* 68 or 72 bytes at p of 16 rows. */
MC_INLINE void load_stream(__m512i raw[18], const uint8_t *p, const struct strides *s, unsigned bytes)
{
    octs16(raw, p, s);
    octs16(raw + 8, p + 32, s);
    if (bytes == 68)
        raw[16] = lanes_u32(p + 64, s);
    else
        lanes_u64(raw + 16, p + 64, s);
}

/* 4 bytes from byte `at` of the stream on. */
MC_INLINE __m512i stream_at(const __m512i raw[18], unsigned at)
{
    return at % 4 == 0 ? raw[at / 4] : _mm512_permutex2var_epi8(raw[at / 4], dword_window(at % 4), raw[at / 4 + 1]);
}

MC_INLINE __m512i q_start(struct q_law law, const struct kern_q8_0 *x, size_t step)
{
    if (law.half || law.bias == 0) return _mm512_setzero_si512();
    /* the lower word is sum32[step], the upper one meets 0 */
    return _mm512_dpwssd_epi32(_mm512_setzero_si512(), dword_all(x->sum32 + step), _mm512_set1_epi32(-law.bias & 0xFFFF));
}

/* One step of one column: dwords w[0..8) against the activation codes of that step. */
MC_INLINE __m512 q_step(struct q_law law, const __m512i w[8], __m512 d, __m512 d1, __m512 m, const struct kern_q8_0 *x,
                        size_t step, __m512 f)
{
    const int8_t *a = x->q + 32 * step;
    const __m512 da = _mm512_set1_ps(x->d[step]);
    if (law.half) {
        const __m512i bias = _mm512_set1_epi8((char)law.bias);
        MC_UNROLL for (unsigned h = 0; h < 2; h++)
        {
            __m512i u = _mm512_setzero_si512(), off = u;
            for (unsigned v = 4 * h; v < 4 * h + 4; v++) {
                u = _mm512_dpbusd_epi32(u, w[v], dword_all(a + 4 * v));
                off = _mm512_dpbusd_epi32(off, bias, dword_all(a + 4 * v));
            }
            f = _mm512_fmadd_ps(_mm512_mul_ps(h ? d1 : d, da), _mm512_cvtepi32_ps(_mm512_sub_epi32(u, off)), f);
        }
        return f;
    }
    __m512i u = q_start(law, x, step);
    MC_UNROLL for (unsigned v = 0; v < 8; v++) u = _mm512_dpbusd_epi32(u, w[v], dword_all(a + 4 * v));
    f = _mm512_fmadd_ps(_mm512_mul_ps(d, da), _mm512_cvtepi32_ps(u), f);
    return law.add ? _mm512_fmadd_ps(m, _mm512_set1_ps(x->s[step]), f) : f;
}

MC_INLINE __m512 q_step_one(struct q_law law, q_codes_fn codes, const struct q_run *h, const uint8_t *p,
                            const struct strides *s, unsigned i, const struct kern_q8_0 *x, size_t step, __m512 f)
{
    __m512i w[8];
    codes(w, h, p, s, i);
    return q_step(law, w, h->d[law.half ? 2 * i : i], h->d[law.half ? 2 * i + 1 : i], h->m, x, step + i, f);
}

/* Where a run is read: in place, or from a copy if rows or blocks are missing. Returns the number of its steps. */
MC_INLINE unsigned q_run_at(struct q_law law, const struct rows16 *g, size_t run, size_t blocks, uint8_t *buf,
                            const uint8_t **p, struct strides *s)
{
    const size_t b = run * law.blocks, left = blocks - b < law.blocks ? blocks - b : law.blocks;
    *p = g->p + b * law.bytes;
    if (g->copied || left < law.blocks) {
        *p = rows16_copy(buf, g, *p, left * law.bytes);
        *s = strides_of(ROWS16_BLOCK_MAX);
    } else {
        rows16_prefetch(g, run, law.blocks * law.bytes);
    }
    return (unsigned)left * law.per;
}

/* One column, 16 rows. */
MC_INLINE void q_group_one(struct q_law law, q_load_fn load, q_codes_fn codes, float *y, const struct rows16 *g,
                           const struct kern_q8_0 *x, size_t blocks)
{
    MC_ALIGNED(64) uint8_t buf[16 * ROWS16_BLOCK_MAX + 64];
    struct strides s = g->s;
    __m512 f = _mm512_setzero_ps();
    for (size_t run = 0; run * law.blocks < blocks; run++) {
        const uint8_t *p;
        const unsigned live = q_run_at(law, g, run, blocks, buf, &p, &s);
        const size_t step = run * q_steps(law);
        struct q_run h;
        load(&h, p, &s);
#define Q_STEP(i)                                                                                                              \
    if ((i) < q_steps(law) && (i) < live) f = q_step_one(law, codes, &h, p, &s, (i) % q_steps(law), x, step, f)
        Q_STEP(0);
        Q_STEP(1);
        Q_STEP(2);
        Q_STEP(3);
        Q_STEP(4);
        Q_STEP(5);
        Q_STEP(6);
        Q_STEP(7);
#undef Q_STEP
    }
    _mm512_mask_storeu_ps(y + g->r0, g->live, f);
}

/* Step i of a run, written at step `at` of the tile. */
MC_INLINE void q_step_tile(struct q_law law, q_codes_fn codes, const struct q_run *h, struct tile *t, const uint8_t *p,
                           const struct strides *s, unsigned i, unsigned at)
{
    __m512i w[8];
    codes(w, h, p, s, i);
    MC_UNROLL for (unsigned v = 0; v < 8; v++) _mm512_storeu_si512(t->q[8 * at + v], w[v]);
    _mm512_storeu_ps(t->d[at], h->d[law.half ? 2 * i : i]);
    if (law.half) _mm512_storeu_ps(t->m[at], h->d[2 * i + 1]);
    if (law.add) _mm512_storeu_ps(t->m[at], h->m);
}

/* N columns over the `steps` steps of a tile, the first of which is step `step` of the row. */
MC_INLINE void q_columns(struct q_law law, unsigned n, const struct tile *t, const struct kern_q8_0 *x, size_t step,
                         unsigned steps, float (*acc)[16])
{
    __m512 f[8];
    const int8_t *a[8];
    for (unsigned c = 0; c < n; c++) f[c] = _mm512_loadu_ps(acc[c]), a[c] = x[c].q + 32 * step;
    for (size_t i = 0; i < steps; i++) {
        const __m512 d = _mm512_loadu_ps(t->d[i]);
        __m512i u[8];
        if (law.half) {
            __m512i w[8];
            MC_UNROLL for (unsigned v = 0; v < 8; v++) w[v] = bytes64(t->q[8 * i + v]);
            for (unsigned c = 0; c < n; c++) f[c] = q_step(law, w, d, _mm512_loadu_ps(t->m[i]), d, x + c, step + i, f[c]);
            continue;
        }
        for (unsigned c = 0; c < n; c++) u[c] = q_start(law, x + c, step + i);
        MC_UNROLL for (size_t j = 0; j < 8; j++)
        {
            const size_t v = 8 * i + j;
            const __m512i w = bytes64(t->q[v]);
            for (unsigned c = 0; c < n; c++) u[c] = _mm512_dpbusd_epi32(u[c], w, dword_all(a[c] + 4 * v));
        }
        for (unsigned c = 0; c < n; c++) {
            f[c] = _mm512_fmadd_ps(_mm512_mul_ps(d, _mm512_set1_ps(x[c].d[step + i])), _mm512_cvtepi32_ps(u[c]), f[c]);
            if (law.add) f[c] = _mm512_fmadd_ps(_mm512_loadu_ps(t->m[i]), _mm512_set1_ps(x[c].s[step + i]), f[c]);
        }
    }
    for (unsigned c = 0; c < n; c++) _mm512_storeu_ps(acc[c], f[c]);
}

typedef void (*q_columns_fn)(const struct tile *t, const struct kern_q8_0 *x, size_t step, unsigned steps, float (*acc)[16]);

/* Eight steps, fewer at the end of the row. Returns their number. */
MC_INLINE unsigned q_fill_tile(struct q_law law, q_load_fn load, q_codes_fn codes, struct tile *t, uint8_t *buf,
                               const struct rows16 *g, size_t step, size_t blocks)
{
    struct strides s = g->s;
    unsigned at = 0;
    for (size_t run = step / q_steps(law); run * law.blocks < blocks && at < 8; run++) {
        const uint8_t *p;
        const unsigned live = q_run_at(law, g, run, blocks, buf, &p, &s);
        struct q_run h;
        load(&h, p, &s);
#define Q_STEP(i)                                                                                                              \
    if ((i) < q_steps(law) && (i) < live) q_step_tile(law, codes, &h, t, p, &s, (i) % q_steps(law), at + (i))
        Q_STEP(0);
        Q_STEP(1);
        Q_STEP(2);
        Q_STEP(3);
        Q_STEP(4);
        Q_STEP(5);
        Q_STEP(6);
        Q_STEP(7);
#undef Q_STEP
        at += live;
    }
    return at;
}

/* Up to ROWS16_COLS columns, 16 rows. */
MC_INLINE void q_group_many(struct q_law law, q_load_fn load, q_codes_fn codes, const q_columns_fn columns[4], float *const *y,
                            const struct rows16 *g, const struct kern_q8_0 *x, size_t blocks, size_t cols)
{
    struct tile t;
    MC_ALIGNED(64) uint8_t buf[16 * ROWS16_BLOCK_MAX + 64];
    MC_ALIGNED(64) float acc[ROWS16_COLS][16];
    memset(acc, 0, cols * sizeof acc[0]);
    for (size_t step = 0; step < blocks * law.per; step += 8) {
        const unsigned steps = q_fill_tile(law, load, codes, &t, buf, g, step, blocks);
        size_t c = 0;
        for (; c + 8 <= cols; c += 8) columns[3](&t, x + c, step, steps, acc + c);
        if (cols - c >= 4) columns[2](&t, x + c, step, steps, acc + c), c += 4;
        if (cols - c >= 2) columns[1](&t, x + c, step, steps, acc + c), c += 2;
        if (cols - c >= 1) columns[0](&t, x + c, step, steps, acc + c);
    }
    for (size_t c = 0; c < cols; c++) _mm512_mask_storeu_ps(y[c] + g->r0, g->live, _mm512_loadu_ps(acc[c]));
}

typedef void (*q_one_fn)(float *y, const struct rows16 *g, const struct kern_q8_0 *x, size_t blocks);
typedef void (*q_many_fn)(float *const *y, const struct rows16 *g, const struct kern_q8_0 *x, size_t blocks, size_t cols);

MC_INLINE void q_matmul(struct q_law law, q_one_fn one, q_many_fn many, float *const *y, const void *w, size_t w_stride,
                        const void *const *x, size_t k, size_t rows, size_t cols)
{
    const size_t blocks = k / (32 * law.per);
    for (size_t c0 = 0; c0 < cols; c0 += ROWS16_COLS) {
        const size_t n = cols - c0 < ROWS16_COLS ? cols - c0 : ROWS16_COLS;
        struct kern_q8_0 view[ROWS16_COLS];
        for (size_t c = 0; c < n; c++) view[c] = kern_q8_0_view(x[c0 + c], k);
        for (size_t r = 0; r < rows; r += 16) {
            const struct rows16 g = rows16_group(w, w_stride, r, rows);
            if (n == 1)
                one(y[c0], &g, view, blocks);
            else
                many(y + c0, &g, view, blocks, n);
        }
    }
}

/* Column kernels of one law, and the matmul of one format. */
#define Q_COLUMNS_N(name, law, n)                                                                                              \
    static MC_NOINLINE void name##_##n(const struct tile *t, const struct kern_q8_0 *x, size_t step, unsigned steps,           \
                                       float(*acc)[16])                                                                        \
    {                                                                                                                          \
        q_columns(law, n, t, x, step, steps, acc);                                                                             \
    }
#define Q_COLUMNS(name, law)                                                                                                   \
    Q_COLUMNS_N(name, law, 1)                                                                                                  \
    Q_COLUMNS_N(name, law, 2)                                                                                                  \
    Q_COLUMNS_N(name, law, 4)                                                                                                  \
    Q_COLUMNS_N(name, law, 8)                                                                                                  \
    static const q_columns_fn name[4] = {name##_1, name##_2, name##_4, name##_8};

#define Q_MATMUL(type, law, columns)                                                                                           \
    static MC_NOINLINE void type##_one(float *y, const struct rows16 *g, const struct kern_q8_0 *x, size_t blocks)             \
    {                                                                                                                          \
        q_group_one(law, type##_load, type##_codes, y, g, x, blocks);                                                          \
    }                                                                                                                          \
    static MC_NOINLINE void type##_many(float *const *y, const struct rows16 *g, const struct kern_q8_0 *x, size_t blocks,     \
                                        size_t cols)                                                                           \
    {                                                                                                                          \
        q_group_many(law, type##_load, type##_codes, columns, y, g, x, blocks, cols);                                          \
    }                                                                                                                          \
    static void matmul_##type(float *const *y, const void *w, size_t w_stride, const void *const *x, size_t k, size_t rows,    \
                              size_t cols)                                                                                     \
    {                                                                                                                          \
        q_matmul(law, type##_one, type##_many, y, w, w_stride, x, k, rows, cols);                                              \
    }

#endif
