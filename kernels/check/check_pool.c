/* check_pool.c - softmax over candidates, channel by channel. */
#include "kernels/check/ck.h"

#include <math.h>

enum { M_MAX = 128 };

struct pool_case {
    const float *kv[M_MAX], *sc[M_MAX];
};

/* Some candidates are absent (-inf); channel 0 has none at all when `empty`. */
static void make_case(struct ck *k, struct pool_case *c, size_t m, size_t n, bool absent, bool empty, enum ck_pattern p)
{
    float *kv = ck_input(k, 4 * m * n, 0), *sc = ck_input(k, 4 * m * n, 0);
    ck_fill_floats(k, kv, m * n, CK_RANDOM);
    ck_fill_floats(k, sc, m * n, p);
    for (size_t t = 0; t < m; t++) {
        c->kv[t] = kv + t * n;
        c->sc[t] = sc + t * n;
        for (size_t i = 0; absent && i < n; i++)
            if (ck_random(k) % 3 == 0) sc[t * n + i] = -INFINITY;
        if (empty) sc[t * n] = -INFINITY;
    }
}

void check_pool(struct ck *k, unsigned which, struct ck_numbers *out)
{
    static const size_t ms[] = {1, 2, 4, 7, 8, M_MAX}, ns[] = {1, 3, 7, 8, 9, 15, 16, 17, 33, 100, 512};
    struct pool_case c;
    (void)which;
    for (size_t i = 0; k->t != k->ref && i < ARRAY_LEN(ms) * ARRAY_LEN(ns); i++)
        for (enum ck_pattern p = 0; p < CK_PATTERNS; p++)
            for (unsigned how = 0; how < 4 && ck_ok(k); how++) {
                const size_t m = ms[i / ARRAY_LEN(ns)], n = ns[i % ARRAY_LEN(ns)];
                if (m == M_MAX && n > 33) continue;
                ck_case(k, "m %zu, n %zu, absent %u, pattern %s", m, n, how, ck_pattern_name(p));
                make_case(k, &c, m, n, how & 1, how & 2, p);
                float *want = ck_output(k, 4 * n), *got = ck_output(k, 4 * n);
                k->ref->pool(want, c.kv, c.sc, m, n);
                k->t->pool(got, c.kv, c.sc, m, n);
                ck_same_floats(k, want, got, n, "z");
            }
    if (!ck_ok(k)) return;
    ck_case(k, "m 8, n 512");
    make_case(k, &c, 8, 512, false, false, CK_RANDOM);
    float *z = ck_output(k, 4 * 512);
    CK_BENCH(k) k->t->pool(z, c.kv, c.sc, 8, 512);
    *out = (struct ck_numbers){k->timer.best_ns, 8 * 512, 17 * 4.0 * 512, 0};
}
