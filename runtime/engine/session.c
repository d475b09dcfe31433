/* session.c - one timeline of tokens: append, logits, rewind, snapshots. See engine.h.
 *
 * The cache moves only when a whole chunk is done, so whatever stops a call leaves the session at a token boundary. Rows of a
 * chunk that was stopped or failed lie behind the held tokens, where nobody looks, and are overwritten; what they took the
 * place of is put back. */
#include "runtime/engine/engine_private.h"

#include "io/weights/weights.h"
#include "platform/os.h"
#include "topology/workers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    BATCH_DEFAULT = 2048, /* an expert of 256 with 6 used then sees 48 rows: enough to pay for unpacking its weights */
    BATCH_MAX = 8192
};

struct session_snapshot {
    const struct engine *engine;
    enum kern_kv kv;
    uint32_t n_ctx, n, lossless;
    size_t bytes; /* of the whole object */
    int32_t *tokens;
    uint8_t *state;
};

/* ---- creation ---- */

/* Options with defaults filled in. */
static enum mc_code settle(const struct engine *e, const struct session_options *opt, struct session_options *out,
                           struct mc_err *err)
{
    const struct model_shape *s = &e->model.shape;
    *out = *opt;
    if (opt->n_ctx < 1 || opt->n_ctx > s->n_ctx_max)
        return mc_fail(err, MC_EARG, 0, "--ctx %u is out of range; this model takes 1 to %u tokens", (unsigned)opt->n_ctx,
                       (unsigned)s->n_ctx_max);
    if (opt->n_batch > BATCH_MAX)
        return mc_fail(err, MC_EARG, 0, "--batch %u is out of range; expected 1 to %d", (unsigned)opt->n_batch, BATCH_MAX);
    if (!opt->n_batch) out->n_batch = BATCH_DEFAULT;
    if (out->n_batch > out->n_ctx) out->n_batch = out->n_ctx;
    if (e->exact) out->kv = KERN_KV_F32;
    if (out->kv == KERN_KV_Q8 && (s->d_head % 32 || s->d_index % 32))
        return mc_fail(err, MC_EUNSUPPORTED, 0,
                       "--kv q8 needs head sizes that are multiples of 32; this model has %u and %u, use --kv f16",
                       (unsigned)s->d_head, (unsigned)s->d_index);
    return MC_OK;
}

enum mc_code session_memory_estimate(const struct engine *e, const struct session_options *opt, struct session_memory *out,
                                     struct mc_err *err)
{
    struct session_options o;
    struct session_memory m = {0};
    const enum mc_code code = settle(e, opt, &o, err);
    if (code) return code;
    if (!kv_cache_bytes(&e->model.shape, o.kv, o.n_ctx, o.n_batch, &m.kv_bytes) ||
        !flow_bytes(&e->model, e->facts.n_threads, o.n_ctx, o.n_batch, e->exact, &m.activation_bytes))
        return mc_fail(err, MC_ENOMEM, 0, "--ctx %u with --batch %u is larger than the address space", (unsigned)o.n_ctx,
                       (unsigned)o.n_batch);
    m.total_bytes = m.kv_bytes + m.activation_bytes + (uint64_t)o.n_ctx * sizeof(int32_t);
    *out = m;
    return MC_OK;
}

enum mc_code session_create(struct engine *e, const struct session_options *opt, struct session **out, struct mc_err *err)
{
    struct session_options o;
    enum mc_code code = settle(e, opt, &o, err);
    if (code) return code;
    struct session *s = calloc(1, sizeof *s);
    if (!s) return mc_fail(err, MC_ENOMEM, 0, "out of memory for a session");
    s->engine = e;
    s->lossless = UINT32_MAX;
    s->tokens = calloc(o.n_ctx, sizeof *s->tokens);
    if (!s->tokens) code = mc_fail(err, MC_ENOMEM, 0, "out of memory for %u tokens", (unsigned)o.n_ctx);
    if (!code) code = kv_cache_init(&s->kv, &e->model.shape, o.kv, o.n_ctx, o.n_batch, err);
    if (!code) code = flow_init(&s->flow, &e->model, &e->kern, &s->kv, e->facts.n_threads, e->exact, err);
    s->flow.env.node = e->resident.worker_node;
    s->flow.waves.cache = e->experts;
    if (code) {
        session_destroy(s);
        return code;
    }
    *out = s;
    return MC_OK;
}

void session_destroy(struct session *s)
{
    if (!s) return;
    trace_destroy(s->flow.env.trace);
    flow_deinit(&s->flow);
    kv_cache_deinit(&s->kv);
    free(s->tokens);
    free(s);
}

