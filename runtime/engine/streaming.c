/* streaming.c - see streaming.h */
#include "runtime/engine/streaming.h"

#include "io/experts/expert_use.h"
#include "io/gguf/gguf_hash.h"
#include "platform/base/log.h"
#include "platform/os.h"
#include "runtime/engine/engine_private.h"
#include "runtime/engine/resident_load.h"

#include <stdlib.h>
#include <string.h>

/* The routed experts as the cache wants them. False where they cannot be streamed: a matrix of them is not in the file as it
 * is. */
static bool describe(const struct engine *e, struct expert_layer *layers, struct expert_cache_options *out)
{
    const struct model *const m = &e->model;
    for (uint32_t il = 0; il < m->shape.n_layer; il++) {
        const struct matrix *const piece[EXPERT_PIECES] = {&m->layers[il].gate, &m->layers[il].up, &m->layers[il].down};
        for (unsigned p = 0; p < EXPERT_PIECES; p++) {
            layers[il].tensor_idx[p] = weights_tensor_of(e->weights, piece[p]->data);
            layers[il].bytes[p] = (size_t)(matrix_bytes(piece[p]) / piece[p]->count);
            if (layers[il].tensor_idx[p] == gguf_n_tensors(e->gguf)) return false;
        }
    }
    out->layers = layers;
    out->n_layers = m->shape.n_layer;
    out->n_expert = m->shape.n_expert;
    out->n_used = m->shape.n_used;
    return true;
}

enum mc_code streaming_wish(const struct engine_options *opt, struct engine *e, struct expert_layer *layers,
                            struct expert_cache_options *eo, struct resident_options *ro, struct mc_err *err)
{
    struct resident_streaming *const s = &ro->streaming;
    s->most_bytes = opt->expert_cache_given ? opt->expert_cache_bytes : UINT64_MAX;
    s->required = opt->memory_bytes || opt->expert_cache_given;
    if (ro->io == WEIGHTS_MMAP && s->required)
        return mc_fail(err, MC_EARG, 0, "--io mmap leaves memory to the system; --memory and --expert-cache need another --io");
    s->allowed = ro->io != WEIGHTS_MMAP && describe(e, layers, eo);
    if (!s->allowed) return MC_OK;
    expert_cache_sizes(eo, &s->least_bytes, &s->all_bytes);
    e->facts.expert_all_bytes = s->all_bytes;
    eo->io = ro->io;
    eo->huge = ro->huge;
    eo->fault = opt->disk_fault;
    if (s->most_bytes >= s->least_bytes) return MC_OK;
    return mc_fail(err, MC_EARG, 0, "--expert-cache: %llu MiB are too few; this model needs at least %llu MiB",
                   (unsigned long long)(s->most_bytes >> 20), (unsigned long long)(s->least_bytes >> 20) + 1);
}

static enum mc_code recall(struct expert_cache *c, const char *path, const struct model_shape *s, engine_progress_fn progress,
                           void *user, struct mc_err *err)
{
    struct mc_err why;
    float *const use = malloc((size_t)s->n_layer * s->n_expert * sizeof *use);
    if (!use || !os_file_exists(path)) {
        free(use);
        return MC_OK;
    }
    enum mc_code code = expert_use_load(path, s->n_layer, s->n_expert, use, &why);
    if (code) {
        mc_log(MC_LOG_WARN, "engine: streaming: kept uses of experts are not used: %s", why.msg);
        code = MC_OK;
    } else {
        struct expert_cache_facts f;
        const uint64_t start = os_clock_ns();
        expert_cache_remember(c, use);
        code = expert_cache_warm(c, progress, user, err);
        expert_cache_facts_get(c, &f);
        mc_log(MC_LOG_INFO, "engine: streaming warm_s=%.1f pinned=%llu by=%s", (double)(os_clock_ns() - start) * 1e-9,
               (unsigned long long)f.n_pinned, path);
    }
    free(use);
    return code;
}

static void keep(const struct expert_cache *c, const char *path, const struct model_shape *s)
{
    struct mc_err why;
    float *const use = malloc((size_t)s->n_layer * s->n_expert * sizeof *use);
    if (!use) return;
    expert_cache_uses(c, use);
    if (expert_use_save(path, s->n_layer, s->n_expert, use, &why)) mc_log(MC_LOG_WARN, "engine: streaming: %s", why.msg);
    free(use);
}

