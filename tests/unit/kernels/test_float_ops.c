/* test_float_ops.c - the float operations against plain formulas, on every instruction set of this CPU.
 *
 * Goal: the three tables compute what kernels.h promises. Method: operations made of sums and products are compared by bytes
 * with the rules R2 and R3 written out here element by element; those with exp, division or a root are compared with double
 * arithmetic under a bound counted in roundings. Every table must also give the bytes of the scalar one (NaNs: any NaN). Sizes
 * cross every tail, the heads pass 64 and the dimensions of the indexer pass its local buffer. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu_flags.h"
#include "kernels/kernels.h"
#include "kernels/vec/vec_scalar.h"

#include "kernels/vec/functions.h"

enum { TABLES = 3, PAD = 32 };
#define ULP 0x1p-23 /* of 1 */

static struct kern_table tables[TABLES];
static size_t n_tables;
static uint64_t seed = 42;
static MC_ALIGNED(64) float scratch[(64 + 1) * 512 + 65 * 64 + 64];

static int make_tables(void **state)
{
    const uint32_t flags = kern_cpu_flags();
    (void)state;
    kern_table_init(&tables[n_tables++], 0);
    if (flags & KERN_AVX2) kern_table_init(&tables[n_tables++], flags & ~(uint32_t)KERN_AVX512);
    if (flags & KERN_AVX512) kern_table_init(&tables[n_tables++], flags);
    return 0;
}

static uint32_t random_bits(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 32);
}

static float random_float(void)
{
    return (float)((int32_t)random_bits() >> 8) * 0x1p-22f; /* (-2, 2) */
}

static float *floats(size_t n)
{
    float *p = malloc((n + PAD) * sizeof *p);
    assert_non_null(p);
    for (size_t i = 0; i < n + PAD; i++) p[i] = random_float();
    return p;
}

/* n floats for results, then a fence. */
static float *room(size_t n)
{
    float *p = malloc((n + PAD) * sizeof *p);
    assert_non_null(p);
    for (size_t i = 0; i < n + PAD; i++) p[i] = 12345.0f;
    return p;
}

static void same(const float *want, const float *got, size_t n, const char *what, size_t t)
{
    for (size_t i = 0; i < n; i++)
        if (f32_bits(want[i]) != f32_bits(got[i]) && !(isnan(want[i]) && isnan(got[i])))
            fail_msg("%s, %s: [%zu] %a, expected %a", what, tables[t].isa, i, (double)got[i], (double)want[i]);
}

static void fence_holds(const float *p, size_t n, const char *what)
{
    for (size_t i = n; i < n + PAD; i++)
        if (p[i] < 12345.0f || p[i] > 12345.0f) fail_msg("%s wrote past its %zu values", what, n);
}

static void near(double want, double got, double bound, const char *what, size_t i)
{
    if (!(fabs(want - got) <= bound)) fail_msg("%s: [%zu] %.9g, expected %.9g within %.3g", what, i, got, want, bound);
}

/* Rule R2, word by word. */
static float plain_dot(const float *a, const float *b, size_t n)
{
    float s[16] = {0};
    for (size_t i = 0; i < (n + 15) / 16 * 16; i++) s[i % 16] = kern_fma(i < n ? a[i] : 0, i < n ? b[i] : 0, s[i % 16]);
    for (int d = 8; d > 0; d /= 2)
        for (int j = 0; j < d; j++) s[j] += s[j + d];
    return s[0];
}

static float plain_squares(const float *x, size_t n)
{
    float total = 0;
    for (size_t i = 0; i < n; i += 1024) total += plain_dot(x + i, x + i, n - i < 1024 ? n - i : 1024);
    return total;
}

/* ---- functions ---- */

static float exp_of(float x)
{
    return v_exp(v_set1(x)).f[7];
}

