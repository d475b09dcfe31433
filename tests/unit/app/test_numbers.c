/* Numbers and lists as people type them: what is accepted, what is refused, and that errors name the entry. */
#include "runtime/app/numbers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_integers(void **state)
{
    (void)state;
    int64_t v = -7;
    assert_true(number_i64("0", 0, 10, &v));
    assert_int_equal(v, 0);
    assert_true(number_i64("10", 0, 10, &v));
    assert_true(number_i64("-3", -5, 5, &v));
    assert_int_equal(v, -3);
    assert_true(number_i64("007", 0, 10, &v));
    const char *const bad[] = {
        "", " 1", "1 ", "+1", "-1", "11", "1.0", "0x1", "1e0", "9223372036854775808", "99999999999999999999", "--1", "-"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) assert_false(number_i64(bad[i], 0, 10, &v));
    assert_int_equal(v, 7);
}

static void test_seeds(void **state)
{
    (void)state;
    uint64_t v;
    assert_true(number_u64("18446744073709551615", &v));
    assert_true(v == UINT64_MAX);
    assert_false(number_u64("18446744073709551616", &v));
    assert_false(number_u64("-1", &v));
    assert_false(number_u64("", &v));
}

static void test_reals(void **state)
{
    (void)state;
    double v = 5;
    assert_true(number_f64("0.25", 0, 1, &v));
    assert_true(v > 0.2499 && v < 0.2501);
    assert_true(number_f64("1e-3", 0, 1, &v));
    const char *const bad[] = {"", "nan", "inf", "-0.1", "1.01", "0x1p-2", "1,5", ".", "e", "1e", "1e999", " 1", "1 "};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) assert_false(number_f64(bad[i], 0, 1, &v));
}

static void expect_list(const char *text, size_t size, size_t want_n, int32_t want_last)
{
    int32_t *list = NULL;
    size_t n = 99;
    struct mc_err err = {0};
    assert_int_equal(number_list((struct mc_span){(const uint8_t *)text, size}, "list", 0, 100, &list, &n, &err), MC_OK);
    assert_int_equal(n, want_n);
    if (n) assert_int_equal(list[n - 1], want_last);
    free(list);
}

static void test_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"0", 0},
                {"4096", 4096},
                {"512M", 512 << 20},
                {"1K", 1024},
                {"12G", UINT64_C(12) << 30},
                {"1.5GiB", UINT64_C(3) << 29},
                {"2MB", 2000000},
                {"1T", UINT64_C(1) << 40}};
    static const char *const bad[] = {"",    "-1",   "M",    "1m",  "1 G",      "1Gi", "1GBs",
                                      "1e3", "0x10", "1..5", "12X", "5000000T", "inf"};
    uint64_t bytes;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_true(number_size(good[i].text, &bytes));
        assert_int_equal(bytes, good[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) assert_false(number_size(bad[i], &bytes));
}

static void test_lists(void **state)
{
    (void)state;
    expect_list("1,2,3", 5, 3, 3);
    expect_list("[1, 2, 100]\n", 12, 3, 100);
    expect_list(" 4\r\n5\t6 ", 8, 3, 6);
    expect_list("7", 1, 1, 7);
    expect_list("", 0, 0, 0);
    expect_list("[]", 2, 0, 0);
    char many[1000];
    for (int i = 0; i < 500; i++) memcpy(many + 2 * i, "9,", 2);
    expect_list(many, sizeof many, 500, 9);
}

static void test_bad_lists_name_the_entry(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t size;
        const char *entry;
    } bad[] = {{"1,x", 3, "entry 2"},     {"101", 3, "entry 1"},
               {"1,-2", 4, "entry 2"},    {"1;2", 3, "entry 1"},
               {"[1", 2, "']'"},          {"1,2]", 4, "entry 2"},
               {"1.5", 3, "entry 1"},     {"1\0,2", 4, "entry 1"},
               {"1,,2", 4, "entry 2"},    {",1", 2, "entry 1"},
               {"1 , , 2", 7, "entry 2"}, {"[[1]]", 5, "entry"},
               {"0x10", 4, "entry 1"},    {"12345678901234567890", 20, "entry 1"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int32_t *list = NULL;
        size_t n = 0;
        struct mc_err err = {0};
        assert_int_equal(
            number_list((struct mc_span){(const uint8_t *)bad[i].text, bad[i].size}, "list", 0, 100, &list, &n, &err), MC_EARG);
        assert_non_null(strstr(err.msg, bad[i].entry));
        assert_null(list);
    }
}

static void test_a_list_from_a_file(void **state)
{
    (void)state;
    FILE *f = fopen("numbers_list.txt", "wb");
    fputs("1\n2\n3\n", f);
    fclose(f);
    int32_t *list = NULL;
    size_t n = 0;
    struct mc_err err = {0};
    assert_int_equal(number_list_arg("@numbers_list.txt", "--tokens", 0, 9, &list, &n, &err), MC_OK);
    assert_int_equal(n, 3);
    free(list);
    remove("numbers_list.txt");
    assert_int_not_equal(number_list_arg("@numbers_list.txt", "--tokens", 0, 9, &list, &n, &err), MC_OK);
    assert_non_null(strstr(err.msg, "numbers_list.txt"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_reals),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_bad_lists_name_the_entry),
        cmocka_unit_test(test_a_list_from_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
