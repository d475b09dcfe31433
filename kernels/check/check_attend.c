/* check_attend.c - attention over one part of the cache, its end, and the scores of the indexer. */
#include "kernels/check/ck.h"

enum { ROWS = KERN_ATTEND_ROWS };

/* n_rows cache rows of dim values, the last of which ends at the fence. */
static void make_rows(struct ck *k, const void **rows, size_t n_rows, size_t dim, enum kern_kv kv, enum ck_pattern p)
{
    const size_t bytes = kern_kv_row_bytes(kv, dim);
    char *all = ck_input(k, (n_rows ? n_rows : 1) * bytes, 0);
    float *x = ck_input(k, 4 * dim, 0);
    for (size_t r = 0; r < n_rows; r++) {
        ck_fill_floats(k, x, dim, p);
        k->ref->kv_store(all + r * bytes, x, dim, kv);
        rows[r] = all + r * bytes;
    }
}

static void check_part(struct ck *k, size_t heads, size_t dim, size_t n_rows, enum kern_kv kv, enum ck_pattern p)
{
    const void *rows[ROWS];
    ck_case(k, "%zu heads, dim %zu, %zu rows of kind %u, pattern %s", heads, dim, n_rows, (unsigned)kv, ck_pattern_name(p));
    const size_t n = heads * dim, half = n_rows / 2, scratch_bytes = 4 * (n_rows * dim + heads * 64 + dim);
    make_rows(k, rows, n_rows, dim, kv, p);
    const float *q = ck_floats(k, n, CK_RANDOM), *sink = ck_floats(k, heads, CK_RANDOM);
    float *acc[2], *m[2], *z[2];
    for (unsigned i = 0; i < 2; i++) {
        const struct kern_table *t = i ? k->t : k->ref;
        float *scratch = ck_output_aligned(k, scratch_bytes);
        acc[i] = ck_output(k, 4 * n), m[i] = ck_output(k, 4 * heads), z[i] = ck_output(k, 4 * heads);
        for (size_t j = 0; j < n; j++) acc[i][j] = 0;
        for (size_t h = 0; h < heads; h++) m[i][h] = sink[h], z[i][h] = 1;
        t->attend_part(acc[i], m[i], z[i], q, heads, dim, rows, half, kv, 0.0442f, scratch);
        t->attend_part(acc[i], m[i], z[i], q, heads, dim, rows + half, n_rows - half, kv, 0.0442f, scratch);
        ck_same_bytes(k, scratch, scratch, scratch_bytes, "scratch");
    }
    ck_same_floats(k, m[0], m[1], heads, "m");
    ck_same_floats(k, z[0], z[1], heads, "z");
    ck_same_floats(k, acc[0], acc[1], n, "acc");
}

void check_attend_part(struct ck *k, unsigned which, struct ck_numbers *out)
{
    static const size_t heads[] = {1, 2, 3, 5, 8}, dims[] = {16, 32, 64, 96, 512}, ns[] = {0, 1, 2, 3, 8, 15, 17, 33, 63, 64};
    static const enum ck_pattern patterns[] = {CK_RANDOM, CK_ZERO, CK_SPIKE, CK_DENORMALS};
    const void *rows[ROWS];
    (void)which;
    for (size_t h = 0; k->t != k->ref && h < ARRAY_LEN(heads); h++)
        for (size_t d = 0; d < ARRAY_LEN(dims); d++)
            for (size_t n = 0; n < ARRAY_LEN(ns); n++)
                for (enum kern_kv kv = KERN_KV_F32; kv <= KERN_KV_Q8 && ck_ok(k); kv++)
                    if (kv != KERN_KV_Q8 || dims[d] % 32 == 0)
                        check_part(k, heads[h], dims[d], ns[n], kv, patterns[(h + d + n) % ARRAY_LEN(patterns)]);
    if (k->t != k->ref && ck_ok(k)) check_part(k, 64, 512, 64, KERN_KV_F16, CK_RANDOM);
    if (!ck_ok(k)) return;
    ck_case(k, "64 heads, dim 512, 64 rows");
    make_rows(k, rows, ROWS, 512, KERN_KV_F16, CK_RANDOM);
    const float *q = ck_floats(k, 64 * 512, CK_RANDOM);
    float *acc = ck_output(k, 4 * 64 * 512), *m = ck_output(k, 4 * 64), *z = ck_output(k, 4 * 64);
    float *scratch = ck_output_aligned(k, 4 * kern_attend_scratch(64, 512));
    for (size_t i = 0; i < 64 * 512; i++) acc[i] = 0;
    for (size_t h = 0; h < 64; h++) m[h] = 0, z[h] = 1;
    CK_BENCH(k) k->t->attend_part(acc, m, z, q, 64, 512, rows, ROWS, KERN_KV_F16, 0.0442f, scratch);
    *out = (struct ck_numbers){k->timer.best_ns, 2.0 * 64 * 64 * 512, (double)(ROWS * kern_kv_row_bytes(KERN_KV_F16, 512)), 0};
}

