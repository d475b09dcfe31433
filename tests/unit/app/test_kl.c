/* Distances between rows of logits on cases small enough to work out by hand, and the file that keeps logits. */
#include "runtime/app/kl.h"
#include "runtime/app/kl_file.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void near(double got, double want, double bound)
{
    if (!(fabs(got - want) <= bound)) fail_msg("%.12g is not %.12g", got, want);
}

/* p = (1/2, 1/4, 1/4), q = (1/4, 1/2, 1/4); constant shifts of the logits must not matter. */
static void test_three_tokens(void **state)
{
    (void)state;
    const float p[3] = {(float)log(0.5) + 3, (float)log(0.25) + 3, (float)log(0.25) + 3};
    const float q[3] = {(float)log(0.25) - 80, (float)log(0.5) - 80, (float)log(0.25) - 80};
    struct kl_stats s;
    struct kl_result r;
    assert_int_equal(kl_create(&s, 3, 1, NULL), MC_OK);
    kl_add(&s, p, q, 0);
    kl_finish(&s, &r);
    near(r.kl_mean, 0.5 * log(2) + 0.25 * log(0.5), 1e-5);
    near(r.kl_p99, r.kl_mean, 1e-12);
    near(r.top10_mean, r.kl_mean, 1e-12); /* fewer than ten tokens: the whole */
    near(r.cos_mean, (0.125 + 0.125 + 0.0625) / (0.25 + 0.0625 + 0.0625), 1e-5);
    near(r.top1_match, 0, 0);
    near(r.top3_match, 1, 0);
    near(r.delta_ppl, 1, 1e-5); /* nll ln 4 against ln 2 */
    kl_destroy(&s);
    near(logits_nll(p, 3, 0), log(2), 1e-6);
}

static void test_equal_rows_are_at_distance_zero(void **state)
{
    (void)state;
    enum { N = 500 };
    float p[N];
    for (int i = 0; i < N; i++) p[i] = (float)((i * 37) % 101) * 0.1f;
    struct kl_stats s;
    struct kl_result r;
    assert_int_equal(kl_create(&s, N, 3, NULL), MC_OK);
    for (uint32_t i = 0; i < 3; i++) kl_add(&s, p, p, i);
    kl_finish(&s, &r);
    near(r.kl_mean, 0, 0);
    near(r.top10_p99, 0, 0);
    near(r.cos_mean, 1, 1e-12);
    near(r.top1_match, 1, 0);
    near(r.delta_ppl, 0, 0);
    kl_destroy(&s);
}

/* Only the tail outside the ten best differs: the top-10 divergence stays 0, the whole one does not. */
static void test_top_ten_looks_at_ten(void **state)
{
    (void)state;
    enum { N = 40 };
    float p[N], q[N];
    for (int i = 0; i < N; i++) {
        p[i] = i < 10 ? 5.0f + 0.1f * (float)i : 0.0f;
        q[i] = i < 10 ? p[i] : 3.0f;
    }
    struct kl_stats s;
    struct kl_result r;
    assert_int_equal(kl_create(&s, N, 1, NULL), MC_OK);
    kl_add(&s, p, q, 0);
    kl_finish(&s, &r);
    near(r.top10_mean, 0, 1e-12);
    assert_true(r.kl_mean > 0.1);
    kl_destroy(&s);
}

/* Third of q: counts; fourth: does not. Positions 0..99 have divergences that grow, so that the percentile lies between two of
 * them. */
static void test_ranks_and_percentile(void **state)
{
    (void)state;
    const float p[4] = {9, 0, 0, 0}, third[4] = {1, 3, 2, 0}, fourth[4] = {0, 3, 2, 1};
    struct kl_stats s;
    struct kl_result r;
    assert_int_equal(kl_create(&s, 4, 2, NULL), MC_OK);
    kl_add(&s, p, third, 0);
    kl_add(&s, p, fourth, 0);
    kl_finish(&s, &r);
    near(r.top3_match, 0.5, 0);
    kl_destroy(&s);

    double kl[101];
    assert_int_equal(kl_create(&s, 2, 101, NULL), MC_OK);
    for (int i = 0; i <= 100; i++) {
        const float a[2] = {0, 0}, b[2] = {0, 0.02f * (float)(100 - i)};
        kl_add(&s, a, b, 0);
        kl[i] = s.kl[i];
    }
    kl_finish(&s, &r);
    near(r.kl_p99, kl[1], 1e-12); /* the second largest of 101 */
    kl_destroy(&s);
}

