/* test_gguf_lies.c - goal: every lie a GGUF file can tell is refused with one line that names the file and the key or tensor,
 * and nothing true is refused. Method: files written into memory by gguf_image.h, parsed from memory and from disk (both must
 * say the same); each copy is exactly as long as its file, so that AddressSanitizer sees an over-read. */
#include "tests/unit/io/gguf_image.h"

enum { F32 = QUANT_F32, Q2_0 = QUANT_Q2_0 };

#define BAD_FILE "io-hostile.gguf"

/* ---- nearly good files ---------------------------------------------------------------------------------- */

/* The metadata is the good one and one key more, whose value the caller appends; no tensors. */
static void with_key(struct image *m, const char *key, uint32_t type)
{
    img_header(m, 0, GOOD_VALUES + 1);
    values(m);
    img_key(m, key, type);
}

/* One tensor of the given claims before 4096 bytes of data. */
static void with_tensor(struct image *m, uint32_t n_dims, const uint64_t *ne, uint32_t type, uint64_t off)
{
    img_header(m, 1, GOOD_VALUES);
    values(m);
    img_text(m, "odd.weight");
    img_u32(m, n_dims);
    for (uint32_t d = 0; d < n_dims && d < 5; d++) img_u64(m, ne[d]);
    img_u32(m, type);
    img_u64(m, off);
    img_pad(m, 32);
    img_fill(m, 0, 4096);
}

/* Two tensors in 4096 bytes of data. */
static void with_two(struct image *m, uint32_t type, uint64_t ne0, uint64_t off0, uint64_t ne1, uint64_t off1)
{
    img_header(m, 2, GOOD_VALUES);
    values(m);
    img_tensor(m, "odd.weight", type, ne0, 0, off0);
    img_tensor(m, "next.weight", F32, ne1, 0, off1);
    img_pad(m, 32);
    img_fill(m, 0, 4096);
}

/* ---- lies ------------------------------------------------------------------------------------------------------- */

static void empty(struct image *m)
{
    img_bytes(m, "", 0);
}
static void two_bytes(struct image *m)
{
    img_bytes(m, "GG", 2);
}
static void magic(struct image *m)
{
    good(m), m->data[0] = 'g';
}
static void only_header(struct image *m)
{
    img_bytes(m, "GGUF\3\0\0\0\1", 9);
}
static void version_0(struct image *m)
{
    good(m), patch_u32(m, 4, 0);
}
static void version_1(struct image *m)
{
    good(m), patch_u32(m, 4, 1);
}
static void version_2(struct image *m)
{
    good(m), patch_u32(m, 4, 2);
}
static void version_4(struct image *m)
{
    good(m), patch_u32(m, 4, 4);
}
static void big_endian(struct image *m)
{
    good(m), patch_u32(m, 4, 0x03000000);
}
static void tensors_all(struct image *m)
{
    good(m), patch_u64(m, 8, UINT64_MAX);
}
static void tensors_many(struct image *m)
{
    good(m), patch_u64(m, 8, 1000);
}
static void tensors_one_more(struct image *m)
{
    good(m), patch_u64(m, 8, 3);
}
static void keys_all(struct image *m)
{
    good(m), patch_u64(m, 16, UINT64_MAX);
}
static void keys_many(struct image *m)
{
    good(m), patch_u64(m, 16, 1u << 20);
}
static void key_long(struct image *m)
{
    good(m), patch_u64(m, 24, UINT64_MAX);
}
static void key_longer_than_file(struct image *m)
{
    good(m), patch_u64(m, 24, m->size);
}
static void text_long(struct image *m)
{
    with_key(m, "some.text", GGUF_STRING), img_u64(m, UINT64_MAX - 7), img_fill(m, 'x', 64);
}
static void type_13(struct image *m)
{
    with_key(m, "some.key", 13), img_fill(m, 0, 64);
}
static void type_huge(struct image *m)
{
    with_key(m, "some.key", UINT32_MAX), img_fill(m, 0, 64);
}
static void bool_2(struct image *m)
{
    with_key(m, "some.flag", GGUF_BOOL), img_fill(m, 2, 1), img_pad(m, 32);
}
static void key_twice(struct image *m)
{
    with_key(m, "deepseek4.block_count", GGUF_U32), img_u32(m, 43), img_pad(m, 32);
}
static void value_cut(struct image *m)
{
    with_key(m, "some.key", GGUF_U64), img_u32(m, 1);
}

static void keys_limit(struct image *m)
{
    good(m);
    img_fill(m, 0, 70000 * 14);
    patch_u64(m, 16, 70000);
}

