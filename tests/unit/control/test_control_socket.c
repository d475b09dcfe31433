/* The control socket over real connections, while a thread computes tokens: answers, events, waits, hostile callers by the
 * thousand, and a door that is open to the next one all the same. */
#include "platform/base/json.h"
#include "platform/os.h"
#include "runtime/control/control_socket.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifdef _WIN32
#define PATH "\\\\.\\pipe\\modchip-test-control"
#else
#define PATH "test_control.sock"
#endif

enum { LINE_CAP = 1 << 16 };

static const struct settings_limits flash = {43, 3, 6};
static struct settings_box *box;
static struct control_socket *door;
static _Atomic uint32_t stops, finish;
static _Atomic uint64_t tokens, mixtures;

static void write_stats(void *user, struct json_out *j)
{
    (void)user;
    json_out_uint(j, "generated_tokens_total", atomic_load(&tokens));
}

static void stop(void *user, bool at_once)
{
    (void)user;
    atomic_fetch_add(&stops, at_once ? 100 : 1);
}

/* The engine: one copy of the settings a token, of which every layer must see the same. */
static void compute(void *arg)
{
    (void)arg;
    while (!atomic_load(&finish)) {
        struct moe_settings s;
        settings_box_begin(box, &s);
        if (s.top_k != s.inner_k || s.rows_exps != s.rows_shexp) atomic_fetch_add(&mixtures, 1);
        os_sleep_ms(1);
        settings_box_end(box);
        atomic_fetch_add(&tokens, 1);
    }
}

static int set_up(void **state)
{
    (void)state;
    struct mc_err err = {0};
    const struct control_socket_options opt = {
        .path = PATH, .pid = 4711, .host = {.server = "modchip test", .model = "m", .stats = write_stats, .stop = stop}};
    struct control_socket_options with_box = opt;
    atomic_store(&stops, 0);
    atomic_store(&finish, 0);
    if (settings_box_create(&flash, &box, &err)) return 1;
    with_box.box = box;
    if (!control_socket_start(&with_box, &door, &err)) return 0;
    printf("%s\n", err.msg);
    return 1;
}

static int tear_down(void **state)
{
    (void)state;
    control_socket_stop(door);
    settings_box_destroy(box);
    return 0;
}

/* ---- a caller --------------------------------------------------------------------------------------------------------- */

struct caller {
    struct os_conn *conn;
    char in[LINE_CAP];
    size_t n;
    struct mc_json *last;
};

static void give(struct os_conn *c, const char *data, size_t size)
{
    for (int idle = 0; size && idle < 500;) {
        const int64_t put = os_conn_write(c, data, size);
        if (put < 0) return; /* it has been closed */
        data += put;
        size -= (size_t)put;
        if (put) continue;
        idle++;
        os_conn_wait(NULL, &(struct os_conn_wish){c, false, true}, 1, 20);
    }
}

static void say(struct caller *c, const char *line)
{
    give(c->conn, line, strlen(line));
    give(c->conn, "\n", 1);
}

/* The next line, parsed; NULL: the connection has ended or nothing came for some seconds. */
static const struct mc_json *hear(struct caller *c)
{
    struct mc_err err = {0};
    mc_json_destroy(c->last);
    c->last = NULL;
    for (int idle = 0; idle < 500;) {
        char *const end = memchr(c->in, '\n', c->n);
        if (end) {
            const size_t n = (size_t)(end - c->in);
            if (mc_json_parse((struct mc_span){(const uint8_t *)c->in, n}, &c->last, &err))
                fail_msg("%s: %.*s", err.msg, (int)n, c->in);
            c->n -= n + 1;
            memmove(c->in, end + 1, c->n);
            return c->last;
        }
        const int64_t got = os_conn_read(c->conn, c->in + c->n, sizeof c->in - c->n);
        if (got < 0) return NULL;
        c->n += (size_t)got;
        if (got) continue;
        idle++;
        os_conn_wait(NULL, &(struct os_conn_wish){c->conn, true, false}, 1, 20);
    }
    return NULL;
}

static bool is(const struct mc_json *v, const char *key, const char *want)
{
    const struct mc_span got = mc_json_string(mc_json_get(v, key));
    return got.size == strlen(want) && !memcmp(got.data, want, got.size);
}

