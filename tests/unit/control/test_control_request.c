/* Lines of the control socket and their answers: every setting there and back, all or nothing, conflicts, topics, and lines
 * that are no requests. */
#include "platform/base/json.h"
#include "runtime/control/control_request.h"
#include "runtime/control/settings_json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct settings_limits flash = {43, 3, 6};
static const char *const facts[] = {"threads", "ctx", NULL};
static struct control_requests requests;
static struct control_outcome outcome;
static struct mc_json *answer;

static void write_facts(void *user, struct json_out *j)
{
    (void)user;
    json_out_int(j, "threads", 2);
    json_out_int(j, "ctx", 8192);
}

static void write_stats(void *user, struct json_out *j)
{
    (void)user;
    json_out_int(j, "generated_tokens_total", 17);
}

static void write_cost(void *user, const struct moe_settings *s, struct json_out *j)
{
    (void)user;
    json_out_int(j, "cost_of_k", s->top_k);
}

static int set_up(void **state)
{
    (void)state;
    struct mc_err err = {0};
    requests = (struct control_requests){.start = settings_lossless(&flash),
                                         .host = {.server = "modchip test",
                                                  .model = "m",
                                                  .facts = write_facts,
                                                  .fact_keys = facts,
                                                  .stats = write_stats,
                                                  .cost = write_cost}};
    answer = NULL;
    return settings_box_create(&flash, &requests.box, &err) != MC_OK;
}

static int tear_down(void **state)
{
    (void)state;
    mc_json_destroy(answer);
    control_outcome_deinit(&outcome);
    settings_box_destroy(requests.box);
    return 0;
}

static const struct mc_json *parse(const struct json_out *j)
{
    struct mc_err err = {0};
    mc_json_destroy(answer);
    answer = NULL;
    if (mc_json_parse((struct mc_span){(const uint8_t *)j->text, j->size}, &answer, &err))
        fail_msg("%s: %.*s", err.msg, (int)j->size, j->text);
    assert_null(memchr(j->text, '\n', j->size)); /* one line */
    return answer;
}

/* The answer to a line; NULL: none. */
static const struct mc_json *ask(const char *line)
{
    control_outcome_deinit(&outcome);
    control_request(&requests, (struct mc_span){(const uint8_t *)line, strlen(line)}, 0, &outcome);
    return outcome.answer.size ? parse(&outcome.answer) : NULL;
}

static const struct mc_json *ok(const char *line)
{
    const struct mc_json *a = ask(line);
    if (!mc_json_bool(mc_json_get(a, "ok"))) fail_msg("%s: %.*s", line, (int)outcome.answer.size, outcome.answer.text);
    return mc_json_get(a, "result");
}

static void assert_text(const struct mc_json *v, const char *want)
{
    const struct mc_span got = mc_json_string(v);
    if (got.size != strlen(want) || memcmp(got.data, want, got.size))
        fail_msg("'%.*s' is not '%s'", (int)got.size, (const char *)got.data, want);
}

static void refused(const char *line, const char *code, const char *key, const char *says)
{
    struct settings_state before, after;
    settings_box_get(requests.box, &before);
    const struct mc_json *a = ask(line), *e = mc_json_get(a, "error");
    if (!a || mc_json_bool(mc_json_get(a, "ok")) || !outcome.refused) fail_msg("%s is not refused", line);
    assert_text(mc_json_get(e, "code"), code);
    if (key) assert_text(mc_json_get(e, "key"), key);
    const struct mc_span m = mc_json_string(mc_json_get(e, "message"));
    char text[300];
    snprintf(text, sizeof text, "%.*s", (int)m.size, (const char *)m.data);
    if (!strstr(text, says)) fail_msg("'%s' does not say '%s'", text, says);
    settings_box_get(requests.box, &after);
    assert_int_equal(before.generation, after.generation);
    assert_true(settings_equal(&before.settings, &after.settings));
}

static struct settings_state now(void)
{
    struct settings_state s;
    settings_box_get(requests.box, &s);
    return s;
}