enum mc_code session_trace(struct session *s, const struct trace **out, struct mc_err *err)
{
    struct trace **t = &s->flow.env.trace;
    if (*t)
        trace_clear(*t);
    else {
        const enum mc_code code = trace_create(s->engine->model.shape.n_layer, s->engine->facts.n_threads, t, err);
        if (code) return code;
    }
    *out = *t;
    return MC_OK;
}

uint32_t session_position(const struct session *s)
{
    return s->kv.n;
}

uint32_t session_capacity(const struct session *s)
{
    return s->kv.n_ctx;
}

const int32_t *session_tokens(const struct session *s)
{
    return s->tokens;
}

void session_set_progress(struct session *s, engine_progress_fn fn, void *user)
{
    s->progress = fn;
    s->progress_user = user;
}

/* ---- appending ---- */

static enum mc_code check_ids(const struct session *s, const int32_t *ids, size_t n, struct mc_err *err)
{
    const uint32_t vocab = s->engine->model.shape.n_vocab;
    if (n < 1) return mc_fail(err, MC_EARG, 0, "no tokens to append");
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= vocab)
            return mc_fail(err, MC_EARG, 0, "token id %d at index %zu is outside the vocabulary; expected 0 to %u", (int)ids[i],
                           i, (unsigned)(vocab - 1));
    if (n > s->kv.n_ctx - s->kv.n)
        return mc_fail(err, MC_EFULL, 0, "%zu tokens do not fit: the context holds %u and %u are taken; use a larger --ctx", n,
                       (unsigned)s->kv.n_ctx, (unsigned)s->kv.n);
    return MC_OK;
}

static enum mc_code check_damage(const struct session *s, struct mc_err *err)
{
    const char *path = weights_damaged(s->engine->weights);
    if (!path) return MC_OK;
    return mc_fail(
        err, MC_EIO, 0,
        "%s: the file became shorter or unreadable while in use; results since then are worthless, restore it and start again",
        path);
}

static enum mc_code check_logits(const float *logits, uint32_t n_vocab, uint32_t position, struct mc_err *err)
{
    for (uint32_t i = 0; i < n_vocab; i++)
        if (isnan(logits[i]))
            return mc_fail(
                err, MC_EFORMAT, 0,
                "the logits at position %u hold NaN (token %u): a weight of this file is damaged; modchip inspect --check "
                "finds it",
                (unsigned)position, (unsigned)i);
    return MC_OK;
}

/* What an append is, and what it wants to hear. */
struct listener {
    bool decode;          /* a token of an answer */
    const uint8_t *want;  /* by index of the append; NULL: all */
    session_logits_fn fn; /* NULL: only the last position's logits, kept in the flow */
    void *user;
};

static bool wanted(const struct listener *l, size_t i, size_t n)
{
    return l->fn ? !l->want || l->want[i] : i + 1 == n;
}

static enum mc_code deliver(const struct session *s, const struct listener *l, struct mc_err *err)
{
    const struct flow *f = &s->flow;
    const uint32_t n_vocab = s->engine->model.shape.n_vocab;
    for (uint32_t r = 0; r < f->n_head_rows; r++) {
        const uint32_t position = f->p0 + f->head_rows[r];
        const float *logits = f->logits + (size_t)r * n_vocab;
        const enum mc_code code = check_logits(logits, n_vocab, position, err);
        if (code) return code;
        if (l->fn) l->fn(l->user, position, logits);
    }
    return MC_OK;
}

/* The walk, with the settings that are in force when it begins. Heads of further rows belong to the same step. */
static void take_settings(struct session *s, const struct listener *l)
{
    struct engine *e = s->engine;
    struct flow *f = &s->flow;
    const struct settings_limits *limits = settings_box_limits(e->settings);
    settings_box_begin(e->settings, &f->dials);
    if (!l->decode && f->dials.scope != MOE_SCOPE_ALL) f->dials = settings_lossless(limits);
    if (settings_lossy(&f->dials, limits) && s->kv.n < s->lossless) s->lossless = s->kv.n;
    f->counts = (struct flow_counts){0};
}

static void add_counts(struct session *s, const struct listener *l, uint32_t n, uint64_t ns)
{
    const struct flow_counts *c = &s->flow.counts;
    const uint64_t add[] = {l->decode,      c->experts_used,   c->experts_dropped, c->rows_computed,  c->rows_skipped,
                            c->bytes_saved, l->decode ? 0 : n, l->decode ? 0 : ns, l->decode ? ns : 0};
    for (size_t i = 0; i < ARRAY_LEN(add); i++) atomic_fetch_add_explicit(&s->engine->counts[i], add[i], memory_order_relaxed);
}

/* What is told to whoever waits for a long append, between two layers of a chunk. */
struct waiting {
    const struct session *s;
    uint64_t at, n, total;
};