static void tensors_limit(struct image *m)
{
    good(m);
    img_fill(m, 0, 70000 * 33);
    patch_u64(m, 8, 70000);
}

static void key_empty(struct image *m)
{
    with_key(m, "", GGUF_U32);
    img_u32(m, 1);
    img_pad(m, 32);
}

static void key_too_long(struct image *m)
{
    img_header(m, 0, 1);
    img_u64(m, 65536);
    img_fill(m, 'k', 65536);
    img_u32(m, GGUF_U32);
    img_u32(m, 1);
    img_pad(m, 32);
}

static void bools_2(struct image *m)
{
    with_key(m, "some.flags", GGUF_ARRAY);
    img_u32(m, GGUF_BOOL), img_u64(m, 3);
    img_bytes(m, "\0\1\2", 3);
    img_pad(m, 32);
}

static void array(struct image *m, uint32_t item, uint64_t count)
{
    with_key(m, "some.array", GGUF_ARRAY);
    img_u32(m, item), img_u64(m, count);
    img_fill(m, 0, 64);
}

static void array_nested(struct image *m)
{
    array(m, GGUF_ARRAY, 1);
}
static void array_type_13(struct image *m)
{
    array(m, 13, 1);
}
static void array_long(struct image *m)
{
    array(m, GGUF_U32, 17);
}
static void array_wraps(struct image *m)
{
    array(m, GGUF_U64, UINT64_MAX / 8 + 2);
}
static void strings_long(struct image *m)
{
    array(m, GGUF_STRING, 9);
}
static void strings_all(struct image *m)
{
    array(m, GGUF_STRING, UINT64_MAX);
}

static void string_inside_long(struct image *m)
{
    array(m, GGUF_STRING, 2);
    patch_u64(m, m->size - 56, 1000);
}

static void alignment(struct image *m, uint32_t a)
{
    with_key(m, "general.alignment", GGUF_U32);
    img_u32(m, a);
    img_pad(m, 32);
}

static void alignment_0(struct image *m)
{
    alignment(m, 0);
}
static void alignment_3(struct image *m)
{
    alignment(m, 3);
}
static void alignment_4(struct image *m)
{
    alignment(m, 4);
}
static void alignment_2_21(struct image *m)
{
    alignment(m, 1u << 21);
}
static void alignment_2_31(struct image *m)
{
    alignment(m, 1u << 31);
}

static void alignment_text(struct image *m)
{
    with_key(m, "general.alignment", GGUF_STRING);
    img_text(m, "32");
    img_pad(m, 32);
}

static void alignment_i32(struct image *m)
{
    with_key(m, "general.alignment", GGUF_I32);
    img_u32(m, 32);
    img_pad(m, 32);
}

static void shape(struct image *m, uint32_t n_dims, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    with_tensor(m, n_dims, (const uint64_t[5]){a, b, c, d, 1}, F32, 0);
}

static void dims_0(struct image *m)
{
    shape(m, 0, 0, 0, 0, 0);
}
static void dims_5(struct image *m)
{
    shape(m, 5, 1, 1, 1, 1);
}
static void dims_all(struct image *m)
{
    shape(m, UINT32_MAX, 1, 1, 1, 1);
}
static void dim_zero(struct image *m)
{
    shape(m, 2, 32, 0, 0, 0);
}
static void product_wraps(struct image *m)
{
    shape(m, 4, 1u << 16, 1u << 16, 1u << 16, 1u << 16);
}
static void product_wraps_small(struct image *m)
{
    shape(m, 2, 1024, (1ull << 54) + 1, 0, 0);
}
static void bytes_wrap(struct image *m)
{
    shape(m, 1, (1ull << 62) + 1024, 0, 0, 0);
}
static void too_large(struct image *m)
{
    shape(m, 1, 1u << 20, 0, 0, 0);
}
static void beyond_end(struct image *m)
{
    shape(m, 1, 1032, 0, 0, 0);
}

static void type(struct image *m, uint32_t t)
{
    with_tensor(m, 1, (const uint64_t[]){256}, t, 0);
}

static void type_4(struct image *m)
{
    type(m, 4);
}
static void type_9(struct image *m)
{
    type(m, 9);
}
static void type_15(struct image *m)
{
    type(m, 15);
}
static void type_24(struct image *m)
{
    type(m, 24);
}
static void type_31(struct image *m)
{
    type(m, 31);
}
static void type_38(struct image *m)
{
    type(m, 38);
}
static void type_43(struct image *m)
{
    type(m, 43);
}
static void type_137(struct image *m)
{
    type(m, 137);
}
static void type_all(struct image *m)
{
    type(m, UINT32_MAX);
}
static void row_odd(struct image *m)
{
    with_tensor(m, 1, (const uint64_t[]){100}, QUANT_Q8_0, 0);
}

