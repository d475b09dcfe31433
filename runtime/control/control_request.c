/* control_request.c - see control_request.h. Operations are rows of a table; a new one is a function and a row. */
#include "runtime/control/control_request.h"

#include "platform/base/json.h"
#include "platform/os.h"
#include "runtime/control/settings_json.h"

#include <stdio.h>
#include <string.h>

enum { ID_MAX = 256, WAIT_DEFAULT_MS = 5000, WAIT_MAX_MS = 600000, INTERVAL_MIN_MS = 100, INTERVAL_MAX_MS = 60000 };

struct request {
    const struct control_requests *r;
    const struct mc_json *args, *id;
    struct control_outcome *out;
    unsigned topics;
};

/* ---- answers ---------------------------------------------------------------------------------------------------------- */

static void put_id(struct json_out *j, const struct mc_json *id)
{
    const struct mc_span text = mc_json_string(id);
    if (mc_json_type(id) == MC_JSON_INT) json_out_int(j, "id", mc_json_int(id));
    if (mc_json_type(id) == MC_JSON_STRING) json_out_bytes(j, "id", text.data, text.size);
}

static void begin_result(const struct request *q, struct json_out *j)
{
    json_out_object(j, NULL);
    put_id(j, q->id);
    json_out_bool(j, "ok", true);
    json_out_object(j, "result");
}

static void end_result(struct json_out *j)
{
    json_out_object_end(j);
    json_out_object_end(j);
}

static void put_error(struct json_out *j, const struct mc_json *id, const char *code, const char *key, const char *message)
{
    json_out_object(j, NULL);
    put_id(j, id);
    json_out_bool(j, "ok", false);
    json_out_object(j, "error");
    json_out_text(j, "code", code);
    if (key) json_out_text(j, "key", key);
    json_out_text(j, "message", message);
    json_out_object_end(j);
    json_out_object_end(j);
}

static void refuse(const struct request *q, const char *code, const char *key, const char *message)
{
    q->out->refused = true;
    put_error(&q->out->answer, q->id, code, key, message);
}

static void put_changed(struct json_out *j, const struct moe_settings *a, const struct moe_settings *b)
{
    json_out_array(j, "changed");
    for (int key = 0; key < SETTINGS_KEYS; key++)
        if (!settings_key_equal((enum settings_key)key, a, b))
            json_out_text(j, NULL, settings_key_name((enum settings_key)key));
    json_out_array_end(j);
}

static bool is(struct mc_span a, const char *b)
{
    return a.size == strlen(b) && !memcmp(a.data, b, a.size);
}

/* ---- get, describe ---------------------------------------------------------------------------------------------------- */

static bool is_fact(const struct control_requests *r, struct mc_span key)
{
    for (const char *const *k = r->host.fact_keys; k && *k; k++)
        if (is(key, *k)) return true;
    return false;
}

/* Bits of the keys that "keys" lists, one above them for the facts; all without it. False: it was refused. */
static bool wanted_keys(const struct request *q, unsigned *wanted)
{
    const struct mc_json *const keys = mc_json_get(q->args, "keys");
    *wanted = keys ? 0 : ~0u;
    if (!keys) return true;
    if (mc_json_type(keys) != MC_JSON_ARRAY) {
        refuse(q, "bad_value", "keys", "must be an array of names");
        return false;
    }
    for (size_t i = 0; i < mc_json_count(keys); i++) {
        const struct mc_span name = mc_json_string(mc_json_item(keys, i));
        int key = 0;
        while (key < SETTINGS_KEYS && !is(name, settings_key_name((enum settings_key)key))) key++;
        if (key == SETTINGS_KEYS && !is_fact(q->r, name)) {
            char text[64];
            snprintf(text, sizeof text, "%.*s", (int)(name.size < 60 ? name.size : 60), (const char *)name.data);
            refuse(q, "unknown_key", text, "there is no such setting");
            return false;
        }
        *wanted |= 1u << key;
    }
    return true;
}