static bool layer_done(void *user, uint32_t layers)
{
    const struct waiting *w = user;
    return w->s->progress(w->s->progress_user, w->at + w->n * layers / w->s->engine->model.shape.n_layer, w->total);
}

/* Under a ceiling: pages of the embedding table, of which every token reads one, may not pile up in the system's cache. */
static void forget_tables(struct engine *e, uint32_t n)
{
    enum { ROWS = 64 };
    const struct matrix *const embd = &e->model.embd;
    e->rows_mapped += n;
    if (!e->ceiling || e->rows_mapped < ROWS) return;
    weights_forget(e->weights, embd->data, matrix_bytes(embd));
    e->rows_mapped = 0;
}

/* One chunk: ids[at .. at+n) of an append of `total`. Logits of wanted rows are made HEAD_ROWS at a time; the first batch of
 * them belongs to the walk itself, so that decoding is one run of the team. */
static enum mc_code run_chunk(struct session *s, const int32_t *ids, size_t at, uint32_t n, size_t total,
                              const struct listener *l, struct mc_err *err)
{
    struct flow *f = &s->flow;
    enum mc_code code = MC_OK;
    f->ids = ids + at;
    f->n = n;
    f->p0 = s->kv.n;
    bool walked = false;
    struct waiting waiting = {s, at, n, total};
    f->go_on = s->progress && n > 1 ? layer_done : NULL;
    f->go_on_user = &waiting;
    atomic_store_explicit(&f->stop_at, UINT32_MAX, memory_order_relaxed);
    kv_cache_hold(&s->kv, n);
    const uint64_t begin_ns = os_clock_ns();
    take_settings(s, l);
    for (uint32_t t = 0; !code && (!walked || t < n);) {
        for (f->n_head_rows = 0; t < n && f->n_head_rows < HEAD_ROWS; t++)
            if (wanted(l, at + t, total)) f->head_rows[f->n_head_rows++] = t;
        workers_run(s->engine->team, walked ? forward_head : forward_walk, f);
        walked = true;
        code = s->engine->experts ? expert_cache_error(s->engine->experts, err) : MC_OK;
        if (!code && f->waves.failed) code = mc_fail(err, MC_EIO, 0, "an expert could not be read; try again");
        if (!code) code = check_damage(s, err);
        if (!code && atomic_load_explicit(&f->stop_at, memory_order_relaxed) != UINT32_MAX)
            code = mc_fail(err, MC_ECANCELLED, 0, "stopped after %zu of %zu tokens", at, total);
        if (!code) code = deliver(s, l, err);
    }
    settings_box_end(s->engine->settings);
    engine_streaming_publish(s->engine);
    if (code) {
        kv_cache_give_up(&s->kv, n);
        return code;
    }
    add_counts(s, l, n, os_clock_ns() - begin_ns);
    forget_tables(s->engine, n);
    memmove(s->tokens + s->kv.n, ids + at, n * sizeof *ids); /* a replay appends the tokens to themselves */
    kv_cache_advance(&s->kv, n);
    return MC_OK;
}

static enum mc_code append(struct session *s, const int32_t *ids, size_t n, const struct listener *l, struct mc_err *err)
{
    enum mc_code code = check_ids(s, ids, n, err);
    if (code) return code;
    s->has_logits = false;
    for (size_t at = 0; at < n;) {
        const uint32_t step = n - at < s->kv.n_batch ? (uint32_t)(n - at) : s->kv.n_batch;
        code = run_chunk(s, ids, at, step, n, l, err);
        if (code) return code;
        at += step;
        if (at < n && s->progress && !s->progress(s->progress_user, (uint32_t)at, (uint32_t)n))
            return mc_fail(err, MC_ECANCELLED, 0, "stopped after %zu of %zu tokens", at, n);
    }
    s->has_logits = wanted(l, n - 1, n);
    return MC_OK;
}

enum mc_code session_append(struct session *s, const int32_t *ids, size_t n, struct mc_err *err)
{
    return append(s, ids, n, &(struct listener){0}, err);
}

enum mc_code session_decode(struct session *s, int32_t id, struct mc_err *err)
{
    return append(s, &id, 1, &(struct listener){.decode = true}, err);
}

enum mc_code session_append_all(struct session *s, const int32_t *ids, size_t n, const uint8_t *want, session_logits_fn fn,
                                void *user, struct mc_err *err)
{
    return append(s, ids, n, &(struct listener){false, want, fn, user}, err);
}

const float *session_logits(const struct session *s)
{
    const struct flow *f = &s->flow;
    return s->has_logits ? f->logits + (size_t)(f->n_head_rows - 1) * s->engine->model.shape.n_vocab : NULL;
}