static void offset_first(struct image *m)
{
    with_tensor(m, 1, (const uint64_t[]){1016}, F32, 32);
}
static void offset_odd(struct image *m)
{
    with_two(m, F32, 8, 0, 1014, 36);
}
static void offset_overlaps(struct image *m)
{
    with_two(m, F32, 16, 0, 1016, 32);
}
static void offset_same(struct image *m)
{
    with_two(m, F32, 1024, 0, 1024, 0);
}
static void offset_hole(struct image *m)
{
    with_two(m, F32, 8, 0, 1008, 64);
}
static void offset_out(struct image *m)
{
    with_two(m, F32, 8, 0, 8, 1ull << 40);
}
static void offset_wraps(struct image *m)
{
    with_two(m, F32, 8, 0, 8, UINT64_MAX - 31);
}
static void private_42(struct image *m)
{
    with_two(m, Q2_0, 64 * 16, 0, 904, 480);
}
static void private_42_last(struct image *m)
{
    with_tensor(m, 1, (const uint64_t[]){64 * 136}, Q2_0, 0);
}
static void wrong_size(struct image *m)
{
    with_two(m, Q2_0, 64 * 16, 0, 896, 512);
}
static void trailing_byte(struct image *m)
{
    good(m), img_fill(m, 0, 1);
}
static void trailing_page(struct image *m)
{
    good(m), img_fill(m, 0, 4096);
}
static void joined(struct image *m)
{
    good(m), good(m);
}

static void joined_empty(struct image *m)
{
    img_header(m, 0, GOOD_VALUES);
    values(m);
    img_pad(m, 32);
    good(m);
}

static void cut_in_padding(struct image *m)
{
    img_header(m, 1, 0);
    img_tensor(m, "odd.weight", F32, 3, 0, 0);
    img_pad(m, 32);
    img_fill(m, 0, 31);
}

static void tensor_twice(struct image *m)
{
    img_header(m, 2, 0);
    img_tensor(m, "same.weight", F32, 8, 0, 0);
    img_tensor(m, "same.weight", F32, 8, 0, 32);
    img_pad(m, 32);
    img_fill(m, 0, 64);
}

static void part_alone(struct image *m)
{
    with_key(m, "split.count", GGUF_U32);
    img_u32(m, 2);
    img_pad(m, 32);
}

struct lie {
    const char *what;
    void (*write)(struct image *m);
    enum mc_code code;
    const char *says[2]; /* besides the name of the file */
};

#define LIE(fn, code, ...)                                                                                                     \
    {                                                                                                                          \
#fn, fn, code,                                                                                                         \
        {                                                                                                                      \
            __VA_ARGS__                                                                                                        \
        }                                                                                                                      \
    }

