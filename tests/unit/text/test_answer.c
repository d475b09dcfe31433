/* test_answer.c - goal: what the model wrote becomes the same message however its text is cut, and the message that the form's
 * rules ask for.
 * Method: the 60 golden outputs whole, byte by byte, in 60 random cuttings each, and as token ids; then cases for the rules
 * that the golden rows do not reach. Every event is checked for order and valid UTF-8, all arguments for being a JSON object.
 */
#include "runtime/text/tool_set.h"
#include "tests/unit/text/answer_support.h"
#include "tests/unit/text/text_support.h"

#define N_CUTTINGS 60

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

struct input {
    struct mc_span text;
    bool thinking;
    enum answer_finish why;
    const struct tool_set *tools;
    struct mc_span stops[ANSWER_STOPS_MAX];
    size_t n_stops;
};

enum feeding { WHOLE, BYTES, RANDOM, IDS };

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static void feed(struct answer_stream *a, const struct tokenizer *t, struct mc_span text, enum feeding how, uint32_t seed)
{
    struct mc_err err;
    struct token_list ids;
    token_list_init(&ids);
    if (how == IDS && tokenizer_encode(t, text, TOKENIZER_USER_DEFINED, NULL, 0, &ids, &err)) fail_msg("%s", err.msg);
    for (size_t i = 0; i < ids.n; i++)
        if (answer_stream_feed_id(a, ids.ids[i], &err)) fail_msg("%s", err.msg);
    token_list_deinit(&ids);
    for (size_t at = 0, n; how != IDS && at < text.size; at += n) {
        n = how == BYTES ? 1 : how == RANDOM ? 1 + next_random(&seed) % 24 : text.size;
        if (n > text.size - at) n = text.size - at;
        if (answer_stream_feed_text(a, text_span(text.data + at, n), &err)) fail_msg("%s", err.msg);
    }
}

/* The message as answer_log_write puts it. */
static void run(const struct tokenizer *t, const struct input *in, enum feeding how, uint32_t seed, struct text_buf *out)
{
    struct answer_stream *a = NULL;
    struct answer_log log;
    struct mc_err err;
    enum answer_finish finish;
    answer_log_init(&log);
    const struct answer_events events = answer_log_events(&log);
    const struct answer_options options = {in->thinking, in->tools, in->stops, in->n_stops};
    if (answer_stream_create(t, &options, &events, &a, &err)) fail_msg("%s", err.msg);
    feed(a, t, in->text, how, seed);
    if (answer_stream_finish(a, in->why, &finish, &err)) fail_msg("%s", err.msg);
    answer_stream_destroy(a);
    assert_false(log.is_bad || log.in_call);
    text_buf_clear(out);
    answer_log_write(&log, finish, out);
    answer_log_deinit(&log);
}

/* All ways of feeding give `want`. */
static void expect(const struct tokenizer *t, const struct input *in, struct mc_span name, struct mc_span want)
{
    struct text_buf got;
    text_buf_init(&got);
    run(t, in, WHOLE, 0, &got);
    ts_expect_text("whole", name, want, text_buf_span(&got));
    run(t, in, BYTES, 0, &got);
    ts_expect_text("byte by byte", name, want, text_buf_span(&got));
    for (uint32_t seed = 1; seed <= N_CUTTINGS; seed++) {
        run(t, in, RANDOM, seed, &got);
        ts_expect_text("random cutting", name, want, text_buf_span(&got));
    }
    run(t, in, IDS, 0, &got);
    ts_expect_text("ids", name, want, text_buf_span(&got));
    text_buf_deinit(&got);
}

/* ---- parse.json ---- */

