/* test_checkkern.c - every kernel of every instruction set of this CPU against its scalar twin, and the harness itself.
 *
 * Goal: equal bytes everywhere (kernels.h), and a harness whose silence means something. Method: check_run without bench; then
 * a table with planted faults, each of which must be found: a wrong tail, a write past the end, a column count that goes wrong,
 * an empty slot, a read past the end (a fault; the signal is caught here). CHECKKERN_LOOSE=1 in the environment is
 * for emulators (kernels/README.md). */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/check/checkkern.h"
#include "kernels/check/ck.h"
#include "kernels/cpu_flags.h"
#include "kernels/kernels.h"
#include "platform/base/log.h"

static char last_started[128]; /* by the log, for the case that a kernel ends in a fault */

static void remember(void *user, enum mc_log_level level, const char *line)
{
    (void)user, (void)level;
    snprintf(last_started, sizeof last_started, "%s", line);
}

struct row_counts {
    size_t all, avx2, avx2_vnni;
};

static void print_row(void *user, const struct check_row *row)
{
    struct row_counts *rows = user;
    rows->all++;
    rows->avx2 += !strcmp(row->isa, "avx2") && strstr(row->kernel, "packed");
    rows->avx2_vnni += !strcmp(row->isa, "avx2_vnni");
    if (!row->ok) print_error("%s, %s: %s\n", row->kernel, row->isa, row->detail);
}

static void test_all_kernels_equal_their_twins(void **state)
{
    (void)state;
    const struct check_options opt = {
        .cpu_flags = kern_cpu_flags(), .seed = 20260731, .loose = getenv("CHECKKERN_LOOSE") != NULL};
    struct row_counts rows = {0};
    size_t failed = 1;
    assert_int_equal(check_run(&opt, print_row, &rows, &failed, NULL), MC_OK);
    struct kern_table t;
    kern_table_init(&t, opt.cpu_flags);
    last_started[0] = 0;
    print_message("%u kernels compared, up to %s\n", (unsigned)rows.all, t.isa);
    if (opt.cpu_flags & KERN_AVX_VNNI) assert_true(rows.avx2_vnni > 0 && rows.avx2 > rows.avx2_vnni); /* both variants */
    assert_true(rows.all > 0 || !strcmp(t.isa, "scalar"));
    assert_int_equal(failed, 0);
}

static void expect_numbers(void *user, const struct check_row *row)
{
    size_t *rows = user;
    ++*rows;
    assert_true(row->ok && row->weights_per_cycle > 0 && row->gb_s > 0 && row->speedup == 1);
}

/* ---- planted faults ---- */

static struct kern_table honest;

static void norm_forgets_the_tail(float *y, const float *x, const float *w, size_t n, float eps)
{
    honest.rms_norm(y, x, w, n, eps);
    if (n % 16 == 15) y[n - 1] = x[n - 1];
}

static void swiglu_writes_too_far(float *h, const float *g, const float *u, size_t n, float limit)
{
    honest.swiglu(h, g, u, n, limit);
    if (n == 33) h[n] = 0;
}

static void matmul_drops_a_row(float *const *y, const void *w, size_t w_stride, const void *const *x, size_t k, size_t rows,
                               size_t cols)
{
    honest.matmul[QUANT_Q8_0](y, w, w_stride, x, k, cols == 5 && rows > 1 ? rows - 1 : rows, cols);
}

static volatile float sink;

static void hadamard_reads_too_far(float *x, size_t n)
{
    honest.hadamard(x, n);
    sink = x[n + 16]; /* behind the 64 bytes of the canary */
}

struct finding {
    const char *kernel;
    const char *detail;
    size_t rows;
};

static void note(void *user, const struct check_row *row)
{
    struct finding *f = user;
    f->rows++;
    assert_string_equal(row->kernel, f->kernel);
    assert_false(row->ok);
    if (!strstr(row->detail, f->detail)) fail_msg("%s: %s", row->kernel, row->detail);
}

static jmp_buf after_fault;

static void on_fault(int number)
{
    (void)number;
    longjmp(after_fault, 1);
}

static void test_planted_faults_are_found(void **state)
{
    (void)state;
    static struct ck_tables set;
    static const char *const details[][2] = {{"rms_norm", "y[14] of 15"},
                                             {"swiglu", "writes outside"},
                                             {"matmul q8_0", "rows 0+37, columns 0+5: y[36] of 185"},
                                             {"rope", "empty"}};
    kern_table_init(&honest, 0);
    set.n = 2;
    set.table[0] = set.table[1] = honest;
    set.isa[0] = "scalar", set.isa[1] = "planted";
    set.table[1].rms_norm = norm_forgets_the_tail;
    set.table[1].swiglu = swiglu_writes_too_far;
    set.table[1].matmul[QUANT_Q8_0] = matmul_drops_a_row;
    set.table[1].rope = NULL;
    for (size_t i = 0; i < ARRAY_LEN(details); i++) {
        struct finding f = {details[i][0], details[i][1], 0};
        const struct check_options opt = {.seed = 5, .only = details[i][0]};
        size_t failed = 0;
        assert_int_equal(ck_run_tables(&set, &opt, note, &f, &failed, NULL), MC_OK);
        assert_int_equal(f.rows, 1);
        assert_int_equal(failed, 1);
    }
    set.table[1].hadamard = hadamard_reads_too_far;
    void (*before)(int) = signal(SIGSEGV, on_fault);
    volatile bool finished = false;
    if (!setjmp(after_fault)) {
        const struct check_options opt = {.seed = 5, .only = "hadamard"};
        size_t failed = 0;
        struct row_counts rows = {0};
        (void)!ck_run_tables(&set, &opt, print_row, &rows, &failed, NULL);
        finished = true;
    }
    signal(SIGSEGV, before);
    assert_false(finished); /* the pool of this run is lost: the price of a fault */
}

static void test_bench_fills_the_numbers(void **state)
{
    (void)state;
    static struct ck_tables set;
    const struct check_options opt = {.seed = 5, .only = "hadamard", .bench = true, .bench_ms = 1};
    size_t failed = 1, rows = 0;
    kern_table_init(&set.table[0], 0);
    set.n = 1, set.isa[0] = "scalar";
    assert_int_equal(ck_run_tables(&set, &opt, expect_numbers, &rows, &failed, NULL), MC_OK);
    assert_int_equal(rows, 1);
    assert_int_equal(failed, 0);
}

static bool stop_now(void *user)
{
    return ++*(int *)user > 2;
}

static void test_a_run_can_be_stopped(void **state)
{
    (void)state;
    static struct ck_tables set;
    int asked = 0;
    const struct check_options opt = {
        .seed = 5, .bench = true, .bench_ms = 1, .only = "h", .stop = stop_now, .stop_user = &asked};
    size_t failed = 1;
    struct row_counts rows = {0};
    kern_table_init(&set.table[0], 0);
    set.n = 1, set.isa[0] = "scalar";
    assert_int_equal(ck_run_tables(&set, &opt, print_row, &rows, &failed, NULL), MC_ECANCELLED);
    assert_int_equal(rows.all, 2);
    assert_int_equal(asked, 3);
}

static int name_the_culprit(void **state)
{
    (void)state;
    if (last_started[0]) print_error("ended in: %s\n", last_started);
    return 0;
}

int main(void)
{
    mc_log_set(remember, NULL, MC_LOG_TRACE);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_all_kernels_equal_their_twins, name_the_culprit),
        cmocka_unit_test(test_bench_fills_the_numbers),
        cmocka_unit_test(test_a_run_can_be_stopped),
        cmocka_unit_test(test_planted_faults_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