/* asked: the user set a limit, so that this is no surprise. */
static void report(const char *layout, bool asked, double touch_s, struct engine *e)
{
    struct expert_cache_facts f;
    expert_cache_facts_get(e->experts, &f);
    e->facts.streams = true;
    e->facts.touch_s += touch_s;
    e->facts.expert_cache_bytes = f.slots_bytes;
    e->facts.expert_disk_gb_s = f.reads.gb_s;
    if (e->resident.n_packed && layout && !strcmp(layout, "packed"))
        mc_log(MC_LOG_WARN, "--layout packed: the routed experts are streamed, so they stay in the file's layout");
    if (!asked)
        mc_log(MC_LOG_WARN,
               "engine: streaming: memory holds %.0f %% of the routed experts; the others are read from the disk while the "
               "model runs",
               100 * (double)f.n_slots / (double)f.n_experts);
    mc_log(f.reads.direct ? MC_LOG_INFO : MC_LOG_WARN,
           "engine: streaming slots=%llu of=%llu mib=%llu io=%s direct=%d gb_s=%.2f touch_s=%.1f%s%s",
           (unsigned long long)f.n_slots, (unsigned long long)f.n_experts, (unsigned long long)(f.slots_bytes >> 20),
           weights_io_name(f.reads.io), f.reads.direct, f.reads.gb_s, touch_s, f.reads.why[0] ? ": " : "", f.reads.why);
}

/* What earlier runs used most is read, and what this one uses will be kept. */
static enum mc_code begin_with_kept_uses(const struct engine_options *opt, struct engine *e, struct mc_err *err)
{
    struct mc_err why;
    if (!gguf_kept_path(e->gguf, "experts", "use", e->use_path, sizeof e->use_path, &why))
        return recall(e->experts, e->use_path, &e->model.shape, opt->progress, opt->progress_user, err);
    mc_log(MC_LOG_WARN, "engine: streaming: uses of experts are not kept: %s", why.msg);
    e->use_path[0] = '\0';
    return MC_OK;
}

enum mc_code streaming_start(const struct engine_options *opt, struct expert_cache_options *eo, bool asked, struct engine *e,
                             struct mc_err *err)
{
    const uint64_t begin = os_clock_ns();
    eo->bytes = e->resident.expert_bytes;
    enum mc_code code = expert_cache_create(e->gguf, eo, &e->experts, err);
    if (!code) code = resident_touch_region(expert_cache_region(e->experts), e->team, err);
    const double touch_s = (double)(os_clock_ns() - begin) * 1e-9;
    if (!code) code = expert_cache_start(e->experts, e->weights, err);
    if (code) return code;
    report(opt->layout, asked, touch_s, e);
    return opt->keep_use ? begin_with_kept_uses(opt, e, err) : MC_OK;
}

void streaming_end(struct engine *e)
{
    if (e->experts && e->use_path[0]) keep(e->experts, e->use_path, &e->model.shape);
    expert_cache_destroy(e->experts);
}

/* ---- figures --------------------------------------------------------------------------------------------------------- */

void engine_streaming_publish(struct engine *e)
{
    struct expert_counts n;
    if (!e->experts) return;
    expert_cache_counts_get(e->experts, &n);
    const uint64_t now[] = {n.hits,    n.misses,       n.bytes_read, n.busy_ns,  n.stall_ns,
                            n.guesses, n.guesses_used, n.retries,    n.foreseen, n.foreseen_right};
    for (size_t i = 0; i < ARRAY_LEN(now); i++) atomic_store_explicit(&e->streamed[i], now[i], memory_order_relaxed);
}

void engine_streaming_get(const struct engine *e, struct engine_streaming *out)
{
    uint64_t *const to[] = {&out->hits,    &out->misses,       &out->bytes_read, &out->busy_ns,  &out->stall_ns,
                            &out->guesses, &out->guesses_used, &out->retries,    &out->foreseen, &out->foreseen_right};
    _Static_assert(ARRAY_LEN(to) == ARRAY_LEN(e->streamed), "every counter has its place");
    for (size_t i = 0; i < ARRAY_LEN(to); i++) *to[i] = atomic_load_explicit(&e->streamed[i], memory_order_relaxed);
}

void engine_streaming_layer(const struct engine *e, uint32_t layer, uint64_t *hits, uint64_t *misses)
{
    *hits = *misses = 0;
    if (e->experts) expert_cache_layer_counts(e->experts, layer, hits, misses);
}

enum mc_code engine_streaming_measure(struct engine *e, uint64_t bytes, double *gb_s, struct mc_err *err)
{
    *gb_s = 0;
    return e->experts ? expert_cache_measure(e->experts, bytes, gb_s, err) : MC_OK;
}
