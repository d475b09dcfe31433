/* test_vocabulary.c - goal: a broken or hostile vocabulary is refused with one sentence that names the key, or read as the
 * format's rules say, never believed. Method: small files made in memory, each wrong in one way. */
#include "runtime/text/chat_form.h"
#include "tests/unit/text/text_support.h"

#define N_BYTES 256

/* A file in the making. Wrong on request: a key of `skip` is left out, of `wrong` written with a value of another kind. */
struct file {
    struct text_buf values;
    uint32_t n_values;
    const char *skip, *wrong;
    const char *model, *pre;
    int missing_byte;     /* -1: none */
    const char *extra[8]; /* tokens after the bytes ... */
    int32_t types[8];     /* ... and theirs */
    const char *merges[8];
    size_t n_types_cut; /* types left out at the end */
    uint32_t bos;
    bool long_token;
    const char *template, *name;
};

static void put_u32(struct text_buf *b, uint32_t v)
{
    uint8_t bytes[4];
    mc_store_u32(bytes, v);
    text_buf_add(b, bytes, 4);
}

static void put_u64(struct text_buf *b, uint64_t v)
{
    put_u32(b, (uint32_t)v);
    put_u32(b, (uint32_t)(v >> 32));
}

static void put_text(struct text_buf *b, struct mc_span s)
{
    put_u64(b, s.size);
    text_buf_add_span(b, s);
}

/* Writes the key, and a wrong value if that is asked for; false if nothing is to follow. */
static bool begin_value(struct file *f, const char *key, enum gguf_type type)
{
    if (f->skip && strcmp(f->skip, key) == 0) return false;
    f->n_values++;
    put_text(&f->values, text_span_str(key));
    if (!f->wrong || strcmp(f->wrong, key) != 0) {
        put_u32(&f->values, (uint32_t)type);
        return true;
    }
    put_u32(&f->values, GGUF_F32);
    put_u32(&f->values, 0);
    return false;
}

static void put_string_value(struct file *f, const char *key, const char *text)
{
    if (text && begin_value(f, key, GGUF_STRING)) put_text(&f->values, text_span_str(text));
}

static void put_bytes_tokens(struct file *f)
{
    unsigned next = 0x100;
    for (int b = 0; b < N_BYTES; b++) {
        const bool same = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        const unsigned cp = same ? (unsigned)b : next++;
        const uint8_t two[2] = {(uint8_t)(0xC0 | cp >> 6), (uint8_t)(0x80 | (cp & 0x3F))};
        const uint8_t one = (uint8_t)cp;
        if (b == f->missing_byte)
            put_text(&f->values, text_span_str("missing"));
        else
            put_text(&f->values, cp < 0x80 ? text_span(&one, 1) : text_span(two, 2));
    }
}

static size_t count(const char *const list[8])
{
    size_t n = 0;
    while (n < 8 && list[n]) n++;
    return n;
}

static void put_file(struct file *f, struct text_buf *out)
{
    const size_t n_extra = count(f->extra), n_merges = count(f->merges), n_types = N_BYTES + n_extra - f->n_types_cut;
    static const char x[5000];
    text_buf_init(&f->values);
    put_string_value(f, "tokenizer.ggml.model", f->model);
    put_string_value(f, "tokenizer.ggml.pre", f->pre);
    put_string_value(f, "tokenizer.chat_template", f->template);
    put_string_value(f, "general.name", f->name);
    if (begin_value(f, "tokenizer.ggml.tokens", GGUF_ARRAY)) {
        put_u32(&f->values, GGUF_STRING);
        put_u64(&f->values, N_BYTES + n_extra);
        put_bytes_tokens(f);
        for (size_t i = 0; i < n_extra; i++)
            put_text(&f->values, i == 0 && f->long_token ? text_span(x, sizeof x) : text_span_str(f->extra[i]));
    }
    if (begin_value(f, "tokenizer.ggml.token_type", GGUF_ARRAY)) {
        put_u32(&f->values, GGUF_I32);
        put_u64(&f->values, n_types);
        for (size_t i = 0; i < n_types; i++) put_u32(&f->values, i < N_BYTES ? 1 : (uint32_t)f->types[i - N_BYTES]);
    }
    if (begin_value(f, "tokenizer.ggml.merges", GGUF_ARRAY)) {
        put_u32(&f->values, GGUF_STRING);
        put_u64(&f->values, n_merges);
        for (size_t i = 0; i < n_merges; i++) put_text(&f->values, text_span_str(f->merges[i]));
    }
    if (begin_value(f, "tokenizer.ggml.bos_token_id", GGUF_U32)) put_u32(&f->values, f->bos);
    if (begin_value(f, "tokenizer.ggml.add_bos_token", GGUF_BOOL)) text_buf_add_char(&f->values, 1);
    text_buf_init(out);
    text_buf_add_str(out, "GGUF");
    put_u32(out, 3);
    put_u64(out, 0);
    put_u64(out, f->n_values);
    text_buf_add_span(out, text_buf_span(&f->values));
    text_buf_deinit(&f->values);
}

