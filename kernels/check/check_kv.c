/* check_kv.c - rows into the KV cache and out of it. */
#include "kernels/check/ck.h"

static const char *const kv_names[] = {"f32", "f16", "q8"};

static void check_row(struct ck *k, bool store, enum kern_kv kv, size_t n, enum ck_pattern p)
{
    const size_t bytes = kern_kv_row_bytes(kv, n);
    ck_case(k, "%s, n %zu, pattern %s", kv_names[kv], n, ck_pattern_name(p));
    const float *x = ck_floats(k, n, p);
    if (store) {
        void *want = ck_output(k, bytes), *got = ck_output(k, bytes);
        k->ref->kv_store(want, x, n, kv);
        k->t->kv_store(got, x, n, kv);
        ck_same_bytes(k, want, got, bytes, "row");
    } else {
        void *row = ck_input(k, bytes, 0);
        float *want = ck_output(k, 4 * n), *got = ck_output(k, 4 * n);
        k->ref->kv_store(row, x, n, kv);
        k->ref->kv_load(want, row, n, kv);
        k->t->kv_load(got, row, n, kv);
        ck_same_floats(k, want, got, n, "x");
    }
}

static void check_rows(struct ck *k, bool store)
{
    for (enum kern_kv kv = KERN_KV_F32; kv <= KERN_KV_Q8; kv++)
        for (size_t n = 1; n <= 512; n += n < 40 ? 1 : 59)
            for (enum ck_pattern p = 0; p < CK_PATTERNS && ck_ok(k); p++)
                check_row(k, store, kv, kv == KERN_KV_Q8 ? (n + 31) / 32 * 32 : n, p);
}

void check_kv_store(struct ck *k, unsigned which, struct ck_numbers *out)
{
    (void)which;
    if (k->t != k->ref) check_rows(k, true);
    if (!ck_ok(k)) return;
    ck_case(k, "f16, n 512");
    const float *x = ck_floats(k, 512, CK_RANDOM);
    void *row = ck_output(k, kern_kv_row_bytes(KERN_KV_F16, 512));
    CK_BENCH(k) k->t->kv_store(row, x, 512, KERN_KV_F16);
    *out = (struct ck_numbers){k->timer.best_ns, 512, 6.0 * 512, 0};
}

void check_kv_load(struct ck *k, unsigned which, struct ck_numbers *out)
{
    (void)which;
    if (k->t != k->ref) check_rows(k, false);
    if (!ck_ok(k)) return;
    ck_case(k, "f16, n 512");
    void *row = ck_input(k, kern_kv_row_bytes(KERN_KV_F16, 512), 0);
    float *x = ck_output(k, 4 * 512);
    k->ref->kv_store(row, ck_floats(k, 512, CK_RANDOM), 512, KERN_KV_F16);
    CK_BENCH(k) k->t->kv_load(x, row, 512, KERN_KV_F16);
    *out = (struct ck_numbers){k->timer.best_ns, 512, 6.0 * 512, 0};
}