static void op_get(const struct request *q)
{
    const struct control_host *const host = &q->r->host;
    const struct settings_limits *const limits = settings_box_limits(q->r->box);
    struct json_out *const j = &q->out->answer;
    struct settings_state now;
    unsigned wanted;
    char text[200];
    if (!wanted_keys(q, &wanted)) return;
    settings_box_get(q->r->box, &now);
    begin_result(q, j);
    json_out_uint(j, "generation", now.generation);
    json_out_uint(j, "applied_generation", now.applied_generation);
    json_out_object(j, "settings");
    for (int key = 0; key < SETTINGS_KEYS; key++)
        if (wanted >> key & 1)
            settings_value_to_json((enum settings_key)key, &now.settings, j, settings_key_name((enum settings_key)key));
    if (host->facts && wanted >> SETTINGS_KEYS & 1) host->facts(host->user, j);
    json_out_object_end(j);
    json_out_object(j, "sources");
    for (int key = 0; key < SETTINGS_KEYS; key++)
        if (wanted >> key & 1)
            json_out_text(j, settings_key_name((enum settings_key)key), settings_source_name(now.sources[key]));
    json_out_object_end(j);
    json_out_bool(j, "lossy", settings_lossy(&now.settings, limits));
    json_out_text(j, "profile", settings_profile_of(&now.settings, limits));
    settings_describe(&now.settings, limits, text, sizeof text);
    json_out_text(j, "text", text);
    if (settings_box_note(q->r->box, &now.settings, text, sizeof text)) json_out_text(j, "note", text);
    if (host->cost) host->cost(host->user, &now.settings, j);
    end_result(j);
}

static void op_describe(const struct request *q)
{
    static const struct {
        const char *type, *range, *help;
    } rows[SETTINGS_KEYS] = {
        [SETTINGS_TOP_K] = {"int", "1..experts", "routed experts used outside the band of layers"},
        [SETTINGS_INNER_K] = {"int", "1..experts", "routed experts used inside the band"},
        [SETTINGS_MIN_WEIGHT] = {"number", "0..1.5", "experts that weigh less are dropped, never the heaviest; 0: off"},
        [SETTINGS_BAND] = {"[int, int]", "0..layers", "first layer of the band, and one past its last"},
        [SETTINGS_RESCALE] = {"choice", "none, l2, l1, {\"rho\": 0..1}", "how the weights of the kept experts grow"},
        [SETTINGS_ROWS_EXPS] = {"int", "0..128", "rows of up kept of each 128 in routed experts; 0: all"},
        [SETTINGS_ROWS_SHEXP] = {"int", "0..128", "rows of up kept of each 128 in the shared expert; 0: all"},
        [SETTINGS_SCOPE] = {"choice", "decode, all", "whether prompts obey too"},
    };
    const struct moe_settings plain = settings_lossless(settings_box_limits(q->r->box));
    struct json_out *const j = &q->out->answer;
    unsigned wanted;
    if (!wanted_keys(q, &wanted)) return;
    begin_result(q, j);
    for (int key = 0; key < SETTINGS_KEYS; key++) {
        if (!(wanted >> key & 1)) continue;
        json_out_object(j, settings_key_name((enum settings_key)key));
        json_out_text(j, "type", rows[key].type);
        json_out_text(j, "range", rows[key].range);
        settings_value_to_json((enum settings_key)key, &plain, j, "default");
        json_out_bool(j, "live", true);
        json_out_text(j, "help", rows[key].help);
        json_out_object_end(j);
    }
    for (const char *const *k = q->r->host.fact_keys; k && *k && wanted >> SETTINGS_KEYS & 1; k++) {
        json_out_object(j, *k);
        json_out_bool(j, "live", false);
        json_out_object_end(j);
    }
    end_result(j);
}