static const struct lie lies[] = {
    LIE(empty, MC_EFORMAT, "empty"),
    LIE(two_bytes, MC_EFORMAT, "magic"),
    LIE(magic, MC_EFORMAT, "67 47 55 46", "expected 47 47 55 46"),
    LIE(only_header, MC_EFORMAT, "header"),
    LIE(version_0, MC_EUNSUPPORTED, "version 0", "expected 3"),
    LIE(version_1, MC_EUNSUPPORTED, "version 1", "expected 3"),
    LIE(version_2, MC_EUNSUPPORTED, "version 2", "expected 3"),
    LIE(version_4, MC_EUNSUPPORTED, "version 4", "expected 3"),
    LIE(big_endian, MC_EUNSUPPORTED, "big-endian"),
    LIE(tensors_all, MC_EFORMAT, "18446744073709551615 tensors"),
    LIE(tensors_many, MC_EFORMAT, "1000 tensors"),
    LIE(tensors_one_more, MC_EFORMAT, "tensor"),
    LIE(tensors_limit, MC_EUNSUPPORTED, "70000 tensors", "65536"),
    LIE(keys_all, MC_EFORMAT, "18446744073709551615 metadata keys"),
    LIE(keys_many, MC_EFORMAT, "1048576 metadata keys"),
    LIE(keys_limit, MC_EUNSUPPORTED, "70000 metadata keys", "65536"),
    LIE(key_long, MC_EFORMAT, "key", "18446744073709551615"),
    LIE(key_longer_than_file, MC_EFORMAT, "key"),
    LIE(key_empty, MC_EFORMAT, "key number 2", "empty name"),
    LIE(key_too_long, MC_EFORMAT, "key number 0", "65536"),
    LIE(key_twice, MC_EFORMAT, "'deepseek4.block_count'", "twice"),
    LIE(text_long, MC_EFORMAT, "'some.text'", "18446744073709551608"),
    LIE(type_13, MC_EFORMAT, "'some.key'", "type 13"),
    LIE(type_huge, MC_EFORMAT, "'some.key'", "type 4294967295"),
    LIE(value_cut, MC_EFORMAT, "'some.key'", "ends"),
    LIE(bool_2, MC_EFORMAT, "'some.flag'", "expected 0 or 1"),
    LIE(bools_2, MC_EFORMAT, "'some.flags'", "element 2"),
    LIE(array_nested, MC_EUNSUPPORTED, "'some.array'", "array of arrays"),
    LIE(array_type_13, MC_EFORMAT, "'some.array'", "type 13"),
    LIE(array_long, MC_EFORMAT, "'some.array'", "17 elements of type u32"),
    LIE(array_wraps, MC_EFORMAT, "'some.array'", "2305843009213693953 elements"),
    LIE(strings_long, MC_EFORMAT, "'some.array'", "9 elements of type string"),
    LIE(strings_all, MC_EFORMAT, "'some.array'", "18446744073709551615"),
    LIE(string_inside_long, MC_EFORMAT, "'some.array'", "1000 bytes"),
    LIE(alignment_0, MC_EFORMAT, "'general.alignment': 0", "power of two"),
    LIE(alignment_3, MC_EFORMAT, "'general.alignment': 3", "power of two"),
    LIE(alignment_4, MC_EFORMAT, "'general.alignment': 4", "power of two"),
    LIE(alignment_2_21, MC_EFORMAT, "'general.alignment': 2097152", "power of two"),
    LIE(alignment_2_31, MC_EFORMAT, "'general.alignment': 2147483648", "power of two"),
    LIE(alignment_text, MC_EFORMAT, "'general.alignment'", "type string, expected u32"),
    LIE(alignment_i32, MC_EFORMAT, "'general.alignment'", "type i32, expected u32"),
    LIE(dims_0, MC_EFORMAT, "'odd.weight'", "0 dimensions"),
    LIE(dims_5, MC_EFORMAT, "'odd.weight'", "5 dimensions"),
    LIE(dims_all, MC_EFORMAT, "'odd.weight'", "4294967295 dimensions"),
    LIE(dim_zero, MC_EFORMAT, "'odd.weight'", "dimension 1 is 0"),
    LIE(product_wraps, MC_EFORMAT, "'odd.weight'", "larger than the file"),
    LIE(product_wraps_small, MC_EFORMAT, "'odd.weight'", "larger than the file"),
    LIE(bytes_wrap, MC_EFORMAT, "'odd.weight'", "larger than the file"),
    LIE(too_large, MC_EFORMAT, "'odd.weight'", "larger than the file"),
    LIE(beyond_end, MC_EFORMAT, "'odd.weight'", "cut off"),
    LIE(type_4, MC_EUNSUPPORTED, "'odd.weight'", "type number 4 is a withdrawn layout"),
    LIE(type_9, MC_EUNSUPPORTED, "'odd.weight'", "type number 9 is an activation format"),
    LIE(type_15, MC_EUNSUPPORTED, "'odd.weight'", "type number 15 is an activation format"),
    LIE(type_24, MC_EUNSUPPORTED, "'odd.weight'", "type number 24"),
    LIE(type_31, MC_EUNSUPPORTED, "'odd.weight'", "type number 31 is a withdrawn layout"),
    LIE(type_38, MC_EUNSUPPORTED, "'odd.weight'", "type number 38 is a withdrawn layout"),
    LIE(type_43, MC_EUNSUPPORTED, "'odd.weight'", "type number 43 is a private type of a fork"),
    LIE(type_137, MC_EUNSUPPORTED, "'odd.weight'", "type number 137 is a private type of a fork"),
    LIE(type_all, MC_EUNSUPPORTED, "'odd.weight'", "type number 4294967295"),
    LIE(row_odd, MC_EFORMAT, "'odd.weight'", "rows of 100 weights, expected a multiple of 32"),
    LIE(offset_first, MC_EFORMAT, "'odd.weight'", "offset 32, expected 0"),
    LIE(offset_odd, MC_EFORMAT, "'next.weight'", "36 is not a multiple of the alignment 32"),
    LIE(offset_overlaps, MC_EFORMAT, "'next.weight'", "inside tensor 'odd.weight'"),
    LIE(offset_same, MC_EFORMAT, "offset 0 lies inside tensor", "expected 4096"),
    LIE(offset_hole, MC_EFORMAT, "'odd.weight'", "64 bytes are stored"),
    LIE(offset_out, MC_EFORMAT, "'next.weight'", "1099511627776 lies outside"),
    LIE(offset_wraps, MC_EFORMAT, "'next.weight'", "18446744073709551584 lies outside"),
    LIE(private_42, MC_EUNSUPPORTED, "'odd.weight'", "type number 42"),
    LIE(private_42_last, MC_EUNSUPPORTED, "'odd.weight'", "type number 42"),
    LIE(wrong_size, MC_EFORMAT, "'odd.weight'",
        "512 bytes are stored up to the next tensor, but its shape in type q2_0 takes 288"),
    LIE(trailing_byte, MC_EFORMAT, "1 bytes follow"),
    LIE(trailing_page, MC_EFORMAT, "4096 bytes follow"),
    LIE(joined, MC_EFORMAT, "another GGUF file begins there", "separate files"),
    LIE(joined_empty, MC_EFORMAT, "another GGUF file begins there", "separate files"),
    LIE(cut_in_padding, MC_EFORMAT, "cut off", "expected 128"),
    LIE(tensor_twice, MC_EFORMAT, "'same.weight'", "twice"),
};

