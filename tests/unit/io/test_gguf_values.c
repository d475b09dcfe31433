/* test_gguf_values.c - goal: what a correct GGUF file says is what callers get, whatever type it was written in.
 * Method: files written into memory by gguf_image.h. */
#include "tests/unit/io/gguf_image.h"

enum { F32 = QUANT_F32, Q2_0 = QUANT_Q2_0 };

static struct gguf *parse(const struct image *m)
{
    struct gguf *g = NULL;
    struct mc_err err = {0};
    if (gguf_parse((struct mc_span){m->data, m->size}, "good.gguf", &g, &err) != MC_OK) fail_msg("%s", err.msg);
    return g;
}

static void good_file_is_read(void **state)
{
    (void)state;
    struct image m = {0};
    struct mc_err err;
    struct os_file *f = NULL;
    good(&m);
    struct gguf *g = parse(&m);
    assert_string_equal(gguf_path(g), "good.gguf");
    assert_int_equal(gguf_n_parts(g), 1);
    assert_string_equal(gguf_part_path(g, 0), "good.gguf");
    assert_int_equal(gguf_part_size(g, 0), m.size);
    assert_int_equal(gguf_alignment(g), 32);
    assert_int_equal(gguf_n_values(g), 2);
    assert_true(span_is(gguf_value_at(g, 1)->key, "deepseek4.block_count"));
    assert_ptr_equal(gguf_find(g, "deepseek4.block_count"), gguf_value_at(g, 1));
    assert_null(gguf_find(g, "deepseek4.block_coun"));
    assert_null(gguf_find(g, ""));
    assert_int_equal(gguf_n_tensors(g), 2);
    const struct gguf_tensor *t = gguf_tensor_find(g, "second.weight");
    assert_ptr_equal(t, gguf_tensor_at(g, 1));
    assert_int_equal(t->type, QUANT_F32);
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->ne[0], 4);
    assert_int_equal(t->ne[1], 4);
    assert_int_equal(t->ne[2], 1);
    assert_int_equal(t->ne[3], 1);
    assert_int_equal(t->size_bytes, 64);
    assert_int_equal(t->file_off, m.size - 64);
    assert_null(gguf_tensor_find(g, "third.weight"));
    assert_int_equal(gguf_part_file(g, 0, &f, &err), MC_EARG);
    gguf_close(g);
    gguf_close(NULL);
    img_free(&m);
}

/* Directory order is free; q2_0 with 18 bytes a block is q2_0, also where one or two blocks would fit both; the last tensor may
 * do without padding; alignment 64 is obeyed. */
static void unusual_files_are_read(void **state)
{
    (void)state;
    struct image m = {0};
    img_header(&m, 3, 1);
    img_kv_u32(&m, "general.alignment", 64);
    img_tensor(&m, "third", Q2_0, 64, 3, 192);
    img_tensor(&m, "first", Q2_0, 128, 0, 0);
    img_tensor(&m, "second", F32, 1, 17, 64);
    img_pad(&m, 64);
    const size_t data_off = m.size;
    img_fill(&m, 0, 192 + 54);
    struct gguf *g = parse(&m);
    assert_int_equal(gguf_alignment(g), 64);
    assert_int_equal(gguf_tensor_find(g, "third")->file_off, data_off + 192);
    assert_int_equal(gguf_tensor_find(g, "third")->size_bytes, 54);
    assert_int_equal(gguf_tensor_find(g, "first")->size_bytes, 36);
    gguf_close(g);
    img_pad(&m, 64);
    gguf_close(parse(&m));
    img_free(&m);

    img_header(&m, 1, 0); /* 18 and 30 bytes are both padded to 32 */
    img_tensor(&m, "one.block", Q2_0, 64, 0, 0);
    img_pad(&m, 32);
    img_fill(&m, 0, 32);
    gguf_close(parse(&m));
    img_free(&m);

    img_header(&m, 0, 0); /* nothing at all is a file too */
    g = parse(&m);
    assert_null(gguf_find(g, "general.architecture"));
    assert_null(gguf_tensor_find(g, "output.weight"));
    gguf_close(g);
    img_free(&m);
}