static void test_exp(void **state)
{
    (void)state;
    double worst = 0;
    for (uint64_t u = 0; u < UINT64_C(1) << 32; u += 10007) {
        const float x = f32_of_bits((uint32_t)u);
        if (!(fabsf(x) < 88.7f)) continue;
        int e;
        const double want = exp((double)x);
        frexp(want, &e);
        const double ulp = ldexp(1, (e < -125 ? -125 : e) - 24), off = fabs((double)exp_of(x) - want) / ulp;
        if (off > worst) worst = off;
    }
    print_message("exp: at most %.3f ulp\n", worst);
    assert_true(worst < 1.05 && worst > 0.5);
    assert_true(exp_of(-INFINITY) == 0 && exp_of(-104) == 0 && exp_of(-3.0e38f) == 0 && !signbit(exp_of(-INFINITY)));
    assert_true(exp_of(-103.9f) > 0 && exp_of(-103.9f) < 3e-45f && exp_of(0) == 1 && exp_of(-0.0f) == 1 && exp_of(1e-40f) == 1);
    assert_true(exp_of(88.72283f) < INFINITY && isinf(exp_of(88.7229f)) && isinf(exp_of(INFINITY)) && isnan(exp_of(NAN)));
}

static void test_swiglu(void **state)
{
    (void)state;
    enum { N = 70000 };
    float *g = floats(N), *u = floats(N), *want = room(N), *got = room(N);
    for (size_t i = 0; i < N; i++) g[i] = f32_of_bits((uint32_t)i * 61357u);
    for (size_t i = 0; i < N; i += 97) u[i] = f32_of_bits((uint32_t)i * 7919u);
    tables[0].swiglu(want, g, u, N, 10.0f);
    for (size_t i = 0; i < N; i++) {
        if (isnan(g[i]) || isnan(u[i])) {
            assert_true(isnan(want[i]));
            continue;
        }
        const double x = g[i] < 10 ? (double)g[i] : 10, up = fmax(-10, fmin(10, (double)u[i]));
        if (x < -1e30) continue; /* -inf has no silu */
        near(x / (1 + exp(-x)) * up, (double)want[i], fabs(x / (1 + exp(-x)) * up) * 3 * ULP + 5e-36, "swiglu", i);
    }
    for (size_t t = 1; t < n_tables; t++) {
        tables[t].swiglu(got, g, u, N, 10.0f);
        same(want, got, N, "swiglu", t);
    }
    for (size_t t = 0; t < n_tables; t++)
        for (size_t n = 1; n < 50; n++) {
            float *h = room(n);
            tables[0].swiglu(want, g, u, n, 0);
            memcpy(h, g, n * sizeof *h);
            tables[t].swiglu(h, h, u, n, 0); /* in place, no clamp */
            same(want, h, n, "swiglu tail", t);
            fence_holds(h, n, "swiglu");
            free(h);
        }
    free(g), free(u), free(want), free(got);
}

/* ---- dot products ---- */

static void check_matmul(size_t t, enum quant_type type, size_t k, size_t rows, size_t cols)
{
    const size_t size = type == QUANT_F32 ? 4 : 2;
    char *w = malloc(rows * k * size + 64);
    float *row = floats(k), *x = floats(cols * k), *y = room(rows * cols), *yc[16];
    const void *xc[16];
    assert_true(w && cols <= 16);
    for (size_t i = 0; i < rows * k; i++) {
        const float v = random_float();
        const uint16_t h = type == QUANT_F16 ? kern_f32_to_f16(v) : (uint16_t)(f32_bits(v) >> 16);
        memcpy(w + i * size, size == 4 ? (const void *)&v : &h, size);
    }
    for (size_t c = 0; c < cols; c++) xc[c] = x + c * k, yc[c] = y + c * rows;
    tables[t].matmul[type](yc, w, k * size, xc, k, rows, cols);
    for (size_t r = 0; r < rows; r++) {
        tables[t].dequantize[type](row, w + r * k * size, k);
        for (size_t c = 0; c < cols; c++) {
            const float want = plain_dot(row, x + c * k, k);
            same(&want, &yc[c][r], 1, "matmul", t);
        }
    }
    fence_holds(y, rows * cols, "matmul");
    free(w), free(row), free(x), free(y);
}

