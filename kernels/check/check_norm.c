/* check_norm.c - rms_norm and sum_squares. */
#include "kernels/check/ck.h"

static const size_t sizes[] = {1, 7, 8, 15, 16, 17, 31, 64, 512, 1023, 1024, 1025, 1040, 2047, 4096, 16384};

static void check_norm_row(struct ck *k, size_t n, bool weighted, bool in_place, enum ck_pattern p)
{
    ck_case(k, "n %zu%s%s, pattern %s", n, weighted ? ", weighted" : "", in_place ? ", in place" : "", ck_pattern_name(p));
    const float *x = ck_floats(k, n, p), *w = weighted ? ck_floats(k, n, CK_RANDOM) : NULL;
    float *want = ck_output(k, 4 * n), *got = ck_output(k, 4 * n);
    if (in_place) memcpy(got, x, 4 * n);
    k->ref->rms_norm(want, x, w, n, 1e-6f);
    k->t->rms_norm(got, in_place ? got : x, w, n, 1e-6f);
    ck_same_floats(k, want, got, n, "y");
}

void check_rms_norm(struct ck *k, unsigned which, struct ck_numbers *out)
{
    (void)which;
    for (size_t i = 0; k->t != k->ref && i < ARRAY_LEN(sizes); i++)
        for (enum ck_pattern p = 0; p < CK_PATTERNS; p++)
            for (unsigned how = 0; how < 4 && ck_ok(k); how++) check_norm_row(k, sizes[i], how & 1, how & 2, p);
    if (!ck_ok(k)) return;
    ck_case(k, "n 4096");
    const float *x = ck_floats(k, 4096, CK_RANDOM), *w = ck_floats(k, 4096, CK_RANDOM);
    float *y = ck_output(k, 4 * 4096);
    CK_BENCH(k) k->t->rms_norm(y, x, w, 4096, 1e-6f);
    *out = (struct ck_numbers){k->timer.best_ns, 4096, 12.0 * 4096, 0};
}

void check_sum_squares(struct ck *k, unsigned which, struct ck_numbers *out)
{
    (void)which;
    for (size_t i = 0; k->t != k->ref && i < ARRAY_LEN(sizes); i++)
        for (enum ck_pattern p = 0; p < CK_PATTERNS && ck_ok(k); p++) {
            ck_case(k, "n %zu, pattern %s", sizes[i], ck_pattern_name(p));
            const float *x = ck_floats(k, sizes[i], p);
            float *want = ck_output(k, 4), *got = ck_output(k, 4);
            *want = k->ref->sum_squares(x, sizes[i]);
            *got = k->t->sum_squares(x, sizes[i]);
            ck_same_floats(k, want, got, 1, "sum");
        }
    if (!ck_ok(k)) return;
    ck_case(k, "n 16384");
    const float *x = ck_floats(k, 16384, CK_RANDOM);
    float sum = 0;
    CK_BENCH(k) sum += k->t->sum_squares(x, 16384);
    if (sum < 0) ck_fail(k, "a sum of squares is negative");
    *out = (struct ck_numbers){k->timer.best_ns, 16384, 4.0 * 16384, 0};
}
