/* The JSON writer: order, escapes, numbers that read back, bytes that are no UTF-8. */
#include "runtime/app/json_out.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void expect(const struct json_out *j, const char *want)
{
    assert_false(j->failed);
    assert_int_equal(j->size, strlen(want));
    assert_memory_equal(j->text, want, j->size);
}

static void test_structure(void **state)
{
    (void)state;
    struct json_out j, part;
    json_out_init(&j);
    json_out_init(&part);
    json_out_array(&part, NULL);
    json_out_int(&part, NULL, -1);
    json_out_uint(&part, NULL, UINT64_MAX);
    json_out_array_end(&part);
    json_out_object(&j, NULL);
    json_out_splice(&j, "z", &part);
    json_out_object(&j, "a");
    json_out_object_end(&j);
    json_out_array(&j, "b");
    json_out_bool(&j, NULL, true);
    json_out_null(&j, NULL);
    json_out_text(&j, NULL, "x");
    json_out_text(&j, NULL, NULL);
    json_out_array_end(&j);
    json_out_object_end(&j);
    expect(&j, "{\"z\": [-1, 18446744073709551615], \"a\": {}, \"b\": [true, null, \"x\", null]}");
    json_out_deinit(&j);
    json_out_deinit(&part);
}

static void expect_text(const char *bytes, size_t size, const char *want)
{
    struct json_out j;
    json_out_init(&j);
    json_out_bytes(&j, NULL, bytes, size);
    expect(&j, want);
    json_out_deinit(&j);
}

static void test_text(void **state)
{
    (void)state;
    expect_text("", 0, "\"\"");
    expect_text("a\"b\\c\n\t\r\0\x1f\x7f", 11, "\"a\\\"b\\\\c\\n\\t\\r\\u0000\\u001f\\u007f\"");
    expect_text("\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x91\x8D", 9, "\"\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x91\x8D\"");
    /* cut, overlong, surrogate, beyond U+10FFFF, stray */
    expect_text("\xC3", 1, "\"\xEF\xBF\xBD\"");
    expect_text("\xC0\x80", 2, "\"\xEF\xBF\xBD\xEF\xBF\xBD\"");
    expect_text("\xED\xA0\x80", 3, "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
    expect_text("\xF4\x90\x80\x80", 4, "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
    expect_text("a\x80z", 3, "\"a\xEF\xBF\xBDz\"");
}

static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        double v;
        const char *want;
    } cases[] = {{0, "0"},
                 {1.5, "1.5"},
                 {-2, "-2"},
                 {0.1, "0.1"},
                 {1e300, "1e+300"},
                 {1.0 / 3, "0.3333333333333333"},
                 {(double)NAN, "null"},
                 {(double)INFINITY, "null"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct json_out j;
        json_out_init(&j);
        json_out_num(&j, NULL, cases[i].v);
        expect(&j, cases[i].want);
        json_out_deinit(&j);
    }
    struct json_out j;
    json_out_init(&j);
    json_out_float(&j, NULL, 1e-6f);
    expect(&j, "1e-06");
    json_out_deinit(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_structure), cmocka_unit_test(test_text),
                                       cmocka_unit_test(test_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
