/* streams.inc.h - operations that walk along vectors: norms, rotations, gates, weighted sums, hyper-connections.
 * The formulas and their order are the contracts in kernels.h. */
#ifndef KERNELS_VEC_STREAMS_INC_H
#define KERNELS_VEC_STREAMS_INC_H

enum { SUM_CHUNK = 1024, HYPER_MAX = 8 };

/* `chunks` (a constant) whole chunks side by side, so that their chains hide each other's latency; added to `total` in order.
 */
MC_INLINE float squares_chunks(float total, const float *x, size_t chunks)
{
    vf s[4][VEC_PARTS];
    for (size_t c = 0; c < chunks; c++)
        for (size_t p = 0; p < VEC_PARTS; p++) s[c][p] = v_zero();
    for (size_t i = 0; i < SUM_CHUNK; i += 16)
        for (size_t c = 0; c < chunks; c++)
            for (size_t p = 0; p < VEC_PARTS; p++) {
                const vf v = v_load(x + c * SUM_CHUNK + i + p * VL);
                s[c][p] = v_fma(v, v, s[c][p]);
            }
    for (size_t c = 0; c < chunks; c++) total += v_sum16(s[c]);
    return total;
}

static float sum_squares(const float *x, size_t n)
{
    float total = 0;
    for (; n >= 4 * SUM_CHUNK; n -= 4 * SUM_CHUNK, x += 4 * SUM_CHUNK) total = squares_chunks(total, x, 4);
    for (; n >= SUM_CHUNK; n -= SUM_CHUNK, x += SUM_CHUNK) total = squares_chunks(total, x, 1);
    return n > 0 ? total + dot_one(VEC_F32, x, x, n) : total;
}

static void rms_norm(float *y, const float *x, const float *w, size_t n, float eps)
{
    const float r = 1.0f / sqrtf(sum_squares(x, n) / (float)n + eps);
    const vf rr = v_set1(r);
    for (size_t i = 0; i < n; i += VL) {
        const size_t count = vec_min(VL, n - i);
        vf v = v_mul(v_load_n(x + i, count), rr);
        if (w) v = v_mul(v, v_load_n(w + i, count));
        v_store_n(y + i, v, count);
    }
}

/* 32 pairs a head: not worth shuffles of our own. */
static void rope(float *x, const float *c, const float *s, size_t n_pairs, bool inverse)
{
    for (size_t i = 0; i < n_pairs; i++) {
        const float a = x[2 * i], b = x[2 * i + 1], sine = inverse ? -s[i] : s[i];
        x[2 * i] = kern_fma(a, c[i], -(b * sine));
        x[2 * i + 1] = kern_fma(a, sine, b * c[i]);
    }
}

/* Lane i of butterfly d: with bit d clear x[i] + x[i^d], with bit d set x[i^d] - x[i]. */
MC_INLINE vf hadamard_inside(vf v, size_t n)
{
    static const float sign[4][16] = {{1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1},
                                      {1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1},
                                      {1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1},
                                      {1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1}};
    if (n > 1) v = v_add(v_swap(v, 1), v_mul(v, v_load(sign[0])));
    if (n > 2) v = v_add(v_swap(v, 2), v_mul(v, v_load(sign[1])));
    if (n > 4) v = v_add(v_swap(v, 4), v_mul(v, v_load(sign[2])));
    if (VL > 8 && n > 8) v = v_add(v_swap(v, 8), v_mul(v, v_load(sign[3])));
    return v;
}

static void hadamard(float *x, size_t n)
{
    const vf scale = v_set1(1.0f / sqrtf((float)n));
    if (n <= VL) {
        v_store_part(x, v_mul(hadamard_inside(v_load_part(x, n), n), scale), n);
        return;
    }
    for (size_t i = 0; i < n; i += VL) v_store(x + i, hadamard_inside(v_load(x + i), n));
    for (size_t d = VL; d < n; d *= 2) {
        const vf f = 2 * d < n ? v_set1(1.0f) : scale; /* the last step scales on its way */
        for (size_t base = 0; base < n; base += 2 * d)
            for (size_t i = base; i < base + d; i += VL) {
                const vf a = v_load(x + i), b = v_load(x + i + d);
                v_store(x + i, v_mul(v_add(a, b), f));
                v_store(x + i + d, v_mul(v_sub(a, b), f));
            }
    }
}

