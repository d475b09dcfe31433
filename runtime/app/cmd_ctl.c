/* cmd_ctl.c - `modchip ctl`: asks or tells a running program through its control socket.
 *
 * The result of the answer goes to stdout as one line of JSON, events of watch as one line each. Without --control the only
 * program of this user that answers is taken. */
#include "platform/base/json.h"
#include "platform/os.h"
#include "runtime/app/commands.h"
#include "runtime/app/json_out.h"
#include "runtime/app/model.h"
#include "runtime/app/options.h"
#include "runtime/control/control_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_CAP = 1 << 20, ANSWER_MS = 15000, HELLO_MS = 3000, LOOK_MS = 100, FOUND_MAX = 64, WAIT_MS = 2000 };

struct line_reader {
    struct os_conn *conn;
    char *in; /* [LINE_CAP] */
    size_t n, used;
    struct mc_json *json; /* the last line */
};

static void close_reader(struct line_reader *r)
{
    os_conn_close(r->conn);
    mc_json_destroy(r->json);
    free(r->in);
    memset(r, 0, sizeof *r);
}

/* The next line, parsed into r->json; *ended: the other side has closed. timeout_ms < 0: none. */
static enum mc_code read_line(struct line_reader *r, int timeout_ms, bool *ended, struct mc_err *err)
{
    const uint64_t begin = os_clock_ns();
    *ended = false;
    mc_json_destroy(r->json);
    r->json = NULL;
    memmove(r->in, r->in + r->used, r->n - r->used);
    r->n -= r->used;
    r->used = 0;
    for (;;) {
        const char *const end = memchr(r->in, '\n', r->n);
        if (end) {
            r->used = (size_t)(end - r->in) + 1;
            return mc_json_parse((struct mc_span){(const uint8_t *)r->in, r->used - 1}, &r->json, err);
        }
        if (r->n == LINE_CAP) return mc_fail(err, MC_EFORMAT, 0, "the running program sends lines without an end");
        const int64_t got = os_conn_read(r->conn, r->in + r->n, LINE_CAP - r->n);
        if (got < 0) {
            *ended = true;
            return MC_OK;
        }
        r->n += (size_t)got;
        if (got) continue;
        enum mc_code code = check_interrupt(err);
        if (code) return code;
        if (timeout_ms >= 0 && os_clock_ns() - begin > (uint64_t)timeout_ms * 1000000)
            return mc_fail(err, MC_EIO, 0, "the running program does not answer");
        os_conn_wait(NULL, &(struct os_conn_wish){r->conn, true, false}, 1, LOOK_MS);
    }
}

/* Connects and hears the greeting. */
static enum mc_code call(const char *path, struct line_reader *r, struct mc_err *err)
{
    bool ended = false;
    memset(r, 0, sizeof *r);
    enum mc_code code = os_conn_open(path, &r->conn, err);
    if (!code && !(r->in = malloc(LINE_CAP))) code = mc_fail(err, MC_ENOMEM, 0, "no memory for a line");
    if (!code) code = read_line(r, HELLO_MS, &ended, err);
    if (!code && ended) code = mc_fail(err, MC_EIO, 0, "%s: the program there says nothing", path);
    const struct mc_json *const failed = code ? NULL : mc_json_get(r->json, "error");
    const struct mc_span why = mc_json_string(mc_json_get(failed, "message"));
    if (failed) code = mc_fail(err, MC_EBUSY, 0, "%s: %.*s", path, (int)why.size, (const char *)why.data);
    if (!code && mc_json_int(mc_json_get(r->json, "protocol_min")) > CONTROL_PROTOCOL)
        code = mc_fail(err, MC_EUNSUPPORTED, 0, "%s: the program there speaks a newer protocol; use its own modchip ctl", path);
    if (code) close_reader(r);
    return code;
}

/* ---- whom --------------------------------------------------------------------------------------------------------------- */

struct found {
    char *path[FOUND_MAX];
    size_t n;
};

static void keep_path(void *user, const char *path)
{
    struct found *const f = user;
    if (f->n == FOUND_MAX) return;
    f->path[f->n] = malloc(strlen(path) + 1);
    if (f->path[f->n]) memcpy(f->path[f->n++], path, strlen(path) + 1);
}