/* ---- set, reset ------------------------------------------------------------------------------------------------------- */

static void put_set_result(const struct request *q, struct json_out *j, uint32_t generation, bool applied,
                           const struct moe_settings *before, const struct moe_settings *s)
{
    char note[200];
    begin_result(q, j);
    json_out_uint(j, "generation", generation);
    json_out_bool(j, "applied", applied);
    put_changed(j, before, s);
    json_out_bool(j, "lossy", settings_lossy(s, settings_box_limits(q->r->box)));
    if (settings_box_note(q->r->box, s, note, sizeof note)) json_out_text(j, "note", note);
    end_result(j);
}

static void answer_change(const struct request *q, uint32_t generation, const struct moe_settings *before,
                          const struct moe_settings *s, bool wait)
{
    struct settings_state now;
    settings_box_get(q->r->box, &now);
    const bool applied = now.applied_generation >= generation;
    put_set_result(q, &q->out->answer, generation, applied || wait, before, s);
    if (applied || !wait) return;
    q->out->deed = CONTROL_LATER;
    q->out->generation = generation;
    put_set_result(q, &q->out->late, generation, false, before, s);
}

/* The numbers beside the values of a set. False: refused. */
static bool read_set_options(const struct request *q, bool *wait, uint32_t *if_generation)
{
    const struct mc_json *const w = mc_json_get(q->args, "wait"), *const g = mc_json_get(q->args, "if_generation"),
                                *const t = mc_json_get(q->args, "timeout_ms");
    *wait = w && is(mc_json_string(w), "applied");
    if (w && !*wait && !is(mc_json_string(w), "stored")) {
        refuse(q, "bad_value", "wait", "must be \"stored\" or \"applied\"");
        return false;
    }
    if (t && (mc_json_type(t) != MC_JSON_INT || mc_json_int(t) < 0 || mc_json_int(t) > WAIT_MAX_MS)) {
        refuse(q, "bad_value", "timeout_ms", "must be 0..600000");
        return false;
    }
    if (g && (mc_json_type(g) != MC_JSON_INT || mc_json_int(g) < 1 || mc_json_int(g) > UINT32_MAX)) {
        refuse(q, "bad_value", "if_generation", "must be a generation, as get tells it");
        return false;
    }
    q->out->timeout_ms = t ? (unsigned)mc_json_int(t) : WAIT_DEFAULT_MS;
    *if_generation = g ? (uint32_t)mc_json_int(g) : 0;
    return true;
}

static void op_set(const struct request *q)
{
    struct settings_state now;
    struct moe_settings s;
    struct settings_refusal why;
    uint32_t only_if, generation = 0;
    bool wait;
    if (!read_set_options(q, &wait, &only_if)) return;
    while (!generation) { /* again if somebody else's change came in between */
        settings_box_get(q->r->box, &now);
        s = now.settings;
        if (only_if && only_if != now.generation) {
            char text[80];
            snprintf(text, sizeof text, "the generation is %u, not %u", (unsigned)now.generation, (unsigned)only_if);
            refuse(q, "conflict", NULL, text);
            return;
        }
        if (!settings_from_json(mc_json_get(q->args, "values"), settings_box_limits(q->r->box), q->r->host.fact_keys, &s,
                                &why)) {
            refuse(q, why.code, why.key, why.text);
            return;
        }
        generation = settings_box_set(q->r->box, &s, SETTINGS_SOCKET, now.generation);
    }
    answer_change(q, generation, &now.settings, &s, wait);
}

static void op_reset(const struct request *q)
{
    struct settings_state now;
    settings_box_get(q->r->box, &now);
    const uint32_t generation = settings_box_set(q->r->box, &q->r->start, SETTINGS_SOCKET, 0);
    answer_change(q, generation, &now.settings, &q->r->start, false);
}

/* ---- the others ------------------------------------------------------------------------------------------------------- */

