/* check_swiglu.c - swiglu and combine: what the experts do between and after their products. */
#include "kernels/check/ck.h"

enum alias { APART, H_IS_G, H_IS_U };

static void check_swiglu_row(struct ck *k, size_t n, float limit, enum alias alias, enum ck_pattern p)
{
    ck_case(k, "n %zu, limit %g, alias %u, pattern %s", n, (double)limit, (unsigned)alias, ck_pattern_name(p));
    float *g = ck_input(k, 4 * n, 0), *u = ck_input(k, 4 * n, 0);
    ck_fill_floats(k, g, n, p);
    ck_fill_floats(k, u, n, p);
    for (size_t i = 0; p == CK_RANDOM && i < n; i++) g[i] *= 8, u[i] *= 8; /* on both sides of the limit */
    float *want = ck_output(k, 4 * n), *got = ck_output(k, 4 * n);
    if (alias != APART) memcpy(got, alias == H_IS_G ? g : u, 4 * n);
    k->ref->swiglu(want, g, u, n, limit);
    k->t->swiglu(got, alias == H_IS_G ? got : g, alias == H_IS_U ? got : u, n, limit);
    ck_same_floats(k, want, got, n, "h");
}

void check_swiglu(struct ck *k, unsigned which, struct ck_numbers *out)
{
    static const float limits[] = {10, 7.5f, 1e-6f, 0};
    (void)which;
    for (size_t n = 1; k->t != k->ref && n <= 2048; n += n < 70 ? 1 : 989)
        for (enum ck_pattern p = 0; p < CK_PATTERNS; p++)
            for (unsigned i = 0; i < 12 && ck_ok(k); i++) check_swiglu_row(k, n, limits[i % 4], (enum alias)(i / 4), p);
    if (!ck_ok(k)) return;
    ck_case(k, "n 2048");
    const float *g = ck_floats(k, 2048, CK_RANDOM), *u = ck_floats(k, 2048, CK_RANDOM);
    float *h = ck_output(k, 4 * 2048);
    CK_BENCH(k) k->t->swiglu(h, g, u, 2048, 10);
    *out = (struct ck_numbers){k->timer.best_ns, 2048, 12.0 * 2048, 0};
}

void check_gate(struct ck *k, unsigned which, struct ck_numbers *out)
{
    static const float limits[] = {10, 7.5f, 1e-6f, 0};
    (void)which;
    for (size_t n = 1; k->t != k->ref && n <= 2048; n += n < 70 ? 1 : 989)
        for (enum ck_pattern p = 0; p < CK_PATTERNS; p++)
            for (unsigned i = 0; i < 8 && ck_ok(k); i++) {
                const bool in_place = i >= 4;
                ck_case(k, "n %zu, limit %g, in place %d, pattern %s", n, (double)limits[i % 4], in_place, ck_pattern_name(p));
                float *g = ck_input(k, 4 * n, 0), *want = ck_output(k, 4 * n), *got = ck_output(k, 4 * n);
                ck_fill_floats(k, g, n, p);
                for (size_t j = 0; p == CK_RANDOM && j < n; j++) g[j] *= 8; /* on both sides of the limit */
                if (in_place) memcpy(got, g, 4 * n);
                k->ref->gate(want, g, n, limits[i % 4]);
                k->t->gate(got, in_place ? got : g, n, limits[i % 4]);
                ck_same_floats(k, want, got, n, "s");
            }
    if (!ck_ok(k)) return;
    ck_case(k, "n 2048");
    const float *g = ck_floats(k, 2048, CK_RANDOM);
    float *s = ck_output(k, 4 * 2048);
    CK_BENCH(k) k->t->gate(s, g, 2048, 10);
    *out = (struct ck_numbers){k->timer.best_ns, 2048, 8.0 * 2048, 0};
}

/* e: pointers to m rows of n floats, the last of which ends at the fence. */
static void make_rows(struct ck *k, const float **e, size_t m, size_t n, enum ck_pattern p)
{
    float *rows = ck_input(k, 4 * m * n, 0);
    for (size_t j = 0; j < m; j++) ck_fill_floats(k, rows + j * n, n, p), e[j] = rows + j * n;
}

void check_combine(struct ck *k, unsigned which, struct ck_numbers *out)
{
    const float *e[9];
    (void)which;
    for (size_t m = 1; k->t != k->ref && m <= 9; m++)
        for (size_t n = 1; n <= 1100; n += n < 40 ? 1 : 501)
            for (enum ck_pattern p = 0; p < CK_PATTERNS && ck_ok(k); p++) {
                ck_case(k, "m %zu, n %zu, pattern %s", m, n, ck_pattern_name(p));
                make_rows(k, e, m, n, p);
                const float *w = ck_floats(k, m, CK_RANDOM);
                float *want = ck_output(k, 4 * n), *got = ck_output(k, 4 * n);
                k->ref->combine(want, e, w, m, n);
                k->t->combine(got, e, w, m, n);
                ck_same_floats(k, want, got, n, "y");
            }
    if (!ck_ok(k)) return;
    ck_case(k, "m 7, n 4096");
    make_rows(k, e, 7, 4096, CK_RANDOM);
    const float *w = ck_floats(k, 7, CK_RANDOM);
    float *y = ck_output(k, 4 * 4096);
    CK_BENCH(k) k->t->combine(y, e, w, 7, 4096);
    *out = (struct ck_numbers){k->timer.best_ns, 7 * 4096, 8 * 4.0 * 4096, 0};
}