#define FILE_NAME "test_kl.logits"

static enum mc_code open_as(struct kl_layout l, struct mc_err *err)
{
    struct kl_reader *r = NULL;
    const enum mc_code code = kl_reader_open(FILE_NAME, &l, &r, err);
    kl_reader_close(r);
    return code;
}

static void write_rows(const struct kl_layout *l, const float (*rows)[3])
{
    struct kl_writer *w;
    assert_int_equal(kl_writer_create(FILE_NAME, l, &w, NULL), MC_OK);
    assert_int_equal(kl_writer_add(w, rows[0], NULL), MC_OK);
    assert_int_equal(kl_writer_add(w, rows[1], NULL), MC_OK);
    assert_int_equal(kl_writer_finish(w, NULL), MC_OK);
}

static void test_kept_logits_come_back_and_strangers_are_refused(void **state)
{
    (void)state;
    const struct kl_layout l = {3, 8, 8, 1, 2, 0x1234};
    const float rows[2][3] = {{1, -2, 0.5f}, {3, 4, 5}};
    struct mc_err err;
    write_rows(&l, rows);
    struct kl_reader *r;
    const float *got;
    assert_int_equal(kl_reader_open(FILE_NAME, &l, &r, &err), MC_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kl_reader_next(r, &got, &err), MC_OK);
        assert_memory_equal(got, rows[i], sizeof rows[i]);
    }
    kl_reader_close(r);

    static const char *const says[] = {"vocabulary", "--chunk", "--stride", "--chunks", "scored", "another text"};
    for (int i = 0; i < 6; i++) {
        struct kl_layout other = l;
        uint32_t *const field[] = {&other.n_vocab, &other.chunk, &other.stride, &other.n_windows, &other.n_scored};
        if (i < 5)
            ++*field[i];
        else
            other.ids_hash++;
        assert_int_equal(open_as(other, &err), MC_EARG);
        if (!strstr(err.msg, says[i])) fail_msg("'%s' does not say '%s'", err.msg, says[i]);
    }
    remove(FILE_NAME);
}

static void test_damaged_files_are_refused(void **state)
{
    (void)state;
    const struct kl_layout l = {3, 8, 8, 1, 2, 0x1234};
    const float rows[2][3] = {{1, -2, 0.5f}, {3, NAN, 5}};
    struct mc_err err;
    struct kl_reader *r;
    const float *got;
    write_rows(&l, rows);
    assert_int_equal(kl_reader_open(FILE_NAME, &l, &r, &err), MC_OK);
    assert_int_equal(kl_reader_next(r, &got, &err), MC_OK);
    assert_int_equal(kl_reader_next(r, &got, &err), MC_EARG);
    kl_reader_close(r);

    FILE *f = fopen(FILE_NAME, "ab");
    fputc(0, f);
    fclose(f);
    assert_int_equal(open_as(l, &err), MC_EARG);
    assert_non_null(strstr(err.msg, "damaged"));
    f = fopen(FILE_NAME, "wb");
    fputs("short", f);
    fclose(f);
    assert_int_equal(open_as(l, &err), MC_EARG);
    assert_non_null(strstr(err.msg, "--kl-save"));
    remove(FILE_NAME);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_three_tokens),
        cmocka_unit_test(test_equal_rows_are_at_distance_zero),
        cmocka_unit_test(test_top_ten_looks_at_ten),
        cmocka_unit_test(test_ranks_and_percentile),
        cmocka_unit_test(test_kept_logits_come_back_and_strangers_are_refused),
        cmocka_unit_test(test_damaged_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