/* A caller that was greeted. */
static struct caller *arrive(void)
{
    struct caller *c = calloc(1, sizeof *c);
    struct mc_err err = {0};
    if (os_conn_open(PATH, &c->conn, &err)) fail_msg("%s", err.msg);
    assert_true(is(hear(c), "event", "hello"));
    assert_int_equal(mc_json_int(mc_json_get(c->last, "pid")), 4711);
    return c;
}

static void leave(struct caller *c)
{
    os_conn_close(c->conn);
    mc_json_destroy(c->last);
    free(c);
}

static const struct mc_json *result(struct caller *c)
{
    const struct mc_json *a = hear(c);
    assert_non_null(a);
    assert_true(mc_json_bool(mc_json_get(a, "ok")));
    return mc_json_get(a, "result");
}

/* ---- tests ------------------------------------------------------------------------------------------------------------ */

static void requests_are_answered_in_order(void **state)
{
    (void)state;
    struct caller *c = arrive();
    for (int i = 0; i < 30; i++) { /* more than a turn handles */
        char line[200];
        snprintf(line, sizeof line, "{\"id\":%d,\"op\":\"set\",\"values\":{\"moe_top_k\":%d}}%s", i, 1 + i % 6,
                 i % 2 ? "\r" : "");
        say(c, line);
    }
    for (int i = 0; i < 30; i++) {
        result(c);
        assert_int_equal(mc_json_int(mc_json_get(c->last, "id")), i);
    }
    say(c, "{\"id\":\"g\",\"op\":\"get\"}");
    assert_int_equal(mc_json_int(mc_json_get(mc_json_get(result(c), "settings"), "moe_top_k")), 6);
    say(c, "garbage"); /* the connection stays */
    assert_false(mc_json_bool(mc_json_get(hear(c), "ok")));
    give(c->conn, "{\"id\":1,", 8); /* a line in two parts */
    os_sleep_ms(20);
    say(c, "\"op\":\"ping\"}");
    result(c);
    say(c, "{\"id\":1,\"op\":\"stop\"}");
    result(c);
    say(c, "{\"id\":1,\"op\":\"stop\",\"mode\":\"now\"}");
    result(c);
    for (int i = 0; i < 500 && atomic_load(&stops) != 101; i++) os_sleep_ms(10);
    assert_int_equal(atomic_load(&stops), 101);
    leave(c);
}

static void an_answer_comes_once_the_engine_took_it(void **state)
{
    (void)state;
    struct moe_settings step;
    struct caller *c = arrive();
    settings_box_begin(box, &step);
    say(c, "{\"id\":1,\"op\":\"set\",\"values\":{\"moe_top_k\":5},\"wait\":\"applied\",\"timeout_ms\":30}");
    assert_false(mc_json_bool(mc_json_get(result(c), "applied"))); /* the token takes longer */
    say(c, "{\"id\":2,\"op\":\"set\",\"values\":{\"moe_top_k\":4},\"wait\":\"applied\"}");
    say(c, "{\"id\":3,\"op\":\"ping\"}");
    result(c);
    assert_int_equal(mc_json_int(mc_json_get(c->last, "id")), 3); /* does not wait for the other one */
    settings_box_end(box);
    settings_box_begin(box, &step);
    assert_int_equal(step.top_k, 4);
    assert_true(mc_json_bool(mc_json_get(result(c), "applied")));
    settings_box_end(box);
    leave(c);
}

static void who_watches_is_told(void **state)
{
    (void)state;
    struct caller *c = arrive(), *d = arrive();
    say(c, "{\"id\":1,\"op\":\"watch\",\"topics\":[\"settings\"]}");
    result(c);
    struct moe_settings s = settings_lossless(&flash);
    s.rows_exps = 80;
    (void)settings_box_set(box, &s, SETTINGS_FILE, 0);
    assert_true(is(hear(c), "event", "settings"));
    assert_true(is(c->last, "source", "file"));
    assert_int_equal(mc_json_int(mc_json_get(mc_json_get(c->last, "changed"), "swiglu_exps")), 80);
    say(d, "{\"id\":1,\"op\":\"set\",\"values\":{\"swiglu_exps\":0}}");
    result(d);
    assert_true(is(hear(c), "event", "settings"));
    assert_true(is(c->last, "source", "socket"));
    say(c, "{\"id\":1,\"op\":\"watch\",\"topics\":[\"stats\"],\"interval_ms\":100}");
    result(c);
    for (int i = 0; i < 3; i++) assert_true(is(hear(c), "event", "stats"));
    say(c, "{\"id\":9,\"op\":\"unwatch\"}");
    do assert_non_null(hear(c));
    while (mc_json_int(mc_json_get(c->last, "id")) != 9);
    leave(c);
    leave(d);
}