static void what_is_set_can_be_got(void **state)
{
    (void)state;
    const struct mc_json *r =
        ok("{\"id\":2,\"op\":\"set\",\"values\":{\"moe_top_k\":4,\"moe_inner_k\":3,\"moe_min_weight\":0.11,"
           "\"moe_band\":[5,40],\"moe_rescale\":{\"rho\":0.25},\"swiglu_exps\":80,\"swiglu_shexp\":128,"
           "\"moe_scope\":\"all\"},\"if_generation\":1}");
    assert_int_equal(mc_json_int(mc_json_get(r, "generation")), 2);
    assert_true(mc_json_bool(mc_json_get(r, "applied"))); /* nothing is running */
    assert_true(mc_json_bool(mc_json_get(r, "lossy")));
    assert_int_equal(mc_json_count(mc_json_get(r, "changed")), 7); /* 128 rows are all of them */
    const struct moe_settings s = now().settings;
    assert_true(s.top_k == 4 && s.inner_k == 3 && s.band_first == 5 && s.band_end == 40 && s.rescale == MOE_RESCALE_RHO &&
                s.rows_exps == 80 && s.rows_shexp == 0 && s.scope == MOE_SCOPE_ALL);
    r = ok("{\"id\":\"x\",\"op\":\"get\"}");
    assert_text(mc_json_get(answer, "id"), "x");
    assert_int_equal(mc_json_int(mc_json_get(r, "generation")), 2);
    assert_int_equal(mc_json_int(mc_json_get(r, "applied_generation")), 2);
    assert_true(mc_json_bool(mc_json_get(r, "lossy")));
    assert_int_equal(mc_json_int(mc_json_get(r, "cost_of_k")), 4);
    const struct mc_json *got = mc_json_get(r, "settings"), *sources = mc_json_get(r, "sources");
    assert_int_equal(mc_json_int(mc_json_get(got, "threads")), 2);
    assert_text(mc_json_get(sources, "moe_top_k"), "socket");
    assert_text(mc_json_get(sources, "swiglu_shexp"), "start");
    /* As it was got it can be set, whatever was in force. */
    struct moe_settings back = settings_lossless(&flash);
    struct settings_refusal why;
    struct json_out j;
    json_out_init(&j);
    settings_to_json(&s, &j, NULL);
    assert_true(settings_from_json(parse(&j), &flash, facts, &back, &why));
    assert_true(settings_equal(&back, &s));
    json_out_deinit(&j);

    r = ok("{\"id\":3,\"op\":\"get\",\"keys\":[\"moe_rescale\",\"ctx\"]}");
    assert_int_equal(mc_json_count(mc_json_get(r, "settings")), 3); /* facts come together */
    assert_int_equal(mc_json_count(mc_json_get(r, "sources")), 1);
    r = ok("{\"id\":4,\"op\":\"reset\"}");
    const struct moe_settings back_again = now().settings;
    assert_true(settings_equal(&back_again, &requests.start));
    r = ok(
        "{\"id\":5,\"op\":\"set\",\"values\":{\"moe_top_k\":2,\"profile\":\"top4\"}}"); /* the profile first, wherever it is */
    assert_true(now().settings.top_k == 2 && now().settings.inner_k == 4);
    r = ok("{\"id\":5,\"op\":\"set\",\"values\":{\"profile\":\"top5\"}}");
    r = ok("{\"id\":6,\"op\":\"get\"}");
    assert_text(mc_json_get(r, "profile"), "top5");
    assert_text(mc_json_get(r, "text"), "top-k 5, rescale l2, decoding only");
    r = ok("{\"id\":7,\"op\":\"describe\"}");
    assert_int_equal(mc_json_count(r), SETTINGS_KEYS + 2);
    assert_int_equal(mc_json_int(mc_json_get(mc_json_get(r, "moe_top_k"), "default")), 6);
    assert_false(mc_json_bool(mc_json_get(mc_json_get(r, "ctx"), "live")));
}