static void answer_empty(const struct request *q)
{
    begin_result(q, &q->out->answer);
    end_result(&q->out->answer);
}

static void op_hello(const struct request *q)
{
    const struct mc_json *const p = mc_json_get(q->args, "protocol");
    if (p && (mc_json_type(p) != MC_JSON_INT || mc_json_int(p) != CONTROL_PROTOCOL))
        refuse(q, "unsupported_protocol", "protocol", "this program speaks protocol 1");
    else
        answer_empty(q);
}

static void op_stats(const struct request *q)
{
    const struct control_host *const host = &q->r->host;
    begin_result(q, &q->out->answer);
    if (host->stats) host->stats(host->user, &q->out->answer);
    end_result(&q->out->answer);
}

static void answer_topics(const struct request *q)
{
    struct json_out *const j = &q->out->answer;
    begin_result(q, j);
    json_out_array(j, "watching");
    if (q->out->topics & CONTROL_WATCH_SETTINGS) json_out_text(j, NULL, "settings");
    if (q->out->topics & CONTROL_WATCH_STATS) json_out_text(j, NULL, "stats");
    json_out_array_end(j);
    end_result(j);
}

/* Bits of "topics"; `dflt` without it. False: refused. */
static bool read_topics(const struct request *q, unsigned dflt, unsigned *topics)
{
    const struct mc_json *const list = mc_json_get(q->args, "topics");
    *topics = list ? 0 : dflt;
    for (size_t i = 0; i < mc_json_count(list); i++) {
        const struct mc_span name = mc_json_string(mc_json_item(list, i));
        const unsigned bit = is(name, "settings") ? CONTROL_WATCH_SETTINGS : is(name, "stats") ? CONTROL_WATCH_STATS : 0;
        *topics |= bit;
        if (bit) continue;
        refuse(q, "bad_value", "topics", "must be an array of \"settings\", \"stats\"");
        return false;
    }
    return true;
}

static void op_watch(const struct request *q)
{
    const struct mc_json *const interval = mc_json_get(q->args, "interval_ms");
    const int64_t ms = interval ? mc_json_int(interval) : 1000;
    unsigned topics;
    if (!read_topics(q, CONTROL_WATCH_SETTINGS, &topics)) return;
    if (ms < INTERVAL_MIN_MS || ms > INTERVAL_MAX_MS) {
        refuse(q, "bad_value", "interval_ms", "must be 100..60000");
        return;
    }
    q->out->deed = CONTROL_WATCH;
    q->out->topics = q->topics | topics;
    q->out->interval_ms = (unsigned)ms;
    answer_topics(q);
}

static void op_unwatch(const struct request *q)
{
    unsigned topics;
    if (!read_topics(q, ~0u, &topics)) return;
    q->out->deed = CONTROL_WATCH;
    q->out->topics = q->topics & ~topics;
    answer_topics(q);
}

static void op_stop(const struct request *q)
{
    const struct mc_json *const mode = mc_json_get(q->args, "mode");
    const bool now = mode && is(mc_json_string(mode), "now");
    if (mode && !now && !is(mc_json_string(mode), "graceful")) {
        refuse(q, "bad_value", "mode", "must be \"graceful\" or \"now\"");
        return;
    }
    q->out->deed = now ? CONTROL_STOP_NOW : CONTROL_STOP;
    answer_empty(q);
}

static const struct {
    const char *name;
    void (*run)(const struct request *q);
} ops[] = {
    {"get", op_get},     {"set", op_set},   {"stats", op_stats},    {"watch", op_watch},       {"unwatch", op_unwatch},
    {"reset", op_reset}, {"stop", op_stop}, {"ping", answer_empty}, {"describe", op_describe}, {"hello", op_hello},
};

static bool id_is_fine(const struct mc_json *id)
{
    return !id || mc_json_type(id) == MC_JSON_INT || (mc_json_type(id) == MC_JSON_STRING && mc_json_string(id).size <= ID_MAX);
}