static void test_matmul_keeps_rule_2(void **state)
{
    static const size_t ks[] = {1, 7, 15, 16, 17, 24, 31, 32, 33, 511, 512, 520, 528, 1027};
    static const enum quant_type types[] = {QUANT_F32, QUANT_F16, QUANT_BF16};
    (void)state;
    for (size_t t = 0; t < n_tables; t++)
        for (size_t y = 0; y < ARRAY_LEN(types); y++) {
            for (size_t i = 0; i < ARRAY_LEN(ks); i++)
                for (size_t cols = 1; cols <= 9; cols++) check_matmul(t, types[y], ks[i], 1 + (i * 5 + cols * 3) % 28, cols);
            for (size_t rows = 1; rows <= 50; rows++) check_matmul(t, types[y], 40, rows, 1 + rows % 5);
            check_matmul(t, types[y], 40000, 3, 7); /* a column block of 4 */
        }
}

static void test_norm_keeps_rule_3(void **state)
{
    static const size_t ns[] = {1, 15, 16, 17, 512, 1023, 1024, 1025, 2048, 4096, 4100, 7000, 16384};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ns); i++) {
        const size_t n = ns[i];
        float *x = floats(n), *w = floats(n), *want = room(n);
        const float sum = plain_squares(x, n);
        tables[0].rms_norm(want, x, w, n, 1e-6f);
        double exact = 0;
        for (size_t j = 0; j < n; j++) exact += (double)x[j] * (double)x[j];
        for (size_t j = 0; j < n; j++) {
            const double y = (double)x[j] * (double)w[j] / sqrt(exact / (double)n + 1e-6);
            near(y, (double)want[j], fabs(y) * (70 + 8) * ULP / 2, "rms_norm", j);
        }
        for (size_t t = 0; t < n_tables; t++) {
            const float got_sum = tables[t].sum_squares(x, n);
            float *got = room(n);
            same(&sum, &got_sum, 1, "sum_squares", t);
            memcpy(got, x, n * sizeof *got);
            tables[t].rms_norm(got, got, w, n, 1e-6f); /* in place */
            same(want, got, n, "rms_norm", t);
            fence_holds(got, n, "rms_norm");
            tables[t].rms_norm(got, x, NULL, n, 1e-6f);
            for (size_t j = 0; j < n; j++) got[j] *= w[j];
            same(want, got, n, "rms_norm without weights", t);
            free(got);
        }
        free(x), free(w), free(want);
    }
}

/* ---- along vectors ---- */

static void test_rope(void **state)
{
    (void)state;
    for (size_t t = 0; t < n_tables; t++)
        for (size_t pairs = 1; pairs <= 40; pairs++) {
            float *x = floats(2 * pairs), *c = room(pairs), *s = room(pairs), *y = room(2 * pairs), *ref = room(2 * pairs);
            for (size_t i = 0; i < pairs; i++) c[i] = cosf((float)i), s[i] = sinf((float)i);
            memcpy(y, x, 8 * pairs), memcpy(ref, x, 8 * pairs);
            tables[t].rope(y, c, s, pairs, false);
            tables[0].rope(ref, c, s, pairs, false);
            same(ref, y, 2 * pairs, "rope", t);
            for (size_t i = 0; i < pairs; i++) {
                const double a = (double)x[2 * i], b = (double)x[2 * i + 1];
                near(a * (double)c[i] - b * (double)s[i], (double)y[2 * i], 4 * ULP, "rope", 2 * i);
                near(a * (double)s[i] + b * (double)c[i], (double)y[2 * i + 1], 4 * ULP, "rope", 2 * i + 1);
            }
            tables[t].rope(y, c, s, pairs, true);
            for (size_t i = 0; i < 2 * pairs; i++) near((double)x[i], (double)y[i], 8 * ULP, "rope and back", i);
            fence_holds(y, 2 * pairs, "rope");
            free(x), free(c), free(s), free(y), free(ref);
        }
}

static void test_hadamard(void **state)
{
    (void)state;
    for (size_t n = 1; n <= 512; n *= 2) {
        float *x = floats(n), *want = room(n);
        memcpy(want, x, n * sizeof *x);
        tables[0].hadamard(want, n);
        for (size_t i = 0; i < n; i++) {
            double sum = 0;
            for (size_t j = 0; j < n; j++) {
                unsigned sign = 0;
                for (size_t bits = i & j; bits; bits >>= 1) sign ^= bits & 1;
                sum += sign ? -(double)x[j] : (double)x[j];
            }
            near(sum / sqrt((double)n), (double)want[i], 2 * sqrt((double)n) * 11 * ULP, "hadamard", i);
        }
        for (size_t t = 0; t < n_tables; t++) {
            float *got = room(n);
            memcpy(got, x, n * sizeof *x);
            tables[t].hadamard(got, n);
            same(want, got, n, "hadamard", t);
            fence_holds(got, n, "hadamard");
            free(got);
        }
        free(x), free(want);
    }
}