static void nothing_is_changed_by_half(void **state)
{
    (void)state;
    static const char *const bad[][3] = {
        {"\"moe_top_k\":9", "moe_top_k", "must be 1..6, got 9"},
        {"\"moe_top_k\":0", "moe_top_k", "must be 1..6, got 0"},
        {"\"moe_top_k\":-1", "moe_top_k", "integer, not negative"},
        {"\"moe_top_k\":4294967300", "moe_top_k", "integer, not negative"},
        {"\"moe_top_k\":5.5", "moe_top_k", "integer"},
        {"\"moe_top_k\":\"5\"", "moe_top_k", "integer"},
        {"\"moe_top_k\":null", "moe_top_k", "integer"},
        {"\"moe_inner_k\":7", "moe_inner_k", "must be 1..6, got 7"},
        {"\"moe_min_weight\":1.6", "moe_min_weight", "must be 0..1.5"},
        {"\"moe_min_weight\":-0.1", "moe_min_weight", "must be 0..1.5"},
        {"\"moe_min_weight\":1e300", "moe_min_weight", "must be 0..1.5"},
        {"\"moe_min_weight\":true", "moe_min_weight", "a number"},
        {"\"moe_band\":[3]", "moe_band", "two layer numbers"},
        {"\"moe_band\":[9,3]", "moe_band", "must be 9..43, got 3"},
        {"\"moe_band\":[3,44]", "moe_band", "must be 3..43, got 44"},
        {"\"moe_band\":\"3:43\"", "moe_band", "two layer numbers"},
        {"\"moe_rescale\":\"l3\"", "moe_rescale", "none"},
        {"\"moe_rescale\":{\"rho\":1}", "moe_rescale", "below 1"},
        {"\"moe_rescale\":{\"rho\":-0.1}", "moe_rescale", "at least 0"},
        {"\"moe_rescale\":{}", "moe_rescale", "rho"},
        {"\"moe_rescale\":{\"rho\":0.1,\"x\":1}", "moe_rescale", "rho"},
        {"\"swiglu_exps\":129", "swiglu_exps", "must be 0..128, got 129"},
        {"\"swiglu_shexp\":1000", "swiglu_shexp", "must be 0..128, got 1000"},
        {"\"moe_scope\":\"prefill\"", "moe_scope", "decode"},
        {"\"profile\":\"top9\"", "profile", "name of a profile"},
        {"\"profile\":7", "profile", "name of a profile"},
    };
    char line[300];
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        snprintf(line, sizeof line, "{\"id\":1,\"op\":\"set\",\"values\":{\"swiglu_exps\":64,%s}}", bad[i][0]);
        refused(line, "bad_value", bad[i][1], bad[i][2]);
    }
    refused("{\"id\":1,\"op\":\"set\",\"values\":{\"moe_top_k\":4,\"expert_count\":3}}", "unknown_key", "expert_count",
            "no such");
    refused("{\"id\":1,\"op\":\"set\",\"values\":{\"moe_top_k\":4,\"threads\":3}}", "read_only", "threads", "at the start");
    refused("{\"id\":1,\"op\":\"set\"}", "bad_value", "values", "object");
    refused("{\"id\":1,\"op\":\"set\",\"values\":[1]}", "bad_value", "values", "object");
    refused("{\"id\":1,\"op\":\"set\",\"values\":{\"moe_top_k\":4},\"if_generation\":7}", "conflict", NULL,
            "the generation is 1, not 7");
    refused("{\"id\":1,\"op\":\"set\",\"values\":{\"moe_top_k\":4},\"if_generation\":0}", "bad_value", "if_generation",
            "generation");
    refused("{\"id\":1,\"op\":\"set\",\"values\":{\"moe_top_k\":4},\"wait\":\"long\"}", "bad_value", "wait", "applied");
    refused("{\"id\":1,\"op\":\"set\",\"values\":{\"moe_top_k\":4},\"timeout_ms\":-1}", "bad_value", "timeout_ms", "0..600000");
    refused("{\"id\":1,\"op\":\"get\",\"keys\":[\"moe_top_k\",\"nope\"]}", "unknown_key", "nope", "no such");
    refused("{\"id\":1,\"op\":\"get\",\"keys\":\"moe_top_k\"}", "bad_value", "keys", "array");
}