/* A small, good vocabulary: bytes, "ab", "abc", and some added tokens. */
static struct file good_file(void)
{
    return (struct file){.model = "gpt2",
                         .pre = "joyai-llm",
                         .missing_byte = -1,
                         .extra = {"<｜begin▁of▁sentence｜>", "ab", "abc", "<｜User｜>", "<｜Assistant｜>", "<think>", "ab"},
                         .types = {3, 1, 1, 3, 3, 4, 1},
                         .merges = {"a b", "ab c"},
                         .bos = N_BYTES};
}

static enum mc_code load(struct file f, struct tokenizer **t, struct mc_err *err)
{
    struct text_buf bytes;
    struct gguf *g = NULL;
    put_file(&f, &bytes);
    enum mc_code rc = gguf_parse(text_buf_span(&bytes), "made.gguf", &g, err);
    if (rc) fail_msg("the file itself was refused: %s", err->msg);
    rc = tokenizer_create(g, t, err);
    gguf_close(g);
    text_buf_deinit(&bytes);
    return rc;
}

static void expect_refusal(struct file f, enum mc_code code, const char *in_message)
{
    struct tokenizer *t = NULL;
    struct mc_err err = {.code = MC_OK};
    const enum mc_code rc = load(f, &t, &err);
    if (rc != code || !strstr(err.msg, in_message))
        fail_msg("code %d, expected %d with '%s': %s", (int)rc, (int)code, in_message, err.msg);
}

static void expect_ids(struct file f, const char *text, const int32_t *want, size_t n)
{
    struct tokenizer *t = NULL;
    struct mc_err err;
    struct token_list ids;
    token_list_init(&ids);
    if (load(f, &t, &err) || tokenizer_encode(t, text_span_str(text), TOKENIZER_ALL, NULL, 0, &ids, &err))
        fail_msg("%s", err.msg);
    assert_int_equal(ids.n, n);
    assert_memory_equal(ids.ids, want, n * sizeof *want);
    token_list_deinit(&ids);
    tokenizer_destroy(t);
}

static void good_vocabulary(void **state)
{
    const struct file f = good_file();
    expect_ids(f, "abc<think>ab<｜User｜>xab", (const int32_t[]){258, 261, 257, 259, 'x', 257}, 6); /* the lower id of "ab" */
    struct tokenizer *t = NULL;
    struct mc_err err;
    assert_int_equal(load(f, &t, &err), MC_OK);
    assert_true(tokenizer_add_bos(t));
    assert_int_equal(tokenizer_special(t)->eos, TOKENIZER_NONE);
    assert_int_equal(tokenizer_require_chat(t, &err), MC_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "end▁of▁sentence"));
    tokenizer_destroy(t);
    (void)state;
}

static void wrong_kinds(void **state)
{
    static const struct {
        const char *key;
        enum mc_code skipped, wrong; /* what happens */
    } keys[] = {
        {"tokenizer.ggml.model", MC_EFORMAT, MC_EFORMAT},    {"tokenizer.ggml.pre", MC_OK, MC_EFORMAT},
        {"tokenizer.ggml.tokens", MC_EFORMAT, MC_EFORMAT},   {"tokenizer.ggml.token_type", MC_OK, MC_EFORMAT},
        {"tokenizer.ggml.merges", MC_EFORMAT, MC_EFORMAT},   {"tokenizer.ggml.bos_token_id", MC_OK, MC_EFORMAT},
        {"tokenizer.ggml.add_bos_token", MC_OK, MC_EFORMAT},
    };
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        struct file f = good_file();
        f.wrong = keys[i].key;
        expect_refusal(f, keys[i].wrong, keys[i].key);
        f = good_file();
        f.skip = keys[i].key;
        if (keys[i].skipped) {
            expect_refusal(f, keys[i].skipped, keys[i].key);
        } else {
            struct tokenizer *t = NULL;
            struct mc_err err;
            if (load(f, &t, &err)) fail_msg("%s", err.msg);
            assert_int_equal(tokenizer_special(t)->bos, N_BYTES); /* by its text where the key is missing */
            tokenizer_destroy(t);
        }
    }
    (void)state;
}

