/* test_chat_form.c - goal: prompts byte for byte those of the reference encoder, and the right bytes trusted.
 * Method: the 53 golden requests (prompt, untrusted ranges, ids with and without the mask), the fixed texts, the prompts the
 * tiny model was trained on, and the refusals. */
#include "runtime/text/chat_form.h"
#include "runtime/text/chat_strings.h"
#include "runtime/text/json_text.h"
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

/* ---- encode.json ---- */

static void expect_untrusted(struct mc_span id, const struct mc_json *want, const struct chat_prompt *p)
{
    bool same = mc_json_count(want) == p->n_untrusted;
    for (size_t i = 0; same && i < p->n_untrusted; i++) {
        const struct mc_json *const range = mc_json_item(want, i);
        same = mc_json_int(mc_json_item(range, 0)) == (int64_t)p->untrusted[i].from &&
               mc_json_int(mc_json_item(range, 1)) == (int64_t)p->untrusted[i].to;
    }
    if (same) return;
    for (size_t i = 0; i < p->n_untrusted; i++) print_message("[%d, %d] ", (int)p->untrusted[i].from, (int)p->untrusted[i].to);
    fail_msg("\n%.*s: untrusted ranges differ, above are ours", (int)id.size, (const char *)id.data);
}

static void expect_prompt(const struct tokenizer *t, const struct mc_json *row)
{
    const struct mc_json *const request = mc_json_get(row, "request");
    const struct mc_span id = ts_string(row, "id"), profile = ts_string(request, "profile");
    struct chat_controls controls = {.thinking = true};
    struct chat_prompt p;
    struct token_list ids;
    struct mc_err err;
    chat_prompt_init(&p);
    token_list_init(&ids);
    if (text_is(profile, "preview")) controls.profile = CHAT_PROFILE_PREVIEW;
    if (chat_request_controls(request, &controls, &err) || chat_render_request(request, &controls, &p, &err))
        fail_msg("%.*s: %s", (int)id.size, (const char *)id.data, err.msg);
    ts_expect_text("prompt", id, ts_string(row, "prompt"), text_buf_span(&p.text));
    expect_untrusted(id, mc_json_get(row, "untrusted"), &p);
    assert_int_equal(p.in_reasoning, p.text.size > 7 && memcmp(p.text.data + p.text.size - 7, "<think>", 7) == 0);
    assert_int_equal(chat_encode(t, &p, &ids, &err), MC_OK);
    ts_expect_ids("ids_masked", id, mc_json_get(row, "ids_masked"), &ids);
    ids.n = 0;
    assert_int_equal(tokenizer_encode(t, text_buf_span(&p.text), TOKENIZER_ALL, NULL, 0, &ids, &err), MC_OK);
    const struct mc_json *const reference = mc_json_get(row, "ids_reference");
    ts_expect_ids("ids_reference", id, reference ? reference : mc_json_get(row, "ids_masked"), &ids);
    token_list_deinit(&ids);
    chat_prompt_deinit(&p);
}

static void golden_requests(void **state)
{
    struct text_buf file;
    ts_read_file(MC_TEST_DATA "/chat/encode.json", &file);
    struct mc_json *const rows = ts_parse(text_buf_span(&file));
    assert_int_equal(mc_json_count(rows), 53);
    for (size_t i = 0; i < mc_json_count(rows); i++) expect_prompt(*state, mc_json_item(rows, i));
    mc_json_destroy(rows);
    text_buf_deinit(&file);
}

/* ---- strings.json ---- */

static void same_string(const struct mc_json *v, const char *key, const char *have)
{
    ts_expect_text("strings.json", text_span_str(key), ts_string(v, key), text_span_str(have));
}