/* The only one that answers. */
static enum mc_code find_one(struct line_reader *r, struct mc_err *err)
{
    struct found f = {.n = 0};
    struct line_reader got;
    struct mc_err ignored;
    size_t answers = 0;
    os_listener_each(keep_path, &f);
    memset(r, 0, sizeof *r);
    for (size_t i = 0; i < f.n; i++) {
        if (call(f.path[i], &got, &ignored)) continue;
        const struct mc_span model = mc_json_string(mc_json_get(got.json, "model"));
        if (answers++ == 0) {
            *r = got;
            continue;
        }
        if (answers == 2) {
            const struct mc_span first = mc_json_string(mc_json_get(r->json, "model"));
            fprintf(stderr, "modchip: pid %lld, %.*s\n", (long long)mc_json_int(mc_json_get(r->json, "pid")), (int)first.size,
                    (const char *)first.data);
        }
        fprintf(stderr, "modchip: pid %lld, %.*s: --control %s\n", (long long)mc_json_int(mc_json_get(got.json, "pid")),
                (int)model.size, (const char *)model.data, f.path[i]);
        close_reader(&got);
    }
    for (size_t i = 0; i < f.n; i++) free(f.path[i]);
    if (answers == 1) return MC_OK;
    if (answers > 1) close_reader(r);
    return answers ? mc_fail(err, MC_EARG, 0, "%zu programs are running; choose one with --control PATH", answers)
                   : mc_fail(err, MC_EIO, 0, "no running modchip answers (run and chat do, unless --control off)");
}

/* ---- what ------------------------------------------------------------------------------------------------------------- */

/* key=value: JSON as it is; FIRST:END and rho=R as on the command line; else a string. */
static enum mc_code put_value(struct json_out *j, const char *arg, struct mc_err *err)
{
    char key[64];
    const char *const eq = strchr(arg, '=');
    const size_t n = eq ? (size_t)(eq - arg) : 0;
    if (!n || n >= sizeof key || !eq[1]) return mc_fail(err, MC_EARG, 0, "ctl set takes key=value, not '%.60s'", arg);
    memcpy(key, arg, n);
    key[n] = '\0';
    const char *const value = eq + 1;
    unsigned first, end;
    int used = 0;
    struct mc_json *json = NULL;
    struct json_out raw = {0};
    if (sscanf(value, "%9u:%9u%n", &first, &end, &used) == 2 && !value[used]) {
        json_out_array(j, key);
        json_out_uint(j, NULL, first);
        json_out_uint(j, NULL, end);
        json_out_array_end(j);
    } else if (!strncmp(value, "rho=", 4)) {
        char *rest;
        const double rho = strtod(value + 4, &rest);
        if (rest == value + 4 || *rest) return mc_fail(err, MC_EARG, 0, "'%.60s' is no number behind rho=", value + 4);
        json_out_object(j, key);
        json_out_num(j, "rho", rho);
        json_out_object_end(j);
    } else if (!mc_json_parse((struct mc_span){(const uint8_t *)value, strlen(value)}, &json, NULL)) {
        raw.text = (char *)(uintptr_t)value; /* spliced, not freed */
        raw.size = strlen(value);
        json_out_splice(j, key, &raw);
    } else {
        json_out_text(j, key, value);
    }
    mc_json_destroy(json);
    return MC_OK;
}

static void put_names(struct json_out *j, const char *member, const struct app_options *o)
{
    json_out_array(j, member);
    for (size_t i = 1; i < o->n_args; i++) json_out_text(j, NULL, o->args[i]);
    json_out_array_end(j);
}

/* The line that asks for it. */
static enum mc_code make_request(const struct app_options *o, struct json_out *j, struct mc_err *err)
{
    static const char *const plain[] = {"stats", "reset", "ping"};
    const char *const verb = o->args[0];
    enum mc_code code = MC_OK;
    json_out_init(j);
    json_out_object(j, NULL);
    json_out_int(j, "id", 1);
    json_out_text(j, "op", verb);
    if (!strcmp(verb, "set")) {
        if (o->n_args < 2) code = mc_fail(err, MC_EARG, 0, "ctl set takes key=value; modchip ctl describe lists the keys");
        json_out_object(j, "values");
        for (size_t i = 1; i < o->n_args && !code; i++) code = put_value(j, o->args[i], err);
        json_out_object_end(j);
        json_out_text(j, "wait", "applied");
        json_out_int(j, "timeout_ms", WAIT_MS);
    } else if (!strcmp(verb, "get") || !strcmp(verb, "describe")) {
        if (o->n_args > 1) put_names(j, "keys", o);
    } else if (!strcmp(verb, "watch")) {
        if (o->n_args > 1) put_names(j, "topics", o);
    } else if (!strcmp(verb, "stop")) {
        if (o->n_args > 2) code = mc_fail(err, MC_EARG, 0, "ctl stop takes at most one word: graceful or now");
        if (o->n_args == 2) json_out_text(j, "mode", o->args[1]);
    } else {
        size_t i = 0;
        while (i < ARRAY_LEN(plain) && strcmp(verb, plain[i]) != 0) i++;
        if (i == ARRAY_LEN(plain))
            code = mc_fail(err, MC_EARG, 0, "ctl: there is no '%.40s' (see modchip ctl --help)", verb);
        else if (o->n_args > 1)
            code = mc_fail(err, MC_EARG, 0, "ctl %s takes nothing further, not '%.60s'", verb, o->args[1]);
    }
    json_out_object_end(j);
    if (!code && j->failed) code = mc_fail(err, MC_ENOMEM, 0, "no memory for the request");
    if (!code && j->size > CONTROL_LINE_MAX)
        code = mc_fail(err, MC_EARG, 0, "the request is longer than %d bytes", CONTROL_LINE_MAX);
    return code;
}

