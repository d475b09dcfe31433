/* test_tokenizer.c - goal: the ids of the reference tokenizer, exactly, for every row of the golden files.
 * Method: the real vocabulary (a GGUF file without tensors) is loaded once; the golden rows were made by the maker's own
 * tokenizer file in an independent implementation. */
#include "runtime/text/pretokenize.h"
#include "runtime/text/unicode_classes.h"
#include "runtime/text/utf8_stream.h"
#include "tests/unit/text/text_support.h"

static int setup(void **state)
{
    *state = ts_tokenizer(DSV4_VOCAB);
    return 0;
}

static int teardown(void **state)
{
    tokenizer_destroy(*state);
    return 0;
}

static void encode(const struct tokenizer *t, struct mc_span text, enum tokenizer_mode mode, struct token_list *out)
{
    struct mc_err err;
    token_list_init(out);
    if (tokenizer_encode(t, text, mode, NULL, 0, out, &err)) fail_msg("%s", err.msg);
}

static void expect_mode(const struct tokenizer *t, const struct mc_json *row, enum tokenizer_mode mode, const char *key)
{
    struct token_list ids;
    encode(t, ts_string(row, "text"), mode, &ids);
    ts_expect_ids(key, ts_string(row, "id"), mc_json_get(row, key), &ids);
    token_list_deinit(&ids);
}

/* ---- encode.jsonl, modes.jsonl ---- */

static void encode_row(const struct mc_json *row, void *t)
{
    expect_mode(t, row, TOKENIZER_ALL, "ids");
    struct token_list ids;
    struct text_buf back;
    text_buf_init(&back);
    encode(t, ts_string(row, "text"), TOKENIZER_ALL, &ids);
    tokenizer_decode(t, ids.ids, ids.n, false, &back);
    ts_expect_text("decode(encode)", ts_string(row, "id"), ts_string(row, "text"), text_buf_span(&back));
    token_list_deinit(&ids);
    text_buf_deinit(&back);
}

static void golden_texts(void **state)
{
    assert_int_equal(ts_each_line(MC_TEST_DATA "/tokenizer/encode.jsonl", encode_row, *state), 456);
}

static void mode_row(const struct mc_json *row, void *t)
{
    expect_mode(t, row, TOKENIZER_ALL, "ids_all");
    expect_mode(t, row, TOKENIZER_USER_DEFINED, "ids_user_defined");
    expect_mode(t, row, TOKENIZER_PLAIN, "ids_plain");
}

static void golden_modes(void **state)
{
    assert_int_equal(ts_each_line(MC_TEST_DATA "/tokenizer/modes.jsonl", mode_row, *state), 30);
}

/* ---- longrun.jsonl: repeated units as one piece ---- */

static void longrun_row(const struct mc_json *row, void *t)
{
    const struct mc_json *const rep = mc_json_get(row, "rep");
    struct text_buf text;
    text_buf_init(&text);
    for (int64_t i = 0; i < mc_json_int(mc_json_get(rep, "n")); i++) text_buf_add_span(&text, ts_string(rep, "unit"));
    struct token_list ids;
    encode(t, text_buf_span(&text), TOKENIZER_ALL, &ids);
    assert_int_equal(ids.n, mc_json_int(mc_json_get(row, "n_ids")));
    uint8_t *const bytes = malloc(4 * ids.n);
    assert_non_null(bytes);
    for (size_t i = 0; i < ids.n; i++) mc_store_u32(bytes + 4 * i, (uint32_t)ids.ids[i]);
    char hex[65];
    ts_sha256(bytes, 4 * ids.n, hex);
    ts_expect_text("sha256 of ids", ts_string(row, "id"), ts_string(row, "ids_sha256"), text_span_str(hex));
    free(bytes);
    token_list_deinit(&ids);
    text_buf_deinit(&text);
}

