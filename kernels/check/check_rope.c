/* check_rope.c - rotations: rope (pairs) and hadamard (butterflies), both in place. */
#include "kernels/check/ck.h"

static void check_rope_row(struct ck *k, size_t pairs, bool inverse, enum ck_pattern p)
{
    ck_case(k, "%zu pairs%s, pattern %s", pairs, inverse ? ", inverse" : "", ck_pattern_name(p));
    const float *x = ck_floats(k, 2 * pairs, p), *c = ck_floats(k, pairs, CK_RANDOM), *s = ck_floats(k, pairs, CK_RANDOM);
    float *want = ck_output(k, 8 * pairs), *got = ck_output(k, 8 * pairs);
    memcpy(want, x, 8 * pairs);
    memcpy(got, x, 8 * pairs);
    k->ref->rope(want, c, s, pairs, inverse);
    k->t->rope(got, c, s, pairs, inverse);
    ck_same_floats(k, want, got, 2 * pairs, "x");
}

void check_rope(struct ck *k, unsigned which, struct ck_numbers *out)
{
    (void)which;
    for (size_t pairs = 1; k->t != k->ref && pairs <= 70; pairs++)
        for (enum ck_pattern p = 0; p < CK_PATTERNS; p++)
            for (unsigned inverse = 0; inverse < 2 && ck_ok(k); inverse++) check_rope_row(k, pairs, inverse, p);
    if (!ck_ok(k)) return;
    ck_case(k, "32 pairs");
    const float *c = ck_floats(k, 32, CK_ZERO), *s = ck_floats(k, 32, CK_EQUAL); /* lengths stay finite: |s| = 1.5, and back */
    float *x = ck_output(k, 4 * 64);
    ck_fill_floats(k, x, 64, CK_ZERO);
    CK_BENCH(k) k->t->rope(x, c, s, 32, false);
    *out = (struct ck_numbers){k->timer.best_ns, 64, 12.0 * 64, 0};
}

void check_hadamard(struct ck *k, unsigned which, struct ck_numbers *out)
{
    (void)which;
    for (size_t n = 1; k->t != k->ref && n <= 4096; n *= 2)
        for (enum ck_pattern p = 0; p < CK_PATTERNS && ck_ok(k); p++) {
            ck_case(k, "n %zu, pattern %s", n, ck_pattern_name(p));
            const float *x = ck_floats(k, n, p);
            float *want = ck_output(k, 4 * n), *got = ck_output(k, 4 * n);
            memcpy(want, x, 4 * n);
            memcpy(got, x, 4 * n);
            k->ref->hadamard(want, n);
            k->t->hadamard(got, n);
            ck_same_floats(k, want, got, n, "x");
        }
    if (!ck_ok(k)) return;
    ck_case(k, "n 128");
    float *x = ck_output(k, 4 * 128);
    ck_fill_floats(k, x, 128, CK_RANDOM);
    CK_BENCH(k) k->t->hadamard(x, 128); /* orthonormal: the numbers keep their size */
    *out = (struct ck_numbers){k->timer.best_ns, 128, 8.0 * 128, 0};
}
