/* The memory that bench reads: an eighth of what is free within limits, and none where that would push the model out. */
#include "runtime/app/bench_memory.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)

static void test_size(void **state)
{
    (void)state;
    static const uint64_t table[][2] = {{0, 0},    {31, 0},    {32, 16},    {100, 16},
                                        {128, 16}, {800, 100}, {4096, 512}, {1 << 20, 512}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        assert_int_equal(memory_reader_size(table[i][0] * MIB), table[i][1] * MIB);
}

static void test_no_reader_is_no_number(void **state)
{
    (void)state;
    assert_true(isnan(memory_reader_measure(NULL)));
    assert_int_equal(memory_reader_bytes(NULL), 0);
    memory_reader_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_size), cmocka_unit_test(test_no_reader_is_no_number)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