static void golden_row(const struct tokenizer *t, const struct mc_json *row)
{
    const struct mc_json *const want = mc_json_get(row, "expect"), *const calls = mc_json_get(want, "tool_calls");
    struct tool_set *tools = NULL;
    struct text_buf text;
    assert_int_equal(tool_set_create(mc_json_get(row, "tools"), &tools, NULL), MC_OK);
    text_buf_init(&text);
    text_buf_add_str(&text, "R");
    json_text_string(&text, ts_string(want, "reasoning"));
    text_buf_add_str(&text, " C");
    json_text_string(&text, ts_string(want, "content"));
    for (size_t i = 0; i < mc_json_count(calls); i++) {
        const struct mc_json *const call = mc_json_item(calls, i);
        struct mc_json *const arguments = ts_parse(ts_string(call, "arguments"));
        assert_int_equal(mc_json_type(arguments), MC_JSON_OBJECT);
        mc_json_destroy(arguments);
        text_buf_add_str(&text, " N");
        json_text_string(&text, ts_string(call, "name"));
        text_buf_add_str(&text, " A");
        json_text_string(&text, ts_string(call, "arguments"));
    }
    text_buf_add_char(&text, ' ');
    text_buf_add_span(&text, ts_string(want, "finish_reason"));
    const struct input in = {.text = ts_string(row, "text"),
                             .thinking = mc_json_bool(mc_json_get(row, "thinking")),
                             .why = text_is(ts_string(row, "finish"), "length") ? ANSWER_LENGTH : ANSWER_STOP,
                             .tools = tools};
    expect(t, &in, ts_string(row, "id"), text_buf_span(&text));
    text_buf_deinit(&text);
    tool_set_destroy(tools);
}

static void golden_outputs(void **state)
{
    struct text_buf file;
    ts_read_file(MC_TEST_DATA "/chat/parse.json", &file);
    struct mc_json *const rows = ts_parse(text_buf_span(&file));
    assert_int_equal(mc_json_count(rows), 60);
    for (size_t i = 0; i < mc_json_count(rows); i++) golden_row(*state, mc_json_item(rows, i));
    mc_json_destroy(rows);
    text_buf_deinit(&file);
}

/* ---- rules the golden rows do not reach; D( stands for <｜DSML｜, E( for </｜DSML｜ ---- */