static void write_all_types(struct image *m)
{
    img_header(m, 0, 17);
    img_key(m, "u8", GGUF_U8), img_fill(m, 200, 1);
    img_key(m, "i8", GGUF_I8), img_fill(m, 0xff, 1);
    img_kv_u16(m, "u16", 60000);
    img_key(m, "i16", GGUF_I16), img_bytes(m, "\x18\xfc", 2);
    img_kv_u32(m, "u32", 4000000000u);
    img_key(m, "i32", GGUF_I32), img_u32(m, (uint32_t)-5);
    img_key(m, "u64", GGUF_U64), img_u64(m, UINT64_MAX);
    img_key(m, "i64", GGUF_I64), img_u64(m, 1ull << 63);
    img_key(m, "f32", GGUF_F32), img_u32(m, 0x3fc00000);
    img_key(m, "f64", GGUF_F64), img_u64(m, 0xc004000000000000);
    img_key(m, "yes", GGUF_BOOL), img_fill(m, 1, 1);
    img_kv_text(m, "text", "a\xc3\xa4");
    img_array(m, "ints", GGUF_I32, 3), img_u32(m, 7), img_u32(m, (uint32_t)-8), img_u32(m, 9);
    img_array(m, "floats", GGUF_F32, 2), img_u32(m, 0x3f800000), img_u32(m, 0xbf800000);
    img_array(m, "texts", GGUF_STRING, 3), img_text(m, "one"), img_text(m, ""), img_text(m, "three");
    img_array(m, "none", GGUF_STRING, 0);
    img_array(m, "large", GGUF_U64, 2), img_u64(m, INT64_MAX), img_u64(m, 1ull << 63);
}

static void assert_u64(const struct gguf *g, const char *key, uint64_t want)
{
    uint64_t n = 1;
    assert_int_equal(gguf_get_u64(g, key, &n, NULL), MC_OK);
    assert_true(n == want);
}

static void assert_no_u64(const struct gguf *g, const char *key, const char *says)
{
    uint64_t n = 12345;
    struct mc_err err;
    assert_int_equal(gguf_get_u64(g, key, &n, &err), MC_EFORMAT);
    assert_true(n == 12345);
    assert_says(&err, "good.gguf");
    assert_says(&err, key);
    assert_says(&err, says);
}

static void integers_are_read(void **state)
{
    const struct gguf *g = *state;
    struct mc_err err;
    uint64_t n = 0;
    int64_t i = 0;
    assert_u64(g, "u8", 200);
    assert_u64(g, "u16", 60000);
    assert_u64(g, "u32", 4000000000u);
    assert_u64(g, "u64", UINT64_MAX);
    assert_no_u64(g, "i8", "-1");
    assert_no_u64(g, "i16", "-1000");
    assert_no_u64(g, "i32", "-5");
    assert_no_u64(g, "i64", "-9223372036854775808");
    assert_no_u64(g, "f32", "of type f32, expected an integer");
    assert_no_u64(g, "yes", "of type bool");
    assert_no_u64(g, "text", "of type string");
    assert_no_u64(g, "ints", "an array of i32");
    assert_no_u64(g, "gone", "missing");
    assert_int_equal(gguf_get_u64_or(g, "gone", 17, &n, &err), MC_OK);
    assert_int_equal(n, 17);
    assert_int_equal(gguf_get_u64_or(g, "u8", 17, &n, &err), MC_OK);
    assert_int_equal(n, 200);
    assert_int_equal(gguf_get_u64_or(g, "text", 17, &n, &err), MC_EFORMAT);

    assert_int_equal(gguf_item_i64(g, gguf_find(g, "ints"), 1, &i, &err), MC_OK);
    assert_int_equal(i, -8);
    assert_int_equal(gguf_item_i64(g, gguf_find(g, "i64"), 0, &i, &err), MC_OK);
    assert_true(i == INT64_MIN);
    assert_int_equal(gguf_item_i64(g, gguf_find(g, "large"), 0, &i, &err), MC_OK);
    assert_true(i == INT64_MAX);
    assert_int_equal(gguf_item_i64(g, gguf_find(g, "large"), 1, &i, &err), MC_EFORMAT);
    assert_says(&err, "'large': element 1");
    assert_int_equal(gguf_item_i64(g, gguf_find(g, "floats"), 0, &i, &err), MC_EFORMAT);
    assert_says(&err, "'floats' is an array of f32, expected integers");
}