static void fixed_texts(void **state)
{
    struct text_buf file, joined;
    ts_read_file(MC_TEST_DATA "/chat/strings.json", &file);
    struct mc_json *const v = ts_parse(text_buf_span(&file));
    const struct mc_json *const effort = mc_json_get(v, "effort_prefix");
    text_buf_init(&joined);
    same_string(v, "bos", CHAT_BOS);
    same_string(v, "eos", CHAT_EOS);
    same_string(v, "user", CHAT_USER_MARK);
    same_string(v, "assistant", CHAT_ANSWER_MARK);
    same_string(v, "think_open", CHAT_THINK_OPEN);
    same_string(v, "think_close", CHAT_THINK_CLOSE);
    same_string(v, "dsml", CHAT_DSML);
    same_string(v, "latest_reminder", CHAT_LATEST);
    same_string(mc_json_get(effort, "0731"), "low", "");
    same_string(mc_json_get(effort, "0731"), "high", CHAT_EFFORT_ABSOLUTE);
    same_string(mc_json_get(effort, "0731"), "max", CHAT_EFFORT_BEYOND);
    same_string(mc_json_get(effort, "preview"), "high", "");
    same_string(mc_json_get(effort, "preview"), "max", CHAT_EFFORT_ABSOLUTE);
    text_buf_add_str(&joined, CHAT_TOOLS_HEAD);
    text_buf_add_str(&joined, "{SCHEMAS}");
    text_buf_add_str(&joined, CHAT_TOOLS_TAIL);
    ts_expect_text("strings.json", text_span_str("tools_section"), ts_string(v, "tools_section"), text_buf_span(&joined));
    text_buf_clear(&joined);
    text_buf_add_str(&joined, CHAT_RESPONSE_FORMAT);
    text_buf_add_str(&joined, "{SCHEMA}");
    ts_expect_text("strings.json", text_span_str("response_format_section"), ts_string(v, "response_format_section"),
                   text_buf_span(&joined));
    text_buf_deinit(&joined);
    text_buf_deinit(&file);
    mc_json_destroy(v);
    (void)state;
}

/* ---- the tiny model: plain messages through chat_render ---- */

static void tiny_row(const struct mc_json *row, void *t)
{
    const struct mc_span system = ts_string(row, "system");
    struct chat_message messages[2];
    size_t n = 0;
    if (system.size > 0) messages[n++] = (struct chat_message){.role = CHAT_SYSTEM, .content = system};
    messages[n++] = (struct chat_message){.role = CHAT_USER, .content = ts_string(row, "user")};
    const struct chat_controls controls = {.thinking = mc_json_bool(mc_json_get(row, "thinking"))};
    struct chat_prompt p;
    struct token_list ids;
    struct mc_err err;
    chat_prompt_init(&p);
    token_list_init(&ids);
    if (chat_render(messages, n, &controls, &p, &err) || chat_encode(t, &p, &ids, &err)) fail_msg("%s", err.msg);
    ts_expect_text("prompt", ts_string(row, "id"), ts_string(row, "prompt"), text_buf_span(&p.text));
    ts_expect_ids("prompt_tokens", ts_string(row, "id"), mc_json_get(row, "prompt_tokens"), &ids);
    token_list_deinit(&ids);
    chat_prompt_deinit(&p);

    const struct mc_json *const output = mc_json_get(row, "output_tokens");
    struct text_buf text;
    text_buf_init(&text);
    for (size_t i = 0; i < mc_json_count(output); i++) {
        const int32_t id = (int32_t)mc_json_int(mc_json_item(output, i));
        tokenizer_decode(t, &id, 1, true, &text); /* its answers are ASCII: tokens are whole code points */
    }
    ts_expect_text("output", ts_string(row, "id"), ts_string(row, "output"), text_buf_span(&text));
    text_buf_deinit(&text);
}

static void tiny_model_prompts(void **state)
{
    struct tokenizer *const t = ts_tokenizer(TINY_MODEL);
    assert_int_equal(ts_each_line(MC_TEST_DATA "/models/expected.jsonl", tiny_row, t), 35);
    tokenizer_destroy(t);
    (void)state;
}

/* ---- requests that are refused, with the field in the sentence ---- */