static const char declared[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"now\", \"parameters\": {\"type\": \"object\", \"properties\": {}}}},"
    " {\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\", \"properties\":"
    " {\"a\": {\"type\": \"string\"}, \"n\": {\"type\": [\"integer\", \"null\"]}, \"m\": {\"type\": [\"integer\", "
    "\"string\"]}}}}}]";

#define BLOCK                "<｜DSML｜tool_calls>\n"
#define END                  "</｜DSML｜tool_calls>"
#define CALL_F               "<｜DSML｜invoke name=\"f\">\n"
#define NOW                  "<｜DSML｜invoke name=\"now\">\n</｜DSML｜invoke>\n"
#define CLOSE_F              "</｜DSML｜invoke>\n"
#define P(attributes, value) "<｜DSML｜parameter " attributes ">" value "</｜DSML｜parameter>\n"

struct rule {
    const char *text, *want;
    bool thinking;
    enum answer_finish why;
};

static const struct rule rules[] = {
    /* the value of a parameter */
    {BLOCK CALL_F P("name=\"n\"", "null") P("name=\"m\"", "3") P("name=\"a\"", "4") P("name=\"z\"", "5") CLOSE_F END,
     "R\"\" C\"\" N\"f\" A\"{\\\"n\\\": null, \\\"m\\\": \\\"3\\\", \\\"a\\\": \\\"4\\\", \\\"z\\\": \\\"5\\\"}\" tool_calls",
     false, ANSWER_STOP},
    {BLOCK CALL_F P("name=\"n\" string=\"false\"", "") CLOSE_F END, "R\"\" C\"\" N\"f\" A\"{\\\"n\\\": \\\"\\\"}\" tool_calls",
     false, ANSWER_STOP},
    {BLOCK CALL_F P("name=\"n\" string=\"false\"", "12345678901234567890123") CLOSE_F END,
     "R\"\" C\"\" N\"f\" A\"{\\\"n\\\": \\\"12345678901234567890123\\\"}\" tool_calls", false, ANSWER_STOP},
    {BLOCK CALL_F P("name=\"n\" string=\"false\"", "\"q\"") CLOSE_F END,
     "R\"\" C\"\" N\"f\" A\"{\\\"n\\\": \\\"q\\\"}\" tool_calls", false, ANSWER_STOP},
    {BLOCK CALL_F P("string=\"maybe\" name=\"a\" x=\"1\"", "v\n") CLOSE_F END,
     "R\"\" C\"\" N\"f\" A\"{\\\"a\\\": \\\"v\\\\n\\\"}\" tool_calls", false, ANSWER_STOP},
    {BLOCK CALL_F P("name=\"a\" string=\"true\"", "<think>x</think> ｜DSML｜ <") CLOSE_F END,
     "R\"\" C\"\" N\"f\" A\"{\\\"a\\\": \\\"<think>x</think> ｜DSML｜ <\\\"}\" tool_calls", false, ANSWER_STOP},
    /* arguments in one piece */
    {BLOCK CALL_F "{\"a\": 1,}\n" CLOSE_F END,
     "R\"\" C\"\" N\"f\" A\"{\\\"arguments\\\": \\\"{\\\\\\\"a\\\\\\\": 1,}\\\"}\" tool_calls", false, ANSWER_STOP},
    {BLOCK CALL_F "{\"a\": \"x\"}\n" END, "R\"\" C\"\" N\"f\" A\"{\\\"a\\\": \\\"x\\\"}\" tool_calls", false, ANSWER_STOP},
    {BLOCK CALL_F "{\"a\": \"x\"}\n", "R\"\" C\"\" N\"f\" A\"{\\\"a\\\": \\\"x\\\"}\" tool_calls", false, ANSWER_STOP},
    {BLOCK CALL_F "{\"a\": \"x\"}\n", "R\"\" C\"\" length", false, ANSWER_LENGTH},
    {BLOCK CALL_F "{\"a\": \"x",
     "R\"\" C\""
     "<｜DSML｜tool_calls>\\n<｜DSML｜invoke name=\\\"f\\\">\\n{\\\"a\\\": \\\"x\" stop",
     false, ANSWER_STOP},
    {BLOCK CALL_F P("name=\"arguments\" string=\"false\"", "\"{\\\"a\\\": 1}\"") P("name=\"a\" string=\"true\"", "2")
         CLOSE_F END,
     "R\"\" C\"\" N\"f\" A\"{\\\"a\\\": 1}\" tool_calls", false, ANSWER_STOP},
    {BLOCK CALL_F P("name=\"input\" string=\"false\"", "{\"b\": 1}") CLOSE_F END,
     "R\"\" C\"\" N\"f\" A\"{\\\"input\\\": {\\\"b\\\": 1}}\" tool_calls", false, ANSWER_STOP},
    /* closing tags that are missing or too many */
    {BLOCK CALL_F P("name=\"a\" string=\"true\"", "x") NOW END,
     "R\"\" C\"\" N\"f\" A\"{\\\"a\\\": \\\"x\\\"}\" N\"now\" A\"{}\" tool_calls", false, ANSWER_STOP},
    {BLOCK CALL_F P("name=\"a\" string=\"true\"", "x") "</｜DSML｜parameter>\n" CLOSE_F END,
     "R\"\" C\"\" N\"f\" A\"{\\\"a\\\": \\\"x\\\"}\" tool_calls", false, ANSWER_STOP},
    {"Hm. </｜DSML｜parameter></｜DSML｜function_calls>So.", "R\"\" C\"Hm. So.\" stop", false, ANSWER_STOP},
    /* what is no block */
    {"Hm.\n\n" BLOCK "..." END "\nSo.", "R\"\" C\"Hm.<｜DSML｜tool_calls>\\n...</｜DSML｜tool_calls>\\nSo.\" stop", false,
     ANSWER_STOP},
    {BLOCK CALL_F "junk\n" CLOSE_F END,
     "R\"\" C\"<｜DSML｜tool_calls>\\n<｜DSML｜invoke name=\\\"f\\\">\\njunk\\n</｜DSML｜invoke>\\n</｜DSML｜tool_calls>\" "
     "stop",
     false, ANSWER_STOP},
    {BLOCK CALL_F "junk" END BLOCK NOW END,
     "R\"\" C\"<｜DSML｜tool_calls>\\n<｜DSML｜invoke name=\\\"f\\\">\\njunk</｜DSML｜tool_calls>\" N\"now\" A\"{}\" "
     "tool_calls",
     false, ANSWER_STOP},
    {BLOCK NOW CALL_F "junk\n" CLOSE_F END, "R\"\" C\"\" N\"now\" A\"{}\" tool_calls", false, ANSWER_STOP},
    {BLOCK "<｜DSML｜invoke>\n", "R\"\" C\"<｜DSML｜tool_calls>\\n<｜DSML｜invoke>\\n\" stop", false, ANSWER_STOP},
    {BLOCK "<｜DSML｜invoke name=\"\">\n", "R\"\" C\"<｜DSML｜tool_calls>\\n<｜DSML｜invoke name=\\\"\\\">\\n\" stop", false,
     ANSWER_STOP},
    {"\n\n" BLOCK END "\n" BLOCK NOW END, "R\"\" C\"\" N\"now\" A\"{}\" tool_calls", false, ANSWER_STOP},
    /* generation ends inside */
    {"Hm.\n\n", "R\"\" C\"Hm.\\n\\n\" stop", false, ANSWER_STOP},
    {" \n", "R\"\" C\" \\n\" stop", false, ANSWER_STOP},
    {"Hm.\n\n<｜DSML｜tool_ca", "R\"\" C\"Hm.\\n\\n<｜DSML｜tool_ca\" stop", false, ANSWER_STOP},
    {BLOCK, "R\"\" C\"<｜DSML｜tool_calls>\\n\" stop", false, ANSWER_STOP},
    {BLOCK, "R\"\" C\"\" length", false, ANSWER_LENGTH},
    {BLOCK CALL_F, "R\"\" C\"\" N\"f\" A\"{}\" tool_calls", false, ANSWER_STOP},
    {BLOCK CALL_F, "R\"\" C\"\" length", false, ANSWER_LENGTH},
    {BLOCK CALL_F "<｜DSML｜param", "R\"\" C\"<｜DSML｜tool_calls>\\n<｜DSML｜invoke name=\\\"f\\\">\\n<｜DSML｜param\" stop",
     false, ANSWER_STOP},
    {BLOCK NOW CALL_F "<｜DSML｜param", "R\"\" C\"\" N\"now\" A\"{}\" tool_calls", false, ANSWER_STOP},
    {BLOCK NOW "<｜DSML｜inv", "R\"\" C\"\" N\"now\" A\"{}\" length", false, ANSWER_LENGTH},
    /* reasoning */
    {"<think><think>a</think>b", "R\"<think>a\" C\"b\" stop", true, ANSWER_STOP},
    {"a\n\n" BLOCK NOW END "\n x",
     "R\"a\\n\\n<｜DSML｜tool_calls>\\n<｜DSML｜invoke name=\\\"now\\\">\\n</｜DSML｜invoke>\\n</｜DSML｜tool_calls>\\n x\" "
     "C\"\" stop",
     true, ANSWER_STOP},
    {"a\n" BLOCK NOW, "R\"a\\n<｜DSML｜tool_calls>\\n<｜DSML｜invoke name=\\\"now\\\">\\n</｜DSML｜invoke>\\n\" C\"\" stop",
     true, ANSWER_STOP},
    {"a\n\n" BLOCK NOW END "\n", "R\"a\" C\"\" N\"now\" A\"{}\" tool_calls", true, ANSWER_STOP},
    {"a\n\n\n<", "R\"a\\n\\n\\n<\" C\"\" length", true, ANSWER_LENGTH},
    {"\n<think>a</think>\n<think>b</think> c", "R\"ab\" C\"\\n\\n c\" stop", false, ANSWER_STOP},
    /* a call without a block opens one */
    {"Hm.\n\n" NOW "\n" NOW END " x", "R\"\" C\"Hm.\" N\"now\" A\"{}\" N\"now\" A\"{}\" tool_calls", false, ANSWER_STOP},
    {"\n" CALL_F P("name=\"a\" string=\"true\"", "x"),
     "R\"\" C\"\\n<｜DSML｜invoke name=\\\"f\\\">\\n<｜DSML｜parameter name=\\\"a\\\" "
     "string=\\\"true\\\">x</｜DSML｜parameter>\\n\" stop",
     false, ANSWER_STOP},
};

static void more_rules(void **state)
{
    struct mc_json *const json = ts_parse(text_span_str(declared));
    struct tool_set *tools = NULL;
    assert_int_equal(tool_set_create(json, &tools, NULL), MC_OK);
    for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
        const struct input in = {
            .text = text_span_str(rules[i].text), .thinking = rules[i].thinking, .why = rules[i].why, .tools = tools};
        expect(*state, &in, text_span_str(rules[i].text), text_span_str(rules[i].want));
    }
    tool_set_destroy(tools);
    mc_json_destroy(json);
}

