/* check_hyper.c - reading from and writing to the residual streams. */
#include "kernels/check/ck.h"

static size_t next_size(size_t n)
{
    return n < 36 ? n + 1 : n * 9;
}

void check_hyper_read(struct ck *k, unsigned which, struct ck_numbers *out)
{
    (void)which;
    for (size_t hc = 1; k->t != k->ref && hc <= 8; hc++)
        for (size_t n = 1; n <= 4096; n = next_size(n))
            for (enum ck_pattern p = 0; p < CK_PATTERNS && ck_ok(k); p++) {
                const size_t stride = n + n % 3;
                ck_case(k, "%zu streams of %zu, stride %zu, pattern %s", hc, n, stride, ck_pattern_name(p));
                const float *X = ck_floats(k, (hc - 1) * stride + n, p), *pre = ck_floats(k, hc, CK_RANDOM);
                float *want = ck_output(k, 4 * n), *got = ck_output(k, 4 * n);
                k->ref->hyper_read(want, X, stride, pre, hc, n);
                k->t->hyper_read(got, X, stride, pre, hc, n);
                ck_same_floats(k, want, got, n, "x");
            }
    if (!ck_ok(k)) return;
    ck_case(k, "4 streams of 4096");
    const float *X = ck_floats(k, 4 * 4096, CK_RANDOM), *pre = ck_floats(k, 4, CK_RANDOM);
    float *x = ck_output(k, 4 * 4096);
    CK_BENCH(k) k->t->hyper_read(x, X, 4096, pre, 4, 4096);
    *out = (struct ck_numbers){k->timer.best_ns, 4 * 4096, 5 * 4.0 * 4096, 0};
}

void check_hyper_write(struct ck *k, unsigned which, struct ck_numbers *out)
{
    (void)which;
    for (size_t hc = 1; k->t != k->ref && hc <= 8; hc++)
        for (size_t n = 1; n <= 4096; n = next_size(n))
            for (enum ck_pattern p = 0; p < CK_PATTERNS && ck_ok(k); p++) {
                const size_t stride = n + n % 3, all = (hc - 1) * stride + n;
                ck_case(k, "%zu streams of %zu, stride %zu, pattern %s", hc, n, stride, ck_pattern_name(p));
                const float *X = ck_floats(k, all, p), *y = ck_floats(k, n, CK_RANDOM);
                const float *post = ck_floats(k, hc, CK_RANDOM), *comb = ck_floats(k, hc * hc, CK_RANDOM);
                float *want = ck_output(k, 4 * all), *got = ck_output(k, 4 * all);
                memcpy(want, X, 4 * all);
                memcpy(got, X, 4 * all);
                k->ref->hyper_write(want, stride, y, post, comb, hc, n);
                k->t->hyper_write(got, stride, y, post, comb, hc, n);
                ck_same_floats(k, want, got, all, "X");
            }
    if (!ck_ok(k)) return;
    ck_case(k, "4 streams of 4096");
    const float *y = ck_floats(k, 4096, CK_RANDOM), *post = ck_floats(k, 4, CK_ZERO), *comb = ck_floats(k, 16, CK_ZERO);
    float *X = ck_output(k, 16 * 4096);
    ck_fill_floats(k, X, 4 * 4096, CK_RANDOM);
    CK_BENCH(k) k->t->hyper_write(X, 4096, y, post, comb, 4, 4096);
    *out = (struct ck_numbers){k->timer.best_ns, 4 * 4096, 9 * 4.0 * 4096, 0};
}