static void refusals(void **state)
{
    static const char *const cases[][2] = {
        {"{}", "messages"},
        {"{\"messages\": []}", "messages"},
        {"{\"messages\": \"hi\"}", "messages"},
        {"{\"messages\": [7]}", "messages[0]"},
        {"{\"messages\": [{\"role\": \"robot\"}]}", "messages[0].role"},
        {"{\"messages\": [{\"content\": \"x\"}]}", "messages[0].role"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": 5}]}", "messages[0].content"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": [\"x\"]}]}", "messages[0].content[0]"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]}", "image_url"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\"}]}]}", "messages[0].content[0].text"},
        {"{\"messages\": [{\"role\": \"assistant\", \"reasoning\": 1}]}", "messages[0].reasoning"},
        {"{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": 1}]}", "messages[0].tool_calls"},
        {"{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{}]}]}", "tool_calls[0].function.name"},
        {"{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": 3}}]}]}",
         "tool_calls[0].function.arguments"},
        {"{\"messages\": [{\"role\": \"user\"}], \"tools\": {}}", "tools"},
        {"{\"messages\": [{\"role\": \"user\"}], \"tools\": [{\"type\": \"function\"}]}", "tools[0].function.name"},
        {"{\"messages\": [{\"role\": \"user\"}], \"response_format\": {\"type\": \"xml\"}}", "response_format.type"},
        {"{\"messages\": [{\"role\": \"user\"}], \"response_format\": {\"type\": \"json_schema\"}}", "json_schema.schema"},
        {"{\"messages\": [{\"role\": \"user\"}], \"reasoning_effort\": \"huge\"}", "reasoning_effort"},
        {"{\"messages\": [{\"role\": \"user\"}], \"reasoning_effort\": 3}", "reasoning_effort"},
        {"{\"messages\": [{\"role\": \"user\"}], \"thinking\": {\"type\": \"maybe\"}}", "thinking.type"},
        {"{\"messages\": [{\"role\": \"user\"}], \"enable_thinking\": \"yes\"}", "enable_thinking"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct mc_json *const request = ts_parse(text_span_str(cases[i][0]));
        struct chat_controls controls = {.thinking = true};
        struct chat_prompt p;
        struct mc_err err = {.code = MC_OK};
        chat_prompt_init(&p);
        enum mc_code rc = chat_request_controls(request, &controls, &err);
        if (!rc) rc = chat_render_request(request, &controls, &p, &err);
        if (rc != MC_EARG || !strstr(err.msg, cases[i][1])) fail_msg("%s: code %d, '%s'", cases[i][0], (int)rc, err.msg);
        chat_prompt_deinit(&p);
        mc_json_destroy(request);
    }
    assert_int_equal(
        chat_render(NULL, 0, &(struct chat_controls){.thinking = true}, &(struct chat_prompt){.n_untrusted = 0}, NULL),
        MC_EARG);
    (void)state;
}

/* ---- fields -> controls (chat.md, section 2) ---- */

static void request_controls(void **state)
{
    static const struct {
        const char *request;
        bool dflt, thinking;
        enum chat_effort effort;
    } cases[] = {
        {"{}", true, true, CHAT_EFFORT_LOW},
        {"{}", false, false, CHAT_EFFORT_LOW},
        {"{\"reasoning_effort\": \"none\"}", true, false, CHAT_EFFORT_LOW},
        {"{\"reasoning_effort\": null}", true, true, CHAT_EFFORT_LOW},
        {"{\"reasoning_effort\": \"minimal\"}", false, true, CHAT_EFFORT_LOW},
        {"{\"reasoning_effort\": \"xhigh\"}", false, true, CHAT_EFFORT_HIGH},
        {"{\"reasoning\": {\"effort\": \"high\"}}", true, true, CHAT_EFFORT_HIGH},
        {"{\"output_config\": {\"effort\": \"max\"}}", true, true, CHAT_EFFORT_MAX},
        {"{\"thinking\": {\"type\": \"disabled\"}, \"reasoning_effort\": \"max\"}", true, false, CHAT_EFFORT_MAX},
        {"{\"thinking\": {\"type\": \"adaptive\"}}", false, true, CHAT_EFFORT_LOW},
        {"{\"enable_thinking\": false}", true, false, CHAT_EFFORT_LOW},
        {"{\"think\": false, \"enable_thinking\": true}", true, false, CHAT_EFFORT_LOW},
        {"{\"chat_template_kwargs\": {\"enable_thinking\": false}}", true, false, CHAT_EFFORT_LOW},
        {"{\"chat_template_kwargs\": {\"thinking\": true}}", false, true, CHAT_EFFORT_LOW},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct mc_json *const request = ts_parse(text_span_str(cases[i].request));
        struct chat_controls c = {.thinking = cases[i].dflt};
        assert_int_equal(chat_request_controls(request, &c, NULL), MC_OK);
        if (c.thinking != cases[i].thinking || c.effort != cases[i].effort)
            fail_msg("%s: %d %d", cases[i].request, c.thinking, (int)c.effort);
        mc_json_destroy(request);
    }
    struct mc_json *const budget = ts_parse(text_span_str("{\"thinking\": {\"type\": \"enabled\", \"budget_tokens\": 512}}"));
    struct chat_controls c = {.thinking = false};
    assert_int_equal(chat_request_controls(budget, &c, NULL), MC_OK);
    assert_true(c.thinking && c.reasoning_max == 512);
    mc_json_destroy(budget);
    assert_true(chat_think_word("max", &c) && c.thinking && c.effort == CHAT_EFFORT_MAX);
    assert_true(chat_think_word("off", &c) && !c.thinking);
    assert_false(chat_think_word("maybe", &c));
    (void)state;
}