/* Parses a copy that ends where the file ends. */
static enum mc_code parse_exact(const struct image *m, const char *name, struct gguf **g, uint8_t **copy, struct mc_err *err)
{
    *copy = malloc(m->size ? m->size : 1);
    assert_non_null(*copy);
    if (m->size) memcpy(*copy, m->data, m->size);
    return gguf_parse((struct mc_span){*copy, m->size}, name, g, err);
}

static void lies_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
        const struct lie *l = &lies[i];
        struct image m = {0};
        struct mc_err err = {0}, again = {0};
        struct gguf *g = NULL;
        uint8_t *copy;
        l->write(&m);
        const enum mc_code rc = parse_exact(&m, BAD_FILE, &g, &copy, &err);
        if (rc != l->code) fail_msg("%s: code %d, expected %d: %s", l->what, (int)rc, (int)l->code, err.msg);
        assert_int_equal(err.code, l->code);
        assert_null(g);
        assert_says(&err, BAD_FILE);
        for (size_t k = 0; k < 2 && l->says[k]; k++) assert_says(&err, l->says[k]);

        img_save(&m, BAD_FILE);
        assert_int_equal(gguf_open(BAD_FILE, &g, &again), l->code);
        assert_null(g);
        assert_string_equal(again.msg, err.msg);
        free(copy);
        img_free(&m);
    }
    remove(BAD_FILE);
}

static void a_part_is_not_parsed_from_memory(void **state)
{
    (void)state;
    struct image m = {0};
    struct mc_err err;
    struct gguf *g = NULL;
    part_alone(&m);
    assert_int_equal(gguf_parse((struct mc_span){m.data, m.size}, BAD_FILE, &g, &err), MC_EFORMAT);
    assert_says(&err, "split.no");
    img_free(&m);
}

static void every_cut_is_refused(void **state)
{
    (void)state;
    struct image m = {0};
    good(&m);
    const size_t whole = m.size;
    for (m.size = 0; m.size < whole; m.size++) {
        struct mc_err err;
        struct gguf *g = NULL;
        uint8_t *copy;
        const enum mc_code rc = parse_exact(&m, BAD_FILE, &g, &copy, &err);
        if (rc != MC_EFORMAT) fail_msg("cut to %zu of %zu bytes: code %d", m.size, whole, (int)rc);
        assert_says(&err, BAD_FILE);
        free(copy);
    }
    img_free(&m);
}

/* No single changed byte may crash; most are refused, some change a value. */
static void every_flip_is_survived(void **state)
{
    (void)state;
    struct image m = {0};
    size_t n_refused = 0;
    good(&m);
    for (size_t at = 0; at < m.size; at++)
        for (unsigned bit = 0; bit < 8; bit++) {
            struct mc_err err;
            struct gguf *g = NULL;
            uint8_t *copy;
            m.data[at] ^= (uint8_t)(1u << bit);
            if (parse_exact(&m, BAD_FILE, &g, &copy, &err) != MC_OK) n_refused++;
            gguf_close(g);
            free(copy);
            m.data[at] ^= (uint8_t)(1u << bit);
        }
    assert_true(n_refused > 8 * 24 * 3 / 4);
    img_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lies_are_refused),
        cmocka_unit_test(a_part_is_not_parsed_from_memory),
        cmocka_unit_test(every_cut_is_refused),
        cmocka_unit_test(every_flip_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
