/* test_checkkern.c - every kernel of every instruction set of this CPU against its scalar twin, and the harness against itself.
 *
 * Goal: equal bytes everywhere (kernels.h). Method: check_run without bench; then a table with planted faults must be found
 * out, so that silence of the harness means something. CHECKKERN_SEED is fixed here; `modchip bench kernels` takes others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/check/checkkern.h"
#include "kernels/cpu_flags.h"
#include "kernels/kernels.h"

static void print_row(void *user, const struct check_row *row)
{
    size_t *rows = user;
    ++*rows;
    if (!row->ok) print_error("%s, %s: %s\n", row->kernel, row->isa, row->detail);
}

static void test_all_kernels_equal_their_twins(void **state)
{
    (void)state;
    const struct check_options opt = {.cpu_flags = kern_cpu_flags(), .seed = 20260731};
    size_t rows = 0, failed = 1;
    assert_int_equal(check_run(&opt, print_row, &rows, &failed, NULL), MC_OK);
    struct kern_table t;
    kern_table_init(&t, opt.cpu_flags);
    print_message("%zu kernels compared, up to %s\n", rows, t.isa);
    assert_true(rows > 0 || !strcmp(t.isa, "scalar"));
    assert_int_equal(failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_kernels_equal_their_twins)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