static void test_combine_and_hyper(void **state)
{
    (void)state;
    for (size_t t = 0; t < n_tables; t++)
        for (size_t n = 1; n < 150; n += n < 40 ? 1 : 13)
            for (size_t m = 1; m <= 8; m++) {
                const size_t stride = n + 3;
                float *X = floats(m * stride), *w = floats(m), *y = floats(n), *comb = floats(m * m), *want = room(m * stride);
                float *got = room(n);
                const float *e[8];
                for (size_t j = 0; j < m; j++) e[j] = X + j * stride;
                for (size_t i = 0; i < n; i++) {
                    want[i] = 0;
                    for (size_t j = 0; j < m; j++) want[i] = kern_fma(w[j], e[j][i], want[i]);
                }
                tables[t].combine(got, e, w, m, n);
                same(want, got, n, "combine", t);
                tables[t].hyper_read(got, X, stride, w, m, n);
                same(want, got, n, "hyper_read", t);
                fence_holds(got, n, "combine or hyper_read");
                memcpy(want, X, m * stride * sizeof *X); /* the gap between streams stays */
                for (size_t k = 0; k < m; k++)
                    for (size_t i = 0; i < n; i++) {
                        float s = 0;
                        for (size_t j = 0; j < m; j++) s = kern_fma(comb[j * m + k], e[j][i], s);
                        want[k * stride + i] = kern_fma(w[k], y[i], s);
                    }
                tables[t].hyper_write(X, stride, y, w, comb, m, n);
                same(want, X, m * stride, "hyper_write", t);
                free(X), free(w), free(y), free(comb), free(want), free(got);
            }
}

static void test_pool(void **state)
{
    static const size_t ms[] = {1, 2, 8, 128};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ms); i++)
        for (size_t n = 1; n < 40; n++) {
            const size_t m = ms[i];
            float *kv = floats(m * n), *sc = floats(m * n), *want = room(n);
            const float *kvp[128], *scp[128];
            for (size_t t = 0; t < m; t++) kvp[t] = kv + t * n, scp[t] = sc + t * n;
            for (size_t t = 0; t < m; t++) sc[t * n] = -INFINITY;                        /* channel 0: nobody */
            for (size_t t = 0; t < m / 2 && n > 1; t++) sc[t * n + 1] = -INFINITY;       /* channel 1: the second half */
            for (size_t t = 0; t < m && n > 2; t++) sc[t * n + 2] = 40 * random_float(); /* channel 2: far apart */
            tables[0].pool(want, kvp, scp, m, n);
            assert_true(f32_bits(want[0]) == 0);
            for (size_t c = 1; c < n; c++) {
                double most = -(double)INFINITY, sum = 0, weights = 0, size = 0;
                for (size_t t = 0; t < m; t++) most = fmax(most, (double)scp[t][c]);
                for (size_t t = 0; t < m; t++) {
                    const double e = exp((double)scp[t][c] - most);
                    sum += e * (double)kvp[t][c], size += e * fabs((double)kvp[t][c]), weights += e;
                }
                /* a score difference is rounded before exp: half an ulp of 160 at most */
                near(sum / weights, (double)want[c], size / weights * ((double)m + 4 + 128) * ULP, "pool", c);
            }
            for (size_t t = 0; t < n_tables; t++) {
                float *got = room(n);
                tables[t].pool(got, kvp, scp, m, n);
                same(want, got, n, "pool", t);
                fence_holds(got, n, "pool");
                free(got);
            }
            free(kv), free(sc), free(want);
        }
}

/* ---- rows ---- */