static void an_applied_answer_waits_for_the_engine(void **state)
{
    (void)state;
    struct moe_settings step;
    settings_box_begin(requests.box, &step); /* a token is being computed */
    const struct mc_json *r =
        ok("{\"id\":1,\"op\":\"set\",\"values\":{\"moe_top_k\":5},\"wait\":\"applied\",\"timeout_ms\":70}");
    assert_int_equal(outcome.deed, CONTROL_LATER);
    assert_int_equal(outcome.generation, 2);
    assert_int_equal(outcome.timeout_ms, 70);
    assert_true(mc_json_bool(mc_json_get(r, "applied")));
    r = mc_json_get(parse(&outcome.late), "result");
    assert_false(mc_json_bool(mc_json_get(r, "applied")));
    r = ok("{\"id\":1,\"op\":\"set\",\"values\":{\"moe_top_k\":4}}"); /* stored: at once, and says that it is not applied */
    assert_int_equal(outcome.deed, CONTROL_ANSWER);
    assert_false(mc_json_bool(mc_json_get(r, "applied")));
    settings_box_end(requests.box);
    r = ok("{\"id\":1,\"op\":\"set\",\"values\":{\"moe_top_k\":3},\"wait\":\"applied\"}");
    assert_int_equal(outcome.deed, CONTROL_ANSWER);
    assert_true(mc_json_bool(mc_json_get(r, "applied")));
}

static void rows_that_save_nothing_are_said(void **state)
{
    (void)state;
    settings_box_up_packed(requests.box, true, true);
    const struct mc_json *r = ok("{\"id\":1,\"op\":\"set\",\"values\":{\"swiglu_exps\":80}}");
    assert_text(mc_json_get(r, "note"),
                "rows of routed experts are left out, but none is skipped in memory: up is packed there; "
                "started with --swiglu-exps 128 they are");
    r = ok("{\"id\":1,\"op\":\"set\",\"values\":{\"swiglu_exps\":80,\"swiglu_shexp\":64}}");
    assert_non_null(mc_json_get(r, "note"));
    r = ok("{\"id\":1,\"op\":\"get\"}");
    assert_text(mc_json_get(r, "note"),
                "rows of experts are left out, but none is skipped in memory: up is packed there; started "
                "with --swiglu-exps 128 --swiglu-shexp 128 they are");
    r = ok("{\"id\":1,\"op\":\"set\",\"values\":{\"profile\":\"top5\"}}");
    assert_null(mc_json_get(r, "note"));
    settings_box_up_packed(requests.box, false, true);
    r = ok("{\"id\":1,\"op\":\"set\",\"values\":{\"swiglu_exps\":80}}");
    assert_null(mc_json_get(r, "note"));
}

static void other_requests(void **state)
{
    (void)state;
    assert_int_equal(mc_json_count(ok("{\"id\":1,\"op\":\"ping\"}")), 0);
    assert_int_equal(mc_json_int(mc_json_get(ok("{\"id\":1,\"op\":\"stats\"}"), "generated_tokens_total")), 17);
    ok("{\"id\":1,\"op\":\"hello\",\"protocol\":1}");
    refused("{\"id\":1,\"op\":\"hello\",\"protocol\":2}", "unsupported_protocol", "protocol", "protocol 1");
    assert_null(ask("{\"op\":\"ping\"}")); /* no id: no answer, */
    assert_null(ask("{\"op\":\"set\",\"values\":{\"moe_top_k\":4}}"));
    assert_int_equal(now().settings.top_k, 4);
    refused("{\"op\":\"set\",\"values\":{\"moe_top_k\":40}}", "bad_value", "moe_top_k", "must be"); /* except of an error */
    ok("{\"id\":1,\"op\":\"watch\",\"topics\":[\"settings\",\"stats\"],\"interval_ms\":100,\"more\":{}}");
    assert_int_equal(outcome.deed, CONTROL_WATCH);
    assert_int_equal(outcome.topics, CONTROL_WATCH_SETTINGS | CONTROL_WATCH_STATS);
    assert_int_equal(outcome.interval_ms, 100);
    ok("{\"id\":1,\"op\":\"unwatch\"}");
    assert_int_equal(outcome.topics, 0);
    refused("{\"id\":1,\"op\":\"watch\",\"topics\":[\"weather\"]}", "bad_value", "topics", "stats");
    refused("{\"id\":1,\"op\":\"watch\",\"interval_ms\":99}", "bad_value", "interval_ms", "100..60000");
    ok("{\"id\":1,\"op\":\"stop\"}");
    assert_int_equal(outcome.deed, CONTROL_STOP);
    ok("{\"id\":1,\"op\":\"stop\",\"mode\":\"now\"}");
    assert_int_equal(outcome.deed, CONTROL_STOP_NOW);
    refused("{\"id\":1,\"op\":\"stop\",\"mode\":\"soon\"}", "bad_value", "mode", "graceful");
    assert_int_equal(outcome.deed, CONTROL_ANSWER);
}