static void wrong_values(void **state)
{
    struct file f = good_file();
    f.model = "llama";
    expect_refusal(f, MC_EUNSUPPORTED, "'llama'");
    f = good_file();
    f.pre = "gpt-2";
    expect_refusal(f, MC_EUNSUPPORTED, "'gpt-2'");
    f = good_file();
    f.pre = NULL;
    f.extra[4] = "<|Assistant|>";
    expect_refusal(f, MC_EUNSUPPORTED, "tokenizer.ggml.pre");
    f = good_file();
    f.missing_byte = 0x20;
    expect_refusal(f, MC_EFORMAT, "0x20");
    f = good_file();
    f.n_types_cut = 1;
    expect_refusal(f, MC_EFORMAT, "tokenizer.ggml.token_type");
    f = good_file();
    f.types[2] = 7;
    expect_refusal(f, MC_EFORMAT, "tokenizer.ggml.token_type[258]");
    f = good_file();
    f.bos = N_BYTES + 7;
    expect_refusal(f, MC_EFORMAT, "tokenizer.ggml.bos_token_id");
    f = good_file();
    f.long_token = true;
    expect_refusal(f, MC_EFORMAT, "tokenizer.ggml.tokens[256]");
    (void)state;
}

static void bad_merges_are_skipped(void **state)
{
    struct file f = good_file();
    static const char *const merges[8] = {"ab", " b", "a ", "a b c", "a zz", "b c", "< think>", "a b"};
    memcpy(f.merges, merges, sizeof merges);
    expect_ids(f, "abc<think>", (const int32_t[]){257, 'c', 261}, 3);
    (void)state;
}

/* Ordinary text must not grow into a marker, whatever the merges say. */
static void added_tokens_take_no_part_in_merges(void **state)
{
    struct file f = good_file();
    f.extra[5] = "ab";
    f.types[1] = 3;
    f.types[5] = 4;
    f.types[6] = 3;
    f.merges[1] = NULL;
    struct tokenizer *t = NULL;
    struct token_list ids;
    struct mc_err err;
    token_list_init(&ids);
    assert_int_equal(load(f, &t, &err), MC_OK);
    assert_int_equal(tokenizer_encode(t, text_span_str("ab"), TOKENIZER_PLAIN, NULL, 0, &ids, &err), MC_OK);
    assert_int_equal(ids.n, 2);
    token_list_deinit(&ids);
    tokenizer_destroy(t);
    (void)state;
}

static void without_types(void **state)
{
    struct file f = good_file();
    f.skip = "tokenizer.ggml.token_type";
    f.extra[6] = "<x>";
    expect_ids(f, "abc<think>ab<x>", (const int32_t[]){258, 261, 257, 262}, 4);
    (void)state;
}

static void profiles(void **state)
{
    static const struct {
        const char *template, *name;
        enum chat_profile profile;
    } cases[] = {
        {NULL, NULL, CHAT_PROFILE_0731},
        {"x Absolute maximum y", NULL, CHAT_PROFILE_PREVIEW},
        {"x Absolute maximum Beyond maximum", NULL, CHAT_PROFILE_0731},
        {"nothing", "DeepSeek-V4-Flash", CHAT_PROFILE_0731},
        {NULL, "DeepSeek-V4-Flash-Preview", CHAT_PROFILE_PREVIEW},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct file f = good_file();
        struct text_buf bytes;
        struct gguf *g = NULL;
        struct mc_err err;
        f.template = cases[i].template;
        f.name = cases[i].name;
        put_file(&f, &bytes);
        assert_int_equal(gguf_parse(text_buf_span(&bytes), "made.gguf", &g, &err), MC_OK);
        assert_int_equal(chat_profile_of(g), cases[i].profile);
        gguf_close(g);
        text_buf_deinit(&bytes);
    }
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_vocabulary),
        cmocka_unit_test(wrong_kinds),
        cmocka_unit_test(wrong_values),
        cmocka_unit_test(bad_merges_are_skipped),
        cmocka_unit_test(added_tokens_take_no_part_in_merges),
        cmocka_unit_test(without_types),
        cmocka_unit_test(profiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