/* ---- going back ---- */

uint32_t session_rewind_reach(const struct session *s)
{
    (void)s;
    return KV_REWIND_REACH;
}

uint32_t session_lossless_prefix(const struct session *s)
{
    return s->lossless < s->kv.n ? s->lossless : s->kv.n;
}

/* Runs the first n held tokens again from an empty cache. */
static enum mc_code replay(struct session *s, uint32_t n, struct mc_err *err)
{
    const struct listener nobody = {0};
    kv_cache_rewind(&s->kv, 0);
    s->lossless = UINT32_MAX;
    for (uint32_t at = 0; at < n;) {
        const uint32_t step = n - at < s->kv.n_batch ? n - at : s->kv.n_batch;
        /* `total` beyond the last index: no row's logits are wanted. */
        const enum mc_code code = run_chunk(s, s->tokens, at, step, (size_t)n + 1, &nobody, err);
        if (code) return code;
        at += step;
        if (at < n && s->progress && !s->progress(s->progress_user, at, n))
            return mc_fail(err, MC_ECANCELLED, 0, "stopped after %u of %u tokens", (unsigned)at, (unsigned)n);
    }
    return MC_OK;
}

enum mc_code session_rewind(struct session *s, uint32_t n, struct mc_err *err)
{
    if (n > s->kv.n)
        return mc_fail(err, MC_EARG, 0, "cannot rewind to %u: the session holds %u tokens", (unsigned)n, (unsigned)s->kv.n);
    s->has_logits = false;
    if (!kv_cache_can_rewind(&s->kv, n)) return replay(s, n, err);
    kv_cache_rewind(&s->kv, n);
    if (n <= s->lossless) s->lossless = UINT32_MAX;
    return MC_OK;
}

enum mc_code session_keep_prefix(struct session *s, const int32_t *ids, size_t n, uint32_t *n_kept, struct mc_err *err)
{
    uint32_t same = 0;
    while (same < s->kv.n && (size_t)same + 1 < n && s->tokens[same] == ids[same]) same++;
    struct settings_state now;
    settings_box_get(s->engine->settings, &now);
    if (same > s->lossless && !settings_lossy(&now.settings, settings_box_limits(s->engine->settings))) same = s->lossless;
    const enum mc_code code = session_rewind(s, same, err);
    if (!code) *n_kept = same;
    return code;
}

enum mc_code session_snapshot_take(const struct session *s, struct session_snapshot **out, struct mc_err *err)
{
    const size_t token_bytes = (size_t)s->kv.n * sizeof *s->tokens;
    const uint64_t state_bytes = kv_cache_save_bytes(&s->kv);
    struct session_snapshot *snap =
        state_bytes < SIZE_MAX / 2 ? malloc(sizeof *snap + token_bytes + (size_t)state_bytes) : NULL;
    if (!snap) return mc_fail(err, MC_ENOMEM, 0, "out of memory for a snapshot of %u tokens", (unsigned)s->kv.n);
    *snap = (struct session_snapshot){
        .engine = s->engine, .kv = s->kv.kv, .n_ctx = s->kv.n_ctx, .n = s->kv.n, .lossless = s->lossless};
    snap->bytes = sizeof *snap + token_bytes + (size_t)state_bytes;
    snap->tokens = (int32_t *)(snap + 1);
    snap->state = (uint8_t *)(snap + 1) + token_bytes;
    memcpy(snap->tokens, s->tokens, token_bytes);
    kv_cache_save(&s->kv, snap->state);
    *out = snap;
    return MC_OK;
}

enum mc_code session_snapshot_restore(struct session *s, const struct session_snapshot *snap, struct mc_err *err)
{
    if (snap->engine != s->engine || snap->kv != s->kv.kv || snap->n_ctx != s->kv.n_ctx)
        return mc_fail(err, MC_EARG, 0,
                       "the snapshot was taken from a session of another engine, cache format or context size");
    s->has_logits = false;
    memcpy(s->tokens, snap->tokens, (size_t)snap->n * sizeof *s->tokens);
    kv_cache_load(&s->kv, snap->state, snap->n);
    s->lossless = snap->lossless;
    return MC_OK;
}

void session_snapshot_destroy(struct session_snapshot *snap)
{
    free(snap);
}

uint64_t session_snapshot_bytes(const struct session_snapshot *snap)
{
    return snap->bytes;
}

uint64_t session_token_kv_bytes(const struct session *s, uint32_t position)
{
    const uint64_t index = kv_index_needed(&s->engine->model.shape, position) ? model_index_bytes(&s->engine->model) : 0;
    return kv_cache_token_bytes(&s->kv, position) + index;
}