static enum mc_code send_request(struct line_reader *r, const struct json_out *j, struct mc_err *err)
{
    const uint64_t begin = os_clock_ns();
    for (size_t at = 0; at <= j->size;) {
        const bool end = at == j->size;
        const int64_t n = os_conn_write(r->conn, end ? "\n" : j->text + at, end ? 1 : j->size - at);
        if (n < 0) return mc_fail(err, MC_EIO, 0, "the running program has ended the connection");
        at += (size_t)n;
        if (n) continue;
        if (os_clock_ns() - begin > (uint64_t)ANSWER_MS * 1000000)
            return mc_fail(err, MC_EIO, 0, "the running program does not answer");
        os_conn_wait(NULL, &(struct os_conn_wish){r->conn, false, true}, 1, LOOK_MS);
    }
    return MC_OK;
}

/* ---- the answer ------------------------------------------------------------------------------------------------------- */

/* A parsed value as it came; at most as deep as the parser goes. */
static void put_json(struct json_out *j, const char *key, const struct mc_json *v)
{
    struct mc_span name;
    const struct mc_json *member;
    char text[256];
    switch (mc_json_type(v)) {
    case MC_JSON_NULL:
        json_out_null(j, key);
        break;
    case MC_JSON_BOOL:
        json_out_bool(j, key, mc_json_bool(v));
        break;
    case MC_JSON_INT:
        json_out_int(j, key, mc_json_int(v));
        break;
    case MC_JSON_REAL:
        json_out_num(j, key, mc_json_number(v));
        break;
    case MC_JSON_STRING:
        json_out_bytes(j, key, mc_json_string(v).data, mc_json_string(v).size);
        break;
    case MC_JSON_ARRAY:
        json_out_array(j, key);
        for (size_t i = 0; i < mc_json_count(v); i++) put_json(j, NULL, mc_json_item(v, i));
        json_out_array_end(j);
        break;
    case MC_JSON_OBJECT:
        json_out_object(j, key);
        for (void *it = NULL; mc_json_next(v, &it, &name, &member);) {
            snprintf(text, sizeof text, "%.*s", (int)(name.size < 255 ? name.size : 255), (const char *)name.data);
            put_json(j, text, member);
        }
        json_out_object_end(j);
        break;
    }
}

static enum mc_code print_json(const struct mc_json *v, struct mc_err *err)
{
    struct json_out j;
    json_out_init(&j);
    put_json(&j, NULL, v);
    return json_out_finish(&j, err);
}

/* The answer to the request, past events. */
static enum mc_code read_answer(struct line_reader *r, struct mc_err *err)
{
    bool ended;
    for (;;) {
        const enum mc_code code = read_line(r, ANSWER_MS, &ended, err);
        if (code) return code;
        if (ended) return mc_fail(err, MC_EIO, 0, "the running program has ended the connection without an answer");
        if (mc_json_get(r->json, "ok")) break;
    }
    if (mc_json_bool(mc_json_get(r->json, "ok"))) return MC_OK;
    const struct mc_json *const e = mc_json_get(r->json, "error");
    const struct mc_span key = mc_json_string(mc_json_get(e, "key")), text = mc_json_string(mc_json_get(e, "message"));
    return mc_fail(err, MC_EARG, 0, "%.*s%s%.*s", (int)key.size, (const char *)key.data, key.size ? " " : "", (int)text.size,
                   (const char *)text.data);
}

static enum mc_code print_events(struct line_reader *r, struct mc_err *err)
{
    bool ended = false;
    for (;;) {
        enum mc_code code = read_line(r, -1, &ended, err);
        if (code || ended) return code;
        if (mc_json_get(r->json, "event")) code = print_json(r->json, err);
        if (code) return code;
    }
}

enum mc_code cmd_ctl(const struct app_options *o, struct mc_err *err)
{
    const char *const path = opt_text(o, OPT_CONTROL);
    struct json_out request;
    struct line_reader r = {0};
    if (!o->n_args)
        return mc_fail(err, MC_EARG, 0, "ctl needs a verb: get, set, stats, watch or stop (see modchip ctl --help)");
    if (path && !strcmp(path, "off")) return mc_fail(err, MC_EARG, 0, "--control off: there is nobody to talk to");
    enum mc_code code = make_request(o, &request, err);
    if (!code) code = path ? call(path, &r, err) : find_one(&r, err);
    if (!code) code = send_request(&r, &request, err);
    if (!code) code = read_answer(&r, err);
    if (!code) code = strcmp(o->args[0], "watch") ? print_json(mc_json_get(r.json, "result"), err) : print_events(&r, err);
    json_out_deinit(&request);
    close_reader(&r);
    return code;
}