/* ---- JSON text as Python writes it ---- */

static void json_in_prompts(void **state)
{
    static const char *const cases[][2] = {
        {"1e9", "1000000000.0"},
        {"1e16", "1e+16"},
        {"1e15", "1000000000000000.0"},
        {"0.00001", "1e-05"},
        {"0.0001", "0.0001"},
        {"123.456", "123.456"},
        {"-0.5", "-0.5"},
        {"2.50", "2.5"},
        {"-0.0", "-0.0"},
        {"-0", "0"},
        {"0.1", "0.1"},
        {"5e-324", "5e-324"},
        {"1.7976931348623157e308", "1.7976931348623157e+308"},
        {"9007199254740993.0", "9007199254740992.0"},
        {"1.5e300", "1.5e+300"},
        {"9223372036854775807", "9223372036854775807"},
        {"-9223372036854775808", "-9223372036854775808"},
        {"[]", "[]"},
        {"{}", "{}"},
        {"{\"b\":1,\"a\":[true,null],\"b\":2}", "{\"b\": 2, \"a\": [true, null]}"},
        {"\"\\u0001\\b\\f\\n\\r\\t\\/\\u007f\\u2028\\\"\\\\\\u001f\"",
         "\"\\u0001\\b\\f\\n\\r\\t/\x7f\xE2\x80\xA8\\\"\\\\\\u001f\""},
        {"\"a\\u0000b\"", "\"a\\u0000b\""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct mc_json *const v = ts_parse(text_span_str(cases[i][0]));
        struct text_buf out;
        text_buf_init(&out);
        json_text_value(&out, v);
        ts_expect_text("json_text", text_span_str(cases[i][0]), text_span_str(cases[i][1]), text_buf_span(&out));
        text_buf_deinit(&out);
        mc_json_destroy(v);
    }
    (void)state;
}

static void json_refusals(void **state)
{
    static const char *const cases[] = {"",
                                        "{",
                                        "[1,]",
                                        "nul",
                                        "\"\\ud800\"",
                                        "\"\xFF\"",
                                        "9223372036854775808",
                                        "1e999",
                                        "{} x",
                                        "NaN",
                                        "{\"a\\u0000b\": 1}",
                                        "'x'",
                                        "01",
                                        "\"\n\""};
    struct mc_json *v = NULL;
    struct mc_err err;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (mc_json_parse(text_span_str(cases[i]), &v, &err) != MC_EFORMAT) fail_msg("'%s' was accepted", cases[i]);
    char deep[2 * MC_JSON_DEPTH_MAX + 2];
    memset(deep, '[', MC_JSON_DEPTH_MAX + 1);
    memset(deep + MC_JSON_DEPTH_MAX + 1, ']', MC_JSON_DEPTH_MAX + 1);
    assert_int_equal(mc_json_parse(text_span(deep, sizeof deep), &v, &err), MC_EFORMAT);
    assert_non_null(strstr(err.msg, "nested"));
    assert_int_equal(mc_json_parse(text_span(deep + 1, sizeof deep - 2), &v, &err), MC_OK);
    mc_json_destroy(v);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_requests), cmocka_unit_test(fixed_texts),      cmocka_unit_test(tiny_model_prompts),
        cmocka_unit_test(refusals),        cmocka_unit_test(request_controls), cmocka_unit_test(json_in_prompts),
        cmocka_unit_test(json_refusals),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