static void test_every_f16(void **state)
{
    enum { N = 65536 };
    static uint16_t half[N], back[N];
    (void)state;
    float *x = room(N);
    for (size_t i = 0; i < N; i++) half[i] = (uint16_t)i;
    for (size_t t = 0; t < n_tables; t++) {
        tables[t].kv_load(x, half, N, KERN_KV_F16);
        for (size_t i = 0; i < N; i++) {
            const int e = (int)(i >> 10 & 31), m = (int)(i & 1023);
            const double v = e == 31 ? (double)INFINITY : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
            if (e == 31 && m)
                assert_true(isnan(x[i]));
            else if ((double)x[i] != (i >> 15 ? -v : v) || !signbit(x[i]) != !(i >> 15))
                fail_msg("half %zx on %s: %a", i, tables[t].isa, (double)x[i]);
        }
        tables[t].kv_store(back, x, N, KERN_KV_F16);
        for (size_t i = 0; i < N; i++)
            if ((i & 0x7FFF) <= 0x7C00) assert_int_equal(back[i], i);
        fence_holds(x, N, "kv_load");
    }
    free(x);
}

static void test_rows(void **state)
{
    (void)state;
    for (size_t t = 0; t < n_tables; t++)
        for (size_t n = 1; n <= 96; n++) {
            unsigned char row[96 * 4 + 1] = {0}, want[96 * 4 + 1] = {0};
            float *x = floats(n), *y = room(n);
            for (size_t i = 0; i < n; i++) x[i] *= ldexpf(1, (int)(random_bits() % 40) - 30);
            if (n == 64) memset(x, 0, 32 * sizeof *x); /* q8: a block of zeros */
            for (enum kern_kv kv = KERN_KV_F32; kv <= (n % 32 ? KERN_KV_F16 : KERN_KV_Q8); kv++) {
                row[kern_kv_row_bytes(kv, n)] = 0xA5;
                tables[t].kv_store(row, x, n, kv);
                assert_int_equal(row[kern_kv_row_bytes(kv, n)], 0xA5);
                tables[0].kv_store(want, x, n, kv);
                assert_memory_equal(row, want, kern_kv_row_bytes(kv, n));
                tables[t].kv_load(y, row, n, kv);
                for (size_t b = 0; b < n; b += 32) {
                    float amax = 0;
                    for (size_t i = b; i < b + 32 && i < n; i++) amax = fmaxf(amax, fabsf(x[i]));
                    for (size_t i = b; i < b + 32 && i < n; i++)
                        near((double)x[i], (double)y[i],
                             kv == KERN_KV_F32   ? 0
                             : kv == KERN_KV_F16 ? fabs((double)x[i]) * 0x1p-11 + 0x1p-25
                                                 : (double)amax * (0.5 / 127 + 0x1p-11) + 127 * 0x1p-25,
                             "row and back", i);
                }
                fence_holds(y, n, "kv_load");
            }
            float copy[96];
            memset(copy, 0, sizeof copy);
            tables[t].quantize[QUANT_ACT_F32](copy, x, n, n / 3, n);
            for (size_t i = 0; i < n; i++) assert_true(f32_bits(copy[i]) == (i < n / 3 ? 0 : f32_bits(x[i])));
            free(x), free(y);
        }
}

/* ---- attention ---- */