/* min and max take the constant first: a NaN stays one. */
static void swiglu(float *h, const float *g, const float *u, size_t n, float limit)
{
    const bool clamp = limit > 1e-6f;
    const vf high = v_set1(limit), low = v_set1(-limit);
    for (size_t i = 0; i < n; i += VL) {
        const size_t count = vec_min(VL, n - i);
        vf gate = v_load_n(g + i, count), up = v_load_n(u + i, count);
        if (clamp) {
            gate = v_min(high, gate);
            up = v_max(low, v_min(high, up));
        }
        v_store_n(h + i, v_mul(v_silu(gate), up), count);
    }
}

static void gate(float *s, const float *g, size_t n, float limit)
{
    const vf high = v_set1(limit);
    for (size_t i = 0; i < n; i += VL) {
        const size_t count = vec_min(VL, n - i);
        vf x = v_load_n(g + i, count);
        if (limit > 1e-6f) x = v_min(high, x);
        v_store_n(s + i, v_silu(x), count);
    }
}

static void combine(float *y, const float *const *e, const float *w, size_t m, size_t n)
{
    size_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL) {
        vf s[4] = {v_zero(), v_zero(), v_zero(), v_zero()};
        for (size_t t = 0; t < m; t++)
            for (size_t j = 0; j < 4; j++) s[j] = v_fma(v_set1(w[t]), v_load(e[t] + i + j * VL), s[j]);
        for (size_t j = 0; j < 4; j++) v_store(y + i + j * VL, s[j]);
    }
    for (; i < n; i += VL) {
        const size_t count = vec_min(VL, n - i);
        vf s = v_zero();
        for (size_t t = 0; t < m; t++) s = v_fma(v_set1(w[t]), v_load_n(e[t] + i, count), s);
        v_store_n(y + i, s, count);
    }
}

static void pool(float *z, const float *const *kv, const float *const *sc, size_t m, size_t n)
{
    const vf none = v_set1(-INFINITY), zero = v_zero();
    for (size_t i = 0; i < n; i += VL) {
        const size_t count = vec_min(VL, n - i);
        vf most = none, weights = zero, sum = zero;
        for (size_t t = 0; t < m; t++) most = v_max(most, v_load_n(sc[t] + i, count));
        most = v_if_less(none, most, most, zero); /* all candidates absent: exp(-inf - 0) = 0 for each */
        for (size_t t = 0; t < m; t++) {
            const vf e = v_exp(v_sub(v_load_n(sc[t] + i, count), most));
            sum = v_fma(e, v_load_n(kv[t] + i, count), sum);
            weights = v_add(weights, e);
        }
        v_store_n(z + i, v_if_less(zero, weights, v_div(sum, weights), zero), count);
    }
}

static void hyper_read(float *x, const float *X, size_t stride, const float *pre, size_t hc, size_t n)
{
    for (size_t i = 0; i < n; i += VL) {
        const size_t count = vec_min(VL, n - i);
        vf s = v_zero();
        for (size_t h = 0; h < hc; h++) s = v_fma(v_set1(pre[h]), v_load_n(X + h * stride + i, count), s);
        v_store_n(x + i, s, count);
    }
}

MC_INLINE void hyper_write_n(float *X, size_t stride, const float *y, const float *post, const float *comb, size_t hc, size_t n)
{
    for (size_t i = 0; i < n; i += VL) {
        const size_t count = vec_min(VL, n - i);
        const vf yy = v_load_n(y + i, count);
        vf old[HYPER_MAX];
        for (size_t j = 0; j < hc; j++) old[j] = v_load_n(X + j * stride + i, count);
        for (size_t k = 0; k < hc; k++) {
            vf s = v_zero();
            for (size_t j = 0; j < hc; j++) s = v_fma(v_set1(comb[j * hc + k]), old[j], s);
            v_store_n(X + k * stride + i, v_fma(v_set1(post[k]), yy, s), count);
        }
    }
}

static void hyper_write(float *X, size_t stride, const float *y, const float *post, const float *comb, size_t hc, size_t n)
{
    assert(hc <= HYPER_MAX);
    if (hc == 4)
        hyper_write_n(X, stride, y, post, comb, 4, n); /* the model's number: four streams stay in registers */
    else
        hyper_write_n(X, stride, y, post, comb, hc, n);
}

#endif
