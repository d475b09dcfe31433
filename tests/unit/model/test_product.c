/* test_product.c - the home ranges of rows.
 *
 * Goal: for every number of rows and workers the ranges are contiguous, cover each row once, begin at whole groups of 16 rows,
 * and are even; those of experts are whole groups of 128 rows where there are enough. Method: all worker counts of the machines
 * we know, and the matrices of the real model. */
#include "runtime/model/product.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void ranges_cover_each_row_once(void **state)
{
    (void)state;
    static const uint32_t rows[] = {1, 15, 16, 17, 100, 256, 512, 1024, 2048, 4096, 8192, 32768, 129280};
    for (size_t k = 0; k < ARRAY_LEN(rows); k++)
        for (unsigned count = 1; count <= 200; count++) {
            uint32_t end = 0, r0, r1, least = UINT32_MAX, most = 0;
            for (unsigned id = 0; id < count; id++) {
                product_home(rows[k], id, count, &r0, &r1);
                assert_int_equal(r0, end);
                assert_true(r1 >= r0 && r1 <= rows[k]);
                if (r0 < rows[k]) assert_int_equal(r0 % 16, 0);
                if (r1 - r0 < least) least = r1 - r0;
                if (r1 - r0 > most) most = r1 - r0;
                end = r1;
            }
            assert_int_equal(end, rows[k]);
            if (rows[k] % 16 == 0) assert_true(most - least <= 16 || (most - least) * 8 <= most);
        }
}

static void expert_rows_stay_in_groups(void **state)
{
    (void)state;
    static const unsigned counts[] = {1, 2, 4, 8, 16};
    uint32_t r0, r1;
    for (size_t k = 0; k < ARRAY_LEN(counts); k++)
        for (unsigned id = 0; id < counts[k]; id++) {
            product_home(2048, id, counts[k], &r0, &r1);
            assert_int_equal(r0 % 128, 0);
            assert_int_equal(r1 - r0, 2048 / counts[k]);
        }
    product_home(2048, 1, 12, &r0, &r1); /* 16 groups for 12 workers would be twice as many for some */
    assert_int_equal(r0, 160);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_cover_each_row_once),
        cmocka_unit_test(expert_rows_stay_in_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