static void golden_long_runs(void **state)
{
    char hex[65];
    ts_sha256((const uint8_t *)"abc", 3, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_int_equal(ts_each_line(MC_TEST_DATA "/tokenizer/longrun.jsonl", longrun_row, *state), 13);
}

/* ---- invalid_utf8.jsonl ---- */

static uint8_t hex_digit(uint8_t c)
{
    return (uint8_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
}

static void invalid_row(const struct mc_json *row, void *t)
{
    const struct mc_span hex = ts_string(row, "hex");
    struct text_buf text, joined;
    text_buf_init(&text);
    text_buf_init(&joined);
    for (size_t i = 0; i + 1 < hex.size; i += 2)
        text_buf_add_char(&text, (char)(hex_digit(hex.data[i]) << 4 | hex_digit(hex.data[i + 1])));
    struct token_list ids;
    encode(t, text_buf_span(&text), TOKENIZER_ALL, &ids);
    ts_expect_ids("ids", ts_string(row, "id"), mc_json_get(row, "ids"), &ids);
    /* The stream replaces the same parts, however it is fed. */
    for (size_t step = 1; step <= 3; step++) {
        struct utf8_stream s;
        utf8_stream_init(&s);
        text_buf_clear(&joined);
        for (size_t i = 0; i < text.size; i += step)
            utf8_stream_feed(&s, text_span(text.data + i, text.size - i < step ? text.size - i : step), &joined);
        utf8_stream_flush(&s, &joined);
        ts_expect_text("stream", ts_string(row, "id"), ts_string(row, "replaced"), text_buf_span(&joined));
    }
    token_list_deinit(&ids);
    text_buf_deinit(&text);
    text_buf_deinit(&joined);
}

static void golden_invalid_utf8(void **state)
{
    assert_int_equal(ts_each_line(MC_TEST_DATA "/tokenizer/invalid_utf8.jsonl", invalid_row, *state), 26);
}

/* An untrusted range that begins or ends inside an invalid part takes the whole replacement along. */
static void masks_survive_invalid_bytes(void **state)
{
    static const char text[] = "\xE2\x82<think>\xFF<think>";
    static const struct text_range untrusted[] = {{1, 2}, {10, 17}};
    struct token_list ids;
    struct mc_err err;
    token_list_init(&ids);
    assert_int_equal(tokenizer_encode(*state, text_span(text, sizeof text - 1), TOKENIZER_MASKED, untrusted, 2, &ids, &err),
                     MC_OK);
    size_t n = 0;
    for (size_t i = 0; i < ids.n; i++) n += ids.ids[i] == 128821;
    assert_int_equal(n, 1);
    assert_int_equal(ids.ids[1], 128821);
    token_list_deinit(&ids);
}

/* ---- decode.jsonl ---- */

static void decode_row(const struct mc_json *row, void *t)
{
    const struct mc_json *const ids = mc_json_get(row, "ids"), *const pieces = mc_json_get(row, "stream");
    struct utf8_stream s;
    struct text_buf piece, whole;
    utf8_stream_init(&s);
    text_buf_init(&piece);
    text_buf_init(&whole);
    for (size_t i = 0; i < mc_json_count(ids); i++) {
        text_buf_clear(&piece);
        utf8_stream_feed(&s, tokenizer_bytes(t, (int32_t)mc_json_int(mc_json_item(ids, i))), &piece);
        ts_expect_text("stream", ts_string(row, "id"), mc_json_string(mc_json_item(pieces, i)), text_buf_span(&piece));
        text_buf_add_span(&whole, text_buf_span(&piece));
    }
    text_buf_clear(&piece);
    utf8_stream_flush(&s, &piece);
    ts_expect_text("flush", ts_string(row, "id"), ts_string(row, "flush"), text_buf_span(&piece));
    text_buf_add_span(&whole, text_buf_span(&piece));
    ts_expect_text("text", ts_string(row, "id"), ts_string(row, "text"), text_buf_span(&whole));
    text_buf_deinit(&piece);
    text_buf_deinit(&whole);
}

static void golden_decode(void **state)
{
    assert_int_equal(ts_each_line(MC_TEST_DATA "/tokenizer/decode.jsonl", decode_row, *state), 75);
}

/* ---- facts of the vocabulary ---- */

static void vocabulary_facts(void **state)
{
    const struct tokenizer *const t = *state;
    const struct tokenizer_special *const s = tokenizer_special(t);
    assert_int_equal(tokenizer_n_tokens(t), 129280);
    assert_int_equal(s->bos, 0);
    assert_int_equal(s->eos, 1);
    assert_int_equal(s->user, 128803);
    assert_int_equal(s->assistant, 128804);
    assert_int_equal(s->think_open, 128821);
    assert_int_equal(s->think_close, 128822);
    assert_int_equal(s->dsml, 128825);
    assert_false(tokenizer_add_bos(t));
    assert_int_equal(tokenizer_type(t, 0), TOKENIZER_CONTROL);
    assert_int_equal(tokenizer_type(t, 128821), TOKENIZER_USER);
    assert_int_equal(tokenizer_type(t, 5000), TOKENIZER_NORMAL);
    assert_int_equal(tokenizer_type(t, -1), TOKENIZER_UNKNOWN);
    assert_int_equal(tokenizer_type(t, 129280), TOKENIZER_UNKNOWN);
    assert_int_equal(tokenizer_bytes(t, 129280).size, 0);
    assert_true(tokenizer_ends_answer(t, 1) && tokenizer_ends_answer(t, 128803) && tokenizer_ends_answer(t, 0));
    assert_false(tokenizer_ends_answer(t, 128804) || tokenizer_ends_answer(t, TOKENIZER_NONE));
    assert_int_equal(tokenizer_require_chat(t, NULL), MC_OK);
    struct text_buf out;
    text_buf_init(&out);
    tokenizer_decode(t, (const int32_t[]){0, 43, 128821, 1}, 4, true, &out);
    assert_true(text_is(text_buf_span(&out), "I<think>"));
    text_buf_deinit(&out);
}

static void raw_prompts_never_get_two_bos(void **state)
{
    struct tokenizer *const tiny = ts_tokenizer(TINY_MODEL);
    struct token_list ids;
    const int32_t bos = tokenizer_special(tiny)->bos;
    for (int add = 0; add < 2; add++)
        for (int own = 0; own < 2; own++) {
            const char *const text = own ? "<｜begin▁of▁sentence｜>Hi" : "Hi";
            token_list_init(&ids);
            assert_int_equal(tokenizer_encode_prompt(tiny, text_span_str(text), add, &ids, NULL), MC_OK);
            assert_int_equal(ids.ids[0] == bos, own || (add && tokenizer_add_bos(tiny)));
            assert_int_not_equal(ids.ids[1], bos);
            token_list_deinit(&ids);
        }
    tokenizer_destroy(tiny);
    (void)state;
}

/* ---- the table behind the pre-tokenizer: every code point against the reference's list ---- */

static void unicode_table(void **state)
{
    struct text_buf file;
    ts_read_file(MC_TEST_DATA "/tokenizer/unicode_classes.tsv", &file);
    text_buf_add_char(&file, '\0');
    uint8_t *const want = calloc(0x110000, 1);
    assert_non_null(want);
    for (const char *line = file.data; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (*line == '#' || *line == '\n') continue;
        const char *const at = strchr("LMNPSZ", *line);
        char *end;
        const unsigned long first = strtoul(line + 2, &end, 16), last = strtoul(end + 1, NULL, 16);
        assert_non_null(at);
        for (unsigned long cp = first; cp <= last; cp++) want[cp] = (uint8_t)(UNICODE_LETTER + (at - "LMNPSZ"));
    }
    for (uint32_t cp = 0; cp < 0x110000; cp++)
        if (unicode_class_of(cp) != (enum unicode_class)want[cp])
            fail_msg("U+%04X: want %d, got %d", (unsigned)cp, want[cp], (int)unicode_class_of(cp));
    assert_int_equal(unicode_class_of(0x110000), UNICODE_OTHER);
    free(want);
    text_buf_deinit(&file);
    (void)state;
}

/* ---- long texts ---- */

static bool stop_the_third_time(void *user)
{
    return ++*(int *)user >= 3;
}

/* A text of many pieces, and one of a single piece that is merged through the heap. */
static void a_long_text_can_be_stopped(void **state)
{
    struct tokenizer *const t = *state;
    enum { SIZE = 2 << 20 };
    char *const text = malloc(SIZE);
    for (int kind = 0; kind < 2; kind++) {
        for (size_t i = 0; i < SIZE; i++) text[i] = kind || i % 4 ? (char)('a' + i * i % 7) : ' ';
        struct token_list ids;
        int asked = 0;
        token_list_init(&ids);
        tokenizer_set_stop(t, stop_the_third_time, &asked);
        assert_int_equal(tokenizer_encode(t, text_span(text, SIZE), TOKENIZER_ALL, NULL, 0, &ids, NULL), MC_ECANCELLED);
        assert_int_equal(asked, 3);
        tokenizer_set_stop(t, NULL, NULL);
        token_list_deinit(&ids);
    }
    free(text);
}

static void no_token_is_longer_than_the_longest(void **state)
{
    const struct tokenizer *const t = *state;
    size_t longest = 0;
    for (size_t i = 0; i < tokenizer_n_tokens(t); i++) {
        const size_t size = tokenizer_bytes(t, (int32_t)i).size;
        if (size > longest) longest = size;
    }
    assert_true(longest > 1);
    assert_int_equal(tokenizer_longest(t), longest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_texts),
        cmocka_unit_test(golden_modes),
        cmocka_unit_test(golden_long_runs),
        cmocka_unit_test(golden_invalid_utf8),
        cmocka_unit_test(golden_decode),
        cmocka_unit_test(masks_survive_invalid_bytes),
        cmocka_unit_test(vocabulary_facts),
        cmocka_unit_test(raw_prompts_never_get_two_bos),
        cmocka_unit_test(unicode_table),
        cmocka_unit_test(a_long_text_can_be_stopped),
        cmocka_unit_test(no_token_is_longer_than_the_longest),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