static void other_types_are_read(void **state)
{
    const struct gguf *g = *state;
    struct mc_err err;
    double x = 0;
    bool b = false;
    struct mc_span s;
    assert_int_equal(gguf_get_f64(g, "f32", &x, &err), MC_OK);
    assert_true(x == 1.5);
    assert_int_equal(gguf_get_f64(g, "f64", &x, &err), MC_OK);
    assert_true(x == -2.5);
    assert_int_equal(gguf_get_f64(g, "u32", &x, &err), MC_EFORMAT);
    assert_says(&err, "'u32' is of type u32, expected f32 or f64");
    assert_int_equal(gguf_get_f64(g, "gone", &x, &err), MC_EFORMAT);
    assert_int_equal(gguf_get_f64_or(g, "gone", 0.25, &x, &err), MC_OK);
    assert_true(x == 0.25);
    assert_int_equal(gguf_get_f64_or(g, "floats", 0.25, &x, &err), MC_EFORMAT);
    assert_int_equal(gguf_item_f64(g, gguf_find(g, "floats"), 1, &x, &err), MC_OK);
    assert_true(x == -1.0);
    assert_int_equal(gguf_item_f64(g, gguf_find(g, "f64"), 0, &x, &err), MC_OK);
    assert_true(x == -2.5);
    assert_int_equal(gguf_item_f64(g, gguf_find(g, "ints"), 0, &x, &err), MC_EFORMAT);

    assert_int_equal(gguf_get_bool_or(g, "yes", false, &b, &err), MC_OK);
    assert_true(b);
    assert_int_equal(gguf_get_bool_or(g, "gone", true, &b, &err), MC_OK);
    assert_true(b);
    assert_int_equal(gguf_get_bool_or(g, "u8", true, &b, &err), MC_EFORMAT);
    assert_says(&err, "expected bool");

    assert_int_equal(gguf_get_string(g, "text", &s, &err), MC_OK);
    assert_true(span_is(s, "a\xc3\xa4"));
    assert_int_equal(gguf_get_string(g, "gone", &s, &err), MC_EFORMAT);
    assert_int_equal(gguf_get_string(g, "texts", &s, &err), MC_EFORMAT);
    assert_says(&err, "an array of string, expected string");
}

static void strings_are_walked(void **state)
{
    const struct gguf *g = *state;
    const char *const want[] = {"one", "", "three"};
    struct mc_span s;
    size_t pos = 0;
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        assert_true(gguf_next_string(gguf_find(g, "texts"), &pos, &s));
        assert_true(span_is(s, want[i]));
    }
    assert_false(gguf_next_string(gguf_find(g, "texts"), &pos, &s));
    pos = 0;
    assert_false(gguf_next_string(gguf_find(g, "none"), &pos, &s));
    assert_false(gguf_next_string(gguf_find(g, "ints"), &pos, &s));
    assert_false(gguf_next_string(gguf_find(g, "text"), &pos, &s));
    assert_string_equal(gguf_type_name(GGUF_F64), "f64");
    assert_string_equal(gguf_type_name((enum gguf_type)99), "unknown");
}

static struct image typed_image;

static int open_typed(void **state)
{
    write_all_types(&typed_image);
    *state = parse(&typed_image);
    return 0;
}

static int close_typed(void **state)
{
    gguf_close(*state);
    img_free(&typed_image);
    return 0;
}

/* 60 000 names that differ in their last bytes: the index must not be quadratic, and every name must be found. */
static void many_tensors_are_found(void **state)
{
    (void)state;
    enum { N = 60000 };
    struct image m = {0};
    char name[32];
    img_header(&m, N, 0);
    for (unsigned i = 0; i < N; i++) {
        snprintf(name, sizeof name, "blk.%u.ffn_norm.weight", i);
        img_tensor(&m, name, F32, 8, 0, 32ull * i);
    }
    img_pad(&m, 32);
    img_fill(&m, 0, 32ull * N);
    struct gguf *g = parse(&m);
    for (unsigned i = 0; i < N; i++) {
        snprintf(name, sizeof name, "blk.%u.ffn_norm.weight", i);
        assert_ptr_equal(gguf_tensor_find(g, name), gguf_tensor_at(g, i));
    }
    assert_null(gguf_tensor_find(g, "blk.60000.ffn_norm.weight"));
    gguf_close(g);
    img_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_file_is_read),
        cmocka_unit_test(unusual_files_are_read),
        cmocka_unit_test_setup_teardown(integers_are_read, open_typed, close_typed),
        cmocka_unit_test_setup_teardown(other_types_are_read, open_typed, close_typed),
        cmocka_unit_test_setup_teardown(strings_are_walked, open_typed, close_typed),
        cmocka_unit_test(many_tensors_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