static void lines_that_are_no_requests(void **state)
{
    (void)state;
    char deep[100];
    memset(deep, '[', sizeof deep);
    deep[17] = '\0';
    refused(deep, "bad_json", NULL, "at most 16");
    refused("{\"id\":1,\"op\":\"set\",\"values\":{\"a\":[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]}}", "bad_json", NULL, "at most 16");
    refused("", "bad_json", NULL, "JSON");
    refused("{", "bad_json", NULL, "JSON");
    refused("GET / HTTP/1.1", "bad_json", NULL, "JSON");
    refused("[1]", "bad_json", NULL, "object");
    refused("{\"id\":1,\"op\":\"set\",\"values\":{\"moe_top_k\":4}} {}", "bad_json", NULL, "JSON");
    refused("{\"id\":1,\"op\":\"\xff\"}", "bad_json", NULL, "JSON");
    refused("{\"id\":1}", "unknown_op", NULL, "no such op");
    refused("{\"id\":1,\"op\":7}", "unknown_op", NULL, "no such op");
    refused("{\"id\":1,\"op\":\"se\"}", "unknown_op", NULL, "no such op");
    refused("{\"id\":1,\"op\":\"get\\u0000\"}", "unknown_op", NULL, "no such op");
    refused("{\"id\":1.5,\"op\":\"get\"}", "bad_value", "id", "integer or a string");
    refused("{\"id\":null,\"op\":\"get\"}", "bad_value", "id", "integer or a string");
}

static void events(void **state)
{
    (void)state;
    struct json_out j;
    struct moe_settings before = now().settings;
    ok("{\"id\":1,\"op\":\"set\",\"values\":{\"swiglu_exps\":80}}");
    const struct settings_state after = now();
    control_settings_event(&before, &after, 3, &j);
    const struct mc_json *e = parse(&j);
    assert_text(mc_json_get(e, "event"), "settings");
    assert_int_equal(mc_json_int(mc_json_get(e, "dropped")), 3);
    assert_int_equal(mc_json_count(mc_json_get(e, "changed")), 1);
    assert_int_equal(mc_json_int(mc_json_get(mc_json_get(e, "changed"), "swiglu_exps")), 80);
    assert_text(mc_json_get(e, "source"), "socket");
    assert_true(mc_json_int(mc_json_get(e, "time_ms")) > INT64_C(1600000000000));
    json_out_deinit(&j);
    control_stats_event(&requests, 0, &j);
    e = parse(&j);
    assert_null(mc_json_get(e, "dropped"));
    assert_int_equal(mc_json_int(mc_json_get(mc_json_get(e, "stats"), "generated_tokens_total")), 17);
    json_out_deinit(&j);
    control_hello(&requests, 4711, &j);
    e = parse(&j);
    assert_text(mc_json_get(e, "event"), "hello");
    assert_int_equal(mc_json_int(mc_json_get(e, "pid")), 4711);
    assert_int_equal(mc_json_int(mc_json_get(e, "protocol")), 1);
    json_out_deinit(&j);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(what_is_set_can_be_got),
        TEST(nothing_is_changed_by_half),
        TEST(an_applied_answer_waits_for_the_engine),
        TEST(rows_that_save_nothing_are_said),
        TEST(other_requests),
        TEST(lines_that_are_no_requests),
        TEST(events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