static void one_too_many_is_told_so(void **state)
{
    (void)state;
    struct caller *all[CONTROL_CONNS_MAX], *more = calloc(1, sizeof *more);
    struct mc_err err = {0};
    for (int i = 0; i < CONTROL_CONNS_MAX; i++) {
        all[i] = arrive();
        say(all[i], "{\"id\":1,\"op\":\"ping\"}");
        result(all[i]);
    }
    if (os_conn_open(PATH, &more->conn, &err)) fail_msg("%s", err.msg);
    assert_true(is(mc_json_get(hear(more), "error"), "code", "busy"));
    assert_null(hear(more));
    leave(more);
    for (int i = 0; i < CONTROL_CONNS_MAX; i++) leave(all[i]);
    bool greeted = false;
    for (int tries = 0; tries < 500 && !greeted; tries++) { /* their places are free once it has seen them go */
        struct caller *c = calloc(1, sizeof *c);
        if (os_conn_open(PATH, &c->conn, &err)) fail_msg("%s", err.msg);
        greeted = is(hear(c), "event", "hello");
        leave(c);
        os_sleep_ms(10);
    }
    assert_true(greeted);
}

static void a_line_that_is_too_long_ends_the_connection(void **state)
{
    (void)state;
    struct caller *c = arrive();
    char *line = malloc(CONTROL_LINE_MAX + 1);
    memset(line, ' ', CONTROL_LINE_MAX);
    const char ping[] = "{\"id\":1,\"op\":\"ping\"}";
    memcpy(line, ping, sizeof ping - 1);
    give(c->conn, line, CONTROL_LINE_MAX); /* the longest there is, */
    give(c->conn, "\n", 1);
    result(c);
    give(c->conn, line, CONTROL_LINE_MAX); /* and one byte more */
    give(c->conn, " ", 1);
    assert_true(is(mc_json_get(hear(c), "error"), "code", "too_long"));
    assert_null(hear(c));
    leave(c);
    free(line);
}

/* ---- hostile callers -------------------------------------------------------------------------------------------------- */

static uint32_t random_state = 1;

static uint32_t random_number(uint32_t below)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % below;
}

static void give_text(struct os_conn *c, const char *text)
{
    give(c, text, strlen(text));
}

static void misbehave(struct os_conn *c, unsigned how, const char *big)
{
    char junk[300];
    for (size_t i = 0; i < sizeof junk; i++) junk[i] = (char)random_number(256);
    switch (how) {
    case 0: /* connects and vanishes */
        break;
    case 1: /* garbage */
        give(c, junk, sizeof junk);
        break;
    case 2: /* half a line */
        give_text(c, "{\"id\":1,\"op\":\"set\",\"values\":{\"moe_top_k\":1");
        break;
    case 3: /* a line of a megabyte, as far as it is taken */
        for (size_t at = 0; at < 1 << 20;) {
            const int64_t n = os_conn_write(c, big + at, (1 << 20) - at);
            if (n < 0) break;
            at += (size_t)n;
            if (!n) os_sleep_ms(1);
        }
        break;
    case 4: /* asks and asks and never reads */
        for (int i = 0; i < 2000; i++)
            if (os_conn_write(c, "{\"id\":1,\"op\":\"describe\"}\n", 25) <= 0) break;
        break;
    case 5: /* wants what is not there */
        give_text(c, "{\"id\":1,\"op\":\"set\",\"values\":{\"moe_top_k\":1,\"nope\":1}}\n\n\n\n{\"op\":\"cancel\"}\n[[[[\n");
        break;
    default: /* many empty lines */
        memset(junk, '\n', sizeof junk);
        give(c, junk, sizeof junk);
    }
}