/* A tag whose quote is never closed stops being waited for; the block is text, and time stays linear. */
static void endless_tag(void **state)
{
    struct mc_json *const json = ts_parse(text_span_str(declared));
    struct tool_set *tools = NULL;
    struct text_buf text, got;
    text_buf_init(&text);
    text_buf_init(&got);
    assert_int_equal(tool_set_create(json, &tools, NULL), MC_OK);
    text_buf_add_str(&text, BLOCK "<｜DSML｜invoke name=\"");
    for (size_t i = 0; i < 300000; i++) text_buf_add_char(&text, 'x');
    const struct input in = {.text = text_buf_span(&text), .tools = tools};
    run(*state, &in, BYTES, 0, &got);
    assert_int_equal(got.size, text.size + strlen("R\"\" C\"\" stop") + 2); /* two characters are escaped */
    tool_set_destroy(tools);
    mc_json_destroy(json);
    text_buf_deinit(&text);
    text_buf_deinit(&got);
}

/* Given ids, the characters of a marker are text unless they are that token. */
static void spelled_markers_are_text(void **state)
{
    struct answer_stream *a = NULL;
    struct answer_log log;
    struct token_list ids;
    struct text_buf got;
    struct mc_err err;
    enum answer_finish finish;
    answer_log_init(&log);
    token_list_init(&ids);
    text_buf_init(&got);
    const struct answer_events events = answer_log_events(&log);
    const struct answer_options options = {.in_reasoning = true};
    assert_int_equal(answer_stream_create(*state, &options, &events, &a, &err), MC_OK);
    assert_true(answer_stream_in_reasoning(a));
    assert_int_equal(tokenizer_encode(*state, text_span_str("a</think>b"), TOKENIZER_PLAIN, NULL, 0, &ids, &err), MC_OK);
    assert_int_equal(token_list_add(&ids, tokenizer_special(*state)->think_close, &err), MC_OK);
    assert_int_equal(token_list_add(&ids, 128799, &err), MC_OK); /* a control token: not shown */
    assert_int_equal(tokenizer_encode(*state, text_span_str("c"), TOKENIZER_PLAIN, NULL, 0, &ids, &err), MC_OK);
    for (size_t i = 0; i < ids.n; i++) assert_int_equal(answer_stream_feed_id(a, ids.ids[i], &err), MC_OK);
    assert_false(answer_stream_in_reasoning(a));
    assert_int_equal(answer_stream_finish(a, ANSWER_STOP, &finish, &err), MC_OK);
    answer_log_write(&log, finish, &got);
    assert_true(text_is(text_buf_span(&got), "R\"a</think>b\" C\"c\" stop"));
    answer_stream_destroy(a);
    answer_log_deinit(&log);
    token_list_deinit(&ids);
    text_buf_deinit(&got);
}