void control_outcome_deinit(struct control_outcome *out)
{
    json_out_deinit(&out->answer);
    json_out_deinit(&out->late);
}

void control_request(const struct control_requests *r, struct mc_span line, unsigned topics, struct control_outcome *out)
{
    struct mc_json *root = NULL;
    struct mc_err err = {.code = MC_OK};
    *out = (struct control_outcome){.deed = CONTROL_ANSWER};
    struct request q = {.r = r, .out = out, .topics = topics};
    enum mc_code code = mc_json_parse_flat(line, CONTROL_DEPTH_MAX, &root, &err);
    if (!code && mc_json_type(root) != MC_JSON_OBJECT) code = mc_fail(&err, MC_EFORMAT, 0, "a request is an object");
    if (code) {
        refuse(&q, code == MC_ENOMEM ? "no_memory" : "bad_json", NULL, err.msg);
    } else if (!id_is_fine(mc_json_get(root, "id"))) {
        refuse(&q, "bad_value", "id", "must be an integer or a string of at most 256 bytes");
    } else {
        const struct mc_span name = mc_json_string(mc_json_get(root, "op"));
        size_t i = 0;
        q.args = root;
        q.id = mc_json_get(root, "id");
        while (i < ARRAY_LEN(ops) && !is(name, ops[i].name)) i++;
        if (i < ARRAY_LEN(ops))
            ops[i].run(&q);
        else
            refuse(&q, "unknown_op", NULL, "there is no such op; the greeting lists the features");
    }
    if (!q.id && !out->refused) control_outcome_deinit(out); /* who gives no id wants to hear of errors only */
    mc_json_destroy(root);
}

/* ---- what is said without being asked --------------------------------------------------------------------------------- */

void control_hello(const struct control_requests *r, unsigned long pid, struct json_out *j)
{
    json_out_init(j);
    json_out_object(j, NULL);
    json_out_text(j, "event", "hello");
    json_out_int(j, "protocol", CONTROL_PROTOCOL);
    json_out_int(j, "protocol_min", CONTROL_PROTOCOL);
    json_out_text(j, "server", r->host.server);
    json_out_uint(j, "pid", pid);
    json_out_text(j, "model", r->host.model);
    json_out_array(j, "features");
    for (size_t i = 0; i < ARRAY_LEN(ops); i++) json_out_text(j, NULL, ops[i].name);
    json_out_array_end(j);
    json_out_object_end(j);
}

static void begin_event(struct json_out *j, const char *name, uint64_t dropped)
{
    json_out_init(j);
    json_out_object(j, NULL);
    json_out_text(j, "event", name);
    json_out_uint(j, "time_ms", os_date_ms());
    if (dropped) json_out_uint(j, "dropped", dropped);
}

void control_settings_event(const struct moe_settings *before, const struct settings_state *now, uint64_t dropped,
                            struct json_out *j)
{
    begin_event(j, "settings", dropped);
    json_out_uint(j, "generation", now->generation);
    json_out_object(j, "changed");
    for (int key = 0; key < SETTINGS_KEYS; key++)
        if (!settings_key_equal((enum settings_key)key, before, &now->settings))
            settings_value_to_json((enum settings_key)key, &now->settings, j, settings_key_name((enum settings_key)key));
    json_out_object_end(j);
    json_out_text(j, "source", settings_source_name(now->source));
    json_out_object_end(j);
}

void control_stats_event(const struct control_requests *r, uint64_t dropped, struct json_out *j)
{
    begin_event(j, "stats", dropped);
    json_out_object(j, "stats");
    if (r->host.stats) r->host.stats(r->host.user, j);
    json_out_object_end(j);
    json_out_object_end(j);
}

void control_error_line(const char *code, const char *message, struct json_out *j)
{
    json_out_init(j);
    put_error(j, NULL, code, NULL, message);
}