static void check_attend(size_t heads, size_t dim, size_t n_rows, enum kern_kv kv)
{
    const float scale = 0.3f;
    float *q = floats(heads * dim), *sink = floats(heads), *x = floats(dim), *v = room(n_rows * dim), *want = NULL;
    char *bytes = malloc(n_rows * kern_kv_row_bytes(kv, dim));
    const void **rows = malloc(n_rows * sizeof *rows);
    assert_true(bytes && rows);
    for (size_t r = 0; r < n_rows; r++) {
        char *row = bytes + r * kern_kv_row_bytes(kv, dim);
        for (size_t i = 0; i < dim; i++) x[i] = random_float();
        tables[0].kv_store(row, x, dim, kv), tables[0].kv_load(v + r * dim, row, dim, kv);
        rows[r] = row;
    }
    for (size_t t = 0; t < n_tables; t++) {
        float *acc = room(heads * dim), *m = room(heads), *z = room(heads);
        assert_true(kern_attend_scratch(heads, dim) <= ARRAY_LEN(scratch));
        memset(acc, 0, heads * dim * sizeof *acc);
        for (size_t h = 0; h < heads; h++) m[h] = sink[h], z[h] = 1;
        for (size_t r = 0; r < n_rows; r += 64)
            tables[t].attend_part(acc, m, z, q, heads, dim, rows + r, n_rows - r < 64 ? n_rows - r : 64, kv, scale, scratch);
        tables[t].attend_part(acc, m, z, q, heads, dim, rows, 0, kv, scale, scratch);
        tables[t].attend_finish(acc, acc, z, heads, dim);
        fence_holds(acc, heads * dim, "attend"), fence_holds(m, heads, "attend m"), fence_holds(z, heads, "attend z");
        free(m), free(z);
        if (t == 0)
            want = acc;
        else
            same(want, acc, heads * dim, "attend", t), free(acc);
    }
    for (size_t h = 0; h < heads; h++) {
        double sum = exp((double)sink[h]), *o = calloc(dim, sizeof *o);
        assert_non_null(o);
        for (size_t r = 0; r < n_rows; r++) {
            double s = 0;
            for (size_t i = 0; i < dim; i++) s += (double)q[h * dim + i] * (double)v[r * dim + i];
            const double e = exp(s * (double)scale);
            sum += e;
            for (size_t i = 0; i < dim; i++) o[i] += e * (double)v[r * dim + i];
        }
        /* |s| < 100 with dim/16 roundings: 1e-5 in the exponent, values below 2 */
        for (size_t i = 0; i < dim; i++) near(o[i] / sum, (double)want[h * dim + i], 4e-5, "attend", h * dim + i);
        free(o);
    }
    free(q), free(sink), free(x), free(v), free(want), free(bytes), free(rows);
}

static void test_attend(void **state)
{
    static const size_t heads[] = {1, 3, 4, 8, 65}, dims[] = {16, 48, 64, 96}, rows[] = {1, 2, 7, 64, 65, 150};
    (void)state;
    for (size_t h = 0; h < ARRAY_LEN(heads); h++)
        for (size_t d = 0; d < ARRAY_LEN(dims); d++)
            for (size_t r = 0; r < ARRAY_LEN(rows); r++)
                check_attend(heads[h], dims[d], rows[r], dims[d] % 32 ? (enum kern_kv)(r % 2) : (enum kern_kv)(r % 3));
    check_attend(64, 512, 70, KERN_KV_F16);
}

static void test_index_scores(void **state)
{
    static const size_t heads[] = {1, 3, 5, 64}, dims[] = {16, 20, 128, 600}, rows[] = {1, 2, 4, 5, 11};
    (void)state;
    for (size_t h = 0; h < ARRAY_LEN(heads); h++)
        for (size_t d = 0; d < ARRAY_LEN(dims); d++)
            for (size_t r = 0; r < ARRAY_LEN(rows); r++) {
                const size_t dim = dims[d];
                float *q = floats(heads[h] * dim), *w = floats(heads[h]), *x = floats(rows[r] * dim), *want = room(rows[r]);
                const void *row[16];
                for (size_t i = 0; i < rows[r]; i++) {
                    row[i] = x + i * dim;
                    want[i] = 0;
                    for (size_t j = 0; j < heads[h]; j++)
                        want[i] = kern_fma(w[j], fmaxf(0, plain_dot(q + j * dim, x + i * dim, dim)), want[i]);
                }
                for (size_t t = 0; t < n_tables; t++) {
                    float *got = room(rows[r]);
                    tables[t].index_scores(got, q, w, heads[h], dim, row, rows[r], KERN_KV_F32, scratch);
                    same(want, got, rows[r], "index_scores", t);
                    fence_holds(got, rows[r], "index_scores");
                    free(got);
                }
                free(q), free(w), free(x), free(want);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),
        cmocka_unit_test(test_swiglu),
        cmocka_unit_test(test_matmul_keeps_rule_2),
        cmocka_unit_test(test_norm_keeps_rule_3),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_hadamard),
        cmocka_unit_test(test_combine_and_hyper),
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_every_f16),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_attend),
        cmocka_unit_test(test_index_scores),
    };
    return cmocka_run_group_tests(tests, make_tables, NULL);
}