/* ---- stop strings ---- */

static void stop_strings(void **state)
{
    static const struct {
        const char *text, *stops[3], *want;
        bool thinking;
    } cases[] = {
        {"one STOP two", {"STOP"}, "R\"\" C\"one \" stop", false},
        {"one STO", {"STOP"}, "R\"\" C\"one STO\" stop", false},
        {"abcd", {"abcd", "bc"}, "R\"\" C\"a\" stop", false},
        {"xabc", {"abc", "bc"}, "R\"\" C\"x\" stop", false},
        {"ababac", {"abac"}, "R\"\" C\"ab\" stop", false},
        {"STOP</think>x STOP y", {"STOP"}, "R\"STOP\" C\"x \" stop", true},
        {"日本語。", {"本語"}, "R\"\" C\"日\" stop", false},
        {"  \n\nabc", {"\n\n"}, "R\"\" C\"  \" stop", false},
        {"a\n\n" BLOCK NOW END, {"\n\n"}, "R\"\" C\"a\" N\"now\" A\"{}\" tool_calls", false},
        {"a\n\n" BLOCK NOW END, {"a"}, "R\"\" C\"\" stop", false},
        {"ab" BLOCK END "c", {"abc"}, "R\"\" C\"\" stop", false},
        {BLOCK CALL_F P("name=\"a\" string=\"true\"", "STOP") CLOSE_F END,
         {"STOP"},
         "R\"\" C\"\" N\"f\" A\"{\\\"a\\\": \\\"STOP\\\"}\" tool_calls",
         false},
    };
    struct mc_json *const json = ts_parse(text_span_str(declared));
    struct tool_set *tools = NULL;
    assert_int_equal(tool_set_create(json, &tools, NULL), MC_OK);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct input in = {.text = text_span_str(cases[i].text), .thinking = cases[i].thinking, .tools = tools};
        while (cases[i].stops[in.n_stops]) {
            in.stops[in.n_stops] = text_span_str(cases[i].stops[in.n_stops]);
            in.n_stops++;
        }
        expect(*state, &in, in.text, text_span_str(cases[i].want));
    }
    tool_set_destroy(tools);
    mc_json_destroy(json);
}

