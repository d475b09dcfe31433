/* talk_control.c - see talk_control.h. */
#include "runtime/app/talk_control.h"

#include "io/gguf/gguf.h"
#include "platform/base/log.h"
#include "platform/os.h"
#include "runtime/app/dials_store.h"
#include "runtime/app/options.h"
#include "runtime/control/control_file.h"
#include "runtime/control/control_socket.h"
#include "runtime/engine/engine.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Seconds that the rates look back, and places for them and some more. */
enum { RATE_SECONDS = 10, RATE_PLACES = 16, PATH_CAP = 4096 };

/* What was decoded in one second. Written by the thread that talks, read by the socket's (relaxed: figures, not facts). */
struct second {
    _Atomic uint64_t at, tokens, ns, bytes_saved;
};

struct talk_control {
    const struct app_options *o;
    struct engine *engine;
    uint64_t begin_ns;
    uint32_t n_ctx;
    struct control_file *file;     /* NULL: off */
    struct control_socket *socket; /* NULL: off */
    struct dials_store *store;     /* NULL: not asked for yet, or not to be had; the socket's thread only */
    bool store_asked;
    _Atomic uint64_t prompt_tokens, prompt_kept, generated, position;
    struct second seconds[RATE_PLACES];
    struct engine_counts before; /* at the last token; the thread that talks only */
};

/* ---- figures ---------------------------------------------------------------------------------------------------------- */

