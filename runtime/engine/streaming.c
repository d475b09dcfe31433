/* streaming.c - see streaming.h */
#include "runtime/engine/streaming.h"

#include "io/experts/expert_use.h"
#include "platform/base/log.h"
#include "platform/os.h"
#include "runtime/engine/resident_load.h"
#include "topology/workers.h"

#include <stdlib.h>

bool streaming_describe(const struct model *m, const struct gguf *g, const struct weights *w, struct expert_layer *layers,
                        struct expert_cache_options *out)
{
    for (uint32_t il = 0; il < m->shape.n_layer; il++) {
        const struct matrix *const piece[EXPERT_PIECES] = {&m->layers[il].gate, &m->layers[il].up, &m->layers[il].down};
        for (unsigned p = 0; p < EXPERT_PIECES; p++) {
            layers[il].tensor_idx[p] = weights_tensor_of(w, piece[p]->data);
            layers[il].bytes[p] = (size_t)(matrix_bytes(piece[p]) / piece[p]->count);
            if (layers[il].tensor_idx[p] == gguf_n_tensors(g)) return false;
        }
    }
    out->layers = layers;
    out->n_layers = m->shape.n_layer;
    out->n_expert = m->shape.n_expert;
    out->n_used = m->shape.n_used;
    return true;
}

enum mc_code streaming_open(const struct expert_cache_options *opt, const struct gguf *g, const struct weights *w,
                            struct workers *team, struct expert_cache **out, double *touch_s, struct mc_err *err)
{
    struct expert_cache *c = NULL;
    const uint64_t start = os_clock_ns();
    enum mc_code code = expert_cache_create(g, opt, &c, err);
    if (!code) code = resident_touch_region(expert_cache_region(c), team, err);
    *touch_s = (double)(os_clock_ns() - start) * 1e-9;
    if (!code) code = expert_cache_start(c, w, err);
    if (code)
        expert_cache_destroy(c);
    else
        *out = c;
    return code;
}

enum mc_code streaming_recall(struct expert_cache *c, const char *path, const struct model_shape *s,
                              engine_progress_fn progress, void *user, struct mc_err *err)
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

void streaming_keep(const struct expert_cache *c, const char *path, const struct model_shape *s)
{
    struct mc_err why;
    float *const use = malloc((size_t)s->n_layer * s->n_expert * sizeof *use);
    if (!use) return;
    expert_cache_uses(c, use);
    if (expert_use_save(path, s->n_layer, s->n_expert, use, &why)) mc_log(MC_LOG_WARN, "engine: streaming: %s", why.msg);
    free(use);
}