static void stop_refusals(void **state)
{
    static const char longest[ANSWER_STOP_BYTES_MAX + 1] = "";
    const struct answer_events none = {.user = NULL};
    struct answer_stream *a = NULL;
    struct mc_span stops[ANSWER_STOPS_MAX + 1];
    struct mc_err err;
    for (size_t i = 0; i < ARRAY_LEN(stops); i++) stops[i] = text_span_str("x");
    assert_int_equal(
        answer_stream_create(NULL, &(struct answer_options){.stops = stops, .n_stops = ARRAY_LEN(stops)}, &none, &a, &err),
        MC_EARG);
    static const struct {
        const char *text;
        size_t size;
    } bad[] = {{"", 0}, {longest, sizeof longest}, {"\xFF", 1}};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        stops[0] = text_span(bad[i].text, bad[i].size);
        assert_int_equal(answer_stream_create(NULL, &(struct answer_options){.stops = stops, .n_stops = 1}, &none, &a, &err),
                         MC_EARG);
        assert_non_null(strstr(err.msg, "stop[0]"));
    }
    assert_int_equal(answer_stream_create(NULL, &(struct answer_options){.in_reasoning = false}, &none, &a, &err), MC_OK);
    assert_int_equal(answer_stream_feed_id(a, 5, &err), MC_EARG);
    answer_stream_destroy(a);
    answer_stream_destroy(NULL);
    (void)state;
}

/* ---- streaming: what goes out when ---- */