static void add(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static uint64_t get(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static void set(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter, n, memory_order_relaxed);
}

void talk_control_prompt(struct talk_control *c, uint64_t n_prompt, uint64_t n_kept, uint32_t position)
{
    add(&c->prompt_tokens, n_prompt);
    add(&c->prompt_kept, n_kept);
    set(&c->position, position);
    engine_counts_get(c->engine, &c->before);
}

void talk_control_token(struct talk_control *c, uint32_t position)
{
    struct engine_counts now;
    const uint64_t at = os_clock_ns() / UINT64_C(1000000000);
    struct second *const s = &c->seconds[at % RATE_PLACES];
    engine_counts_get(c->engine, &now);
    if (get(&s->at) != at) {
        set(&s->tokens, 0);
        set(&s->ns, 0);
        set(&s->bytes_saved, 0);
        set(&s->at, at);
    }
    add(&s->tokens, now.steps_decoded - c->before.steps_decoded);
    add(&s->ns, now.decode_ns - c->before.decode_ns);
    add(&s->bytes_saved, now.bytes_saved - c->before.bytes_saved);
    add(&c->generated, 1);
    set(&c->position, position);
    c->before = now;
}

/* Tokens a second and bytes a token over the last seconds; NaN: nothing was decoded in them. */
static void recent(const struct talk_control *c, double token_bytes, double *tok_s, double *bytes)
{
    const uint64_t now = os_clock_ns() / UINT64_C(1000000000);
    double tokens = 0, ns = 0, saved = 0;
    for (size_t i = 0; i < RATE_PLACES; i++) {
        const struct second *const s = &c->seconds[i];
        if (get(&s->at) + RATE_SECONDS < now || get(&s->at) > now) continue;
        tokens += (double)get(&s->tokens);
        ns += (double)get(&s->ns);
        saved += (double)get(&s->bytes_saved);
    }
    *tok_s = ns > 0 ? tokens / (ns * 1e-9) : (double)NAN;
    *bytes = tokens > 0 ? token_bytes - saved / tokens : (double)NAN;
}

static void write_moe(const struct talk_control *c, struct json_out *j)
{
    struct settings_box *const box = engine_settings(c->engine);
    struct settings_state now;
    struct engine_counts n;
    char note[200];
    settings_box_get(box, &now);
    engine_counts_get(c->engine, &n);
    json_out_uint(j, "moe_generation", now.generation);
    json_out_bool(j, "moe_lossy", settings_lossy(&now.settings, settings_box_limits(box)));
    json_out_uint(j, "moe_experts_used_total", n.experts_used);
    json_out_uint(j, "moe_experts_dropped_total", n.experts_dropped);
    json_out_uint(j, "swiglu_rows_computed_total", n.rows_computed);
    json_out_uint(j, "swiglu_rows_skipped_total", n.rows_skipped);
    json_out_uint(j, "moe_bytes_saved_total", n.bytes_saved);
    json_out_bool(j, "rows_skipped_in_memory_exps", engine_rows_saving(c->engine, 64, 0) > 0);
    json_out_bool(j, "rows_skipped_in_memory_shexp", engine_rows_saving(c->engine, 0, 64) > 0);
    if (settings_box_note(box, &now.settings, note, sizeof note)) json_out_text(j, "note", note);
}

static void write_control(const struct talk_control *c, struct json_out *j)
{
    if (c->file) {
        const struct control_file_counts n = control_file_counts_get(c->file);
        json_out_text(j, "moe_cfg_path", control_file_path(c->file));
        json_out_uint(j, "moe_cfg_reads_total", n.reads);
        json_out_uint(j, "moe_cfg_accepts_total", n.accepts);
        json_out_uint(j, "moe_cfg_rejects_total", n.rejects);
    }
    if (c->socket) {
        const struct control_socket_counts n = control_socket_counts_get(c->socket);
        json_out_uint(j, "control_connections_total", n.connections);
        json_out_uint(j, "control_peers_refused_total", n.peers_refused);
        json_out_uint(j, "control_peers_turned_away_total", n.turned_away);
    }
}

static void write_streaming(const struct talk_control *c, const struct engine_facts *f, struct json_out *j)
{
    struct engine_streaming s;
    engine_streaming_get(c->engine, &s);
    json_out_uint(j, "expert_hits_total", s.hits);
    json_out_uint(j, "expert_misses_total", s.misses);
    json_out_uint(j, "expert_bytes_read_total", s.bytes_read);
    json_out_num(j, "expert_wait_seconds_total", (double)s.stall_ns * 1e-9);
    json_out_num(j, "expert_disk_busy_seconds_total", (double)s.busy_ns * 1e-9);
    json_out_num(j, "expert_disk_gb_s_measured", f->expert_disk_gb_s);
    json_out_uint(j, "expert_guesses_total", s.guesses);
    json_out_uint(j, "expert_guesses_used_total", s.guesses_used);
    json_out_uint(j, "expert_foreseen_total", s.foreseen);
    json_out_uint(j, "expert_foreseen_right_total", s.foreseen_right);
    json_out_uint(j, "expert_cache_bytes", f->expert_cache_bytes);
}

static void write_stats(void *user, struct json_out *j)
{
    const struct talk_control *const c = user;
    struct engine_facts f;
    struct engine_counts n;
    double tok_s, bytes;
    engine_facts_get(c->engine, &f);
    engine_counts_get(c->engine, &n);
    const uint64_t token_bytes = f.token_bytes_layers + f.token_bytes_head;
    recent(c, (double)token_bytes, &tok_s, &bytes);
    json_out_object(j, "build_info");
    json_out_text(j, "version", MC_VERSION);
    json_out_text(j, "isa", f.isa);
    json_out_text(j, "model", gguf_path(engine_gguf(c->engine)));
    json_out_object_end(j);
    json_out_num(j, "uptime_seconds", (double)(os_clock_ns() - c->begin_ns) * 1e-9);
    json_out_num(j, "model_load_seconds", f.load_s);
    json_out_uint(j, "prompt_tokens_total", get(&c->prompt_tokens));
    json_out_uint(j, "prompt_tokens_cached_total", get(&c->prompt_kept));
    json_out_uint(j, "generated_tokens_total", get(&c->generated));
    json_out_num(j, "prefill_seconds_total", (double)n.append_ns * 1e-9);
    json_out_num(j, "decode_seconds_total", (double)n.decode_ns * 1e-9);
    json_out_num(j, "decode_tokens_per_second", tok_s);
    json_out_num(j, "weight_bytes_per_token", bytes);
    json_out_uint(j, "weight_bytes_per_token_lossless", token_bytes);
    json_out_uint(j, "weight_bytes_total", n.steps_decoded * token_bytes - n.bytes_saved);
    json_out_uint(j, "kv_tokens", get(&c->position));
    json_out_uint(j, "kv_capacity_tokens", c->n_ctx);
    if (f.streams) write_streaming(c, &f, j);
    json_out_uint(j, "resident_bytes", f.pages_1g_bytes + f.pages_2m_bytes + f.pages_thp_bytes + f.pages_normal_bytes);
    json_out_uint(j, "hugepage_bytes", f.pages_1g_bytes + f.pages_2m_bytes + f.pages_thp_bytes);
    write_moe(c, j);
    write_control(c, j);
}

/* ---- the rest of what the socket tells -------------------------------------------------------------------------------- */

static const char *const fact_keys[] = {"threads", "pin", "isa", "ctx", "kv", "layout", "log_level", NULL};

static void write_facts(void *user, struct json_out *j)
{
    const struct talk_control *const c = user;
    struct engine_facts f;
    engine_facts_get(c->engine, &f);
    json_out_uint(j, "threads", f.n_threads);
    json_out_text(j, "pin", opt_text(c->o, OPT_PIN));
    json_out_text(j, "isa", f.isa);
    json_out_uint(j, "ctx", c->n_ctx);
    json_out_text(j, "kv", opt_text(c->o, OPT_KV));
    json_out_text(j, "layout", opt_text(c->o, OPT_LAYOUT));
    json_out_text(j, "log_level", opt_text(c->o, OPT_LOG));
}

static void write_cost(void *user, const struct moe_settings *s, struct json_out *j)
{
    struct talk_control *const c = user;
    const struct gguf *const g = engine_gguf(c->engine);
    struct mc_err err;
    if (!c->store_asked && dials_store_open(g, &c->store, &err)) mc_log(MC_LOG_INFO, "control: dials %s", err.msg);
    c->store_asked = true;
    dials_store_cost(c->store, s, settings_box_limits(engine_settings(c->engine)), gguf_path(g), j);
}

/* As SIGTERM does, or two of them. */
static void stop(void *user, bool now)
{
    (void)user;
    os_terminate();
    if (now) os_terminate();
}

/* ---- open, close ------------------------------------------------------------------------------------------------------ */

static enum mc_code open_socket(struct talk_control *c, struct mc_err *err)
{
    const char *given = opt_text(c->o, OPT_CONTROL);
    char path[PATH_CAP];
    struct mc_err why;
    if (given && !strcmp(given, "off")) return MC_OK;
    enum mc_code code = given ? MC_OK : os_listener_path(path, sizeof path, &why);
    const struct control_socket_options so = {
        .path = given ? given : path,
        .pid = os_process_id(),
        .box = engine_settings(c->engine),
        .host = {.user = c,
                 .server = "modchip " MC_VERSION,
                 .model = gguf_path(engine_gguf(c->engine)),
                 .facts = write_facts,
                 .fact_keys = fact_keys,
                 .stats = write_stats,
                 .cost = write_cost,
                 .stop = stop},
    };
    if (!code) code = control_socket_start(&so, &c->socket, given ? err : &why);
    if (!code || given) return code;
    mc_log(MC_LOG_INFO, "control: no socket: %s", why.msg);
    return MC_OK;
}

enum mc_code talk_control_open(const struct app_options *o, struct engine *engine, const struct session *session,
                               struct talk_control **out, struct mc_err *err)
{
    const char *const file = opt_text(o, OPT_MOE_CFG);
    struct talk_control *const c = calloc(1, sizeof *c);
    if (!c) return mc_fail(err, MC_ENOMEM, 0, "no memory for the control");
    *out = c;
    c->o = o;
    c->engine = engine;
    c->begin_ns = os_clock_ns();
    c->n_ctx = session_capacity(session);
    enum mc_code code = MC_OK;
    if (!file || strcmp(file, "off") != 0) { /* the file is there before anybody can call */
        const struct control_file_options co = {.path = file, .box = engine_settings(engine)};
        code = control_file_start(&co, &c->file, err);
    }
    return code ? code : open_socket(c, err);
}

void talk_control_close(struct talk_control *c)
{
    if (!c) return;
    control_socket_stop(c->socket);
    control_file_stop(c->file);
    dials_store_close(c->store);
    free(c);
}