static void a_thousand_hostile_callers_change_nothing(void **state)
{
    (void)state;
    enum { CALLERS = 1000, HELD = 12 };
    struct os_conn *held[HELD] = {0};
    struct os_thread *engine;
    struct mc_err err = {0};
    struct settings_state before, after;
    char *big = malloc(1 << 20);
    memset(big, 'x', 1 << 20);
    settings_box_get(box, &before);
    assert_int_equal(os_thread_start(compute, NULL, "engine", &engine, &err), MC_OK);
    unsigned reached = 0;
    for (unsigned i = 0; i < CALLERS; i++) {
        struct os_conn *c;
        if (os_conn_open(PATH, &c, &err)) continue; /* a full queue of callers */
        reached++;
        misbehave(c, random_number(7), big);
        const unsigned place = random_number(HELD * 2);
        if (place < HELD) { /* some stay and say nothing more */
            os_conn_close(held[place]);
            held[place] = c;
        } else {
            os_conn_close(c);
        }
    }
    assert_true(reached > CALLERS / 2);
    struct caller *c = NULL;
    for (int tries = 0; tries < 100 && !c; tries++) { /* an honest one gets in, perhaps after a while */
        struct caller *t = calloc(1, sizeof *t);
        if (!os_conn_open(PATH, &t->conn, &err) && is(hear(t), "event", "hello"))
            c = t;
        else
            leave(t);
        if (!c) os_sleep_ms(50);
    }
    assert_non_null(c);
    const uint64_t computed = atomic_load(&tokens);
    for (int i = 0; i < 500 && atomic_load(&tokens) == computed; i++) os_sleep_ms(10);
    assert_true(atomic_load(&tokens) > computed); /* and tokens go on */
    settings_box_get(box, &after);
    assert_int_equal(after.generation, before.generation);
    say(c, "{\"id\":1,\"op\":\"set\",\"values\":{\"moe_top_k\":3,\"moe_inner_k\":3},\"wait\":\"applied\"}");
    assert_true(mc_json_bool(mc_json_get(result(c), "applied")));
    leave(c);
    for (unsigned i = 0; i < HELD; i++) os_conn_close(held[i]);
    atomic_store(&finish, 1);
    os_thread_join(engine);
    assert_int_equal(atomic_load(&mixtures), 0);
    assert_true(control_socket_counts_get(door).turned_away > 0);
    free(big);
}

/* As fast as the door takes them, from several callers; every token has settings that belong together. */
static void changes_under_load(void **state)
{
    (void)state;
    struct os_thread *engine;
    struct mc_err err = {0};
    struct settings_state now;
    assert_int_equal(os_thread_start(compute, NULL, "engine", &engine, &err), MC_OK);
    struct caller *c[3];
    for (int k = 0; k < 3; k++) c[k] = arrive();
    for (int i = 0; i < 200; i++)
        for (int k = 0; k < 3; k++) {
            char line[200];
            snprintf(line, sizeof line,
                     "{\"id\":%d,\"op\":\"set\",\"values\":{\"moe_top_k\":%d,\"moe_inner_k\":%d,\"swiglu_exps\":%d,\"swiglu_"
                     "shexp\":%d}}",
                     i, 1 + k, 1 + k, 40 + k, 40 + k);
            say(c[k], line);
        }
    for (int i = 0; i < 200; i++)
        for (int k = 0; k < 3; k++) {
            result(c[k]);
            assert_int_equal(mc_json_int(mc_json_get(c[k]->last, "id")), i);
        }
    settings_box_get(box, &now);
    assert_int_equal(now.generation, 601);
    for (int k = 0; k < 3; k++) leave(c[k]);
    atomic_store(&finish, 1);
    os_thread_join(engine);
    assert_int_equal(atomic_load(&mixtures), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(requests_are_answered_in_order),
        TEST(an_answer_comes_once_the_engine_took_it),
        TEST(who_watches_is_told),
        TEST(one_too_many_is_told_so),
        TEST(a_line_that_is_too_long_ends_the_connection),
        TEST(a_thousand_hostile_callers_change_nothing),
        TEST(changes_under_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