static void sends_at_once(void **state)
{
    static const struct {
        const char *text, *content, *arguments;
    } cases[] = {
        {"Hello", "Hello", ""},
        {"Hello\n", "Hello", ""},
        {"Hello\n\n\n", "Hello\n", ""},
        {"Hello <", "Hello ", ""},
        {"Hello <b", "Hello <b", ""},
        {"Hello <｜DSML｜to", "Hello ", ""},
        {"Hello <｜DSML｜x", "Hello <｜DSML｜x", ""},
        {"  ", "", ""},
        {BLOCK CALL_F, "", ""},
        {BLOCK CALL_F "<｜DSML｜parameter name=\"a\" string=\"true\">", "", "{\"a\": \""},
        {BLOCK CALL_F "<｜DSML｜parameter name=\"a\" string=\"true\">\"x\n", "", "{\"a\": \"\\\"x"},
        {BLOCK CALL_F "<｜DSML｜parameter name=\"n\" string=\"false\">12", "", ""},
        {BLOCK CALL_F P("name=\"n\" string=\"false\"", "12"), "", "{\"n\": 12"},
    };
    struct mc_json *const json = ts_parse(text_span_str(declared));
    struct tool_set *tools = NULL;
    assert_int_equal(tool_set_create(json, &tools, NULL), MC_OK);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (int how = WHOLE; how <= IDS; how++) {
            struct answer_stream *a = NULL;
            struct answer_log log;
            answer_log_init(&log);
            const struct answer_events events = answer_log_events(&log);
            assert_int_equal(answer_stream_create(*state, &(struct answer_options){.tools = tools}, &events, &a, NULL), MC_OK);
            feed(a, *state, text_span_str(cases[i].text), (enum feeding)how, 7);
            ts_expect_text("content so far", text_span_str(cases[i].text), text_span_str(cases[i].content),
                           text_buf_span(&log.content));
            ts_expect_text("arguments so far", text_span_str(cases[i].text), text_span_str(cases[i].arguments),
                           text_buf_span(&log.arguments));
            answer_stream_destroy(a);
            answer_log_deinit(&log);
        }
    tool_set_destroy(tools);
    mc_json_destroy(json);
}

static void tells_when_done(void **state)
{
    struct mc_json *const json = ts_parse(text_span_str(declared));
    struct tool_set *tools = NULL;
    struct answer_stream *a = NULL;
    const struct answer_events none = {.user = NULL};
    const struct mc_span stop = text_span_str("###");
    assert_int_equal(tool_set_create(json, &tools, NULL), MC_OK);
    assert_int_equal(answer_stream_create(*state, &(struct answer_options){.tools = tools}, &none, &a, NULL), MC_OK);
    feed(a, *state, text_span_str(BLOCK NOW), WHOLE, 0);
    assert_false(answer_stream_is_done(a));
    feed(a, *state, text_span_str(END), WHOLE, 0);
    assert_true(answer_stream_is_done(a));
    assert_int_equal(answer_stream_stop(a).size, 0);
    answer_stream_destroy(a);
    assert_int_equal(answer_stream_create(*state, &(struct answer_options){.stops = &stop, .n_stops = 1}, &none, &a, NULL),
                     MC_OK);
    feed(a, *state, text_span_str("a ##"), WHOLE, 0);
    assert_false(answer_stream_is_done(a));
    feed(a, *state, text_span_str("#"), WHOLE, 0);
    assert_true(answer_stream_is_done(a));
    assert_true(text_is(answer_stream_stop(a), "###"));
    answer_stream_destroy(a);
    tool_set_destroy(tools);
    mc_json_destroy(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_outputs), cmocka_unit_test(more_rules),
        cmocka_unit_test(endless_tag),    cmocka_unit_test(spelled_markers_are_text),
        cmocka_unit_test(stop_strings),   cmocka_unit_test(stop_refusals),
        cmocka_unit_test(sends_at_once),  cmocka_unit_test(tells_when_done),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