void check_attend_finish(struct ck *k, unsigned which, struct ck_numbers *out)
{
    static const size_t dims[] = {16, 32, 48, 64, 512};
    (void)which;
    for (size_t heads = 1; k->t != k->ref && heads <= 8; heads++)
        for (size_t d = 0; d < ARRAY_LEN(dims); d++)
            for (enum ck_pattern p = 0; p < CK_PATTERNS && ck_ok(k); p++) {
                const size_t n = heads * dims[d];
                ck_case(k, "%zu heads, dim %zu, pattern %s", heads, dims[d], ck_pattern_name(p));
                const float *acc = ck_floats(k, n, p), *z = ck_floats(k, heads, CK_RANDOM);
                float *want = ck_output(k, 4 * n), *got = ck_output(k, 4 * n);
                k->ref->attend_finish(want, acc, z, heads, dims[d]);
                k->t->attend_finish(got, acc, z, heads, dims[d]);
                ck_same_floats(k, want, got, n, "o");
            }
    if (!ck_ok(k)) return;
    ck_case(k, "64 heads, dim 512");
    const float *acc = ck_floats(k, 64 * 512, CK_RANDOM), *z = ck_floats(k, 64, CK_EQUAL);
    float *o = ck_output(k, 4 * 64 * 512);
    CK_BENCH(k) k->t->attend_finish(o, acc, z, 64, 512);
    *out = (struct ck_numbers){k->timer.best_ns, 64 * 512, 8.0 * 64 * 512, 0};
}

static void check_scores(struct ck *k, size_t heads, size_t dim, size_t n_rows, enum kern_kv kv, enum ck_pattern p)
{
    const void *rows[ROWS];
    ck_case(k, "%zu heads, dim %zu, %zu rows of kind %u, pattern %s", heads, dim, n_rows, (unsigned)kv, ck_pattern_name(p));
    make_rows(k, rows, n_rows, dim, kv, p);
    const float *q = ck_floats(k, heads * dim, CK_RANDOM), *w = ck_floats(k, heads, CK_RANDOM);
    float *want = ck_output(k, 4 * n_rows), *got = ck_output(k, 4 * n_rows), *scratch = ck_output_aligned(k, 4 * dim);
    k->ref->index_scores(want, q, w, heads, dim, rows, n_rows, kv, scratch);
    k->t->index_scores(got, q, w, heads, dim, rows, n_rows, kv, scratch);
    ck_same_floats(k, want, got, n_rows, "score");
    ck_same_bytes(k, scratch, scratch, 4 * dim, "scratch");
}

void check_index_scores(struct ck *k, unsigned which, struct ck_numbers *out)
{
    static const size_t heads[] = {1, 3, 4, 17, 64}, dims[] = {16, 32, 64, 128}, ns[] = {1, 2, 3, 4, 5, 8, 15, 16, 17, 64};
    const void *rows[ROWS];
    (void)which;
    for (size_t h = 0; k->t != k->ref && h < ARRAY_LEN(heads); h++)
        for (size_t d = 0; d < ARRAY_LEN(dims); d++)
            for (size_t n = 0; n < ARRAY_LEN(ns); n++)
                for (enum kern_kv kv = KERN_KV_F32; kv <= KERN_KV_Q8 && ck_ok(k); kv++)
                    if (kv != KERN_KV_Q8 || dims[d] % 32 == 0)
                        check_scores(k, heads[h], dims[d], ns[n], kv, (enum ck_pattern)((h + d + n) % CK_PATTERNS));
    if (!ck_ok(k)) return;
    ck_case(k, "64 heads, dim 128, 64 rows");
    make_rows(k, rows, ROWS, 128, KERN_KV_F16, CK_RANDOM);
    const float *q = ck_floats(k, 64 * 128, CK_RANDOM), *w = ck_floats(k, 64, CK_RANDOM);
    float *score = ck_output(k, 4 * ROWS), *scratch = ck_output_aligned(k, 4 * 128);
    CK_BENCH(k) k->t->index_scores(score, q, w, 64, 128, rows, ROWS, KERN_KV_F16, scratch);
    *out = (struct ck_numbers){k->timer.best_ns, 64.0 * 64 * 128, (double)(ROWS * kern_kv_row_bytes(KERN_KV_F16, 128)), 0};
}
