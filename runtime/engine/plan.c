/* plan.c - see plan.h
 *
 * The decisions are those of resident_create itself: it is asked to take them and to stop there. */
#include "runtime/engine/plan.h"

#include "io/weights/weights.h"
#include "platform/os.h"
#include "runtime/engine/engine_private.h"
#include "topology/workers.h"

#include <stdlib.h>
#include <string.h>

struct walk {
    struct engine *e;
    struct engine_plan *plan;
};

const char *plan_class_name(enum plan_class_id id)
{
    static const char *const names[PLAN_CLASSES] = {"layers", "routed experts", "head", "tables and vectors"};
    return (unsigned)id < PLAN_CLASSES ? names[id] : "none";
}

/* Read only where the indexer has to choose. */
static bool is_index_query(const struct model *m, const struct matrix *matrix)
{
    for (uint32_t il = 0; il < m->shape.n_layer; il++)
        if (matrix == &m->layers[il].index_q_b || matrix == &m->layers[il].index_proj) return true;
    return false;
}

static void add_matrix(void *user, const struct matrix *m, uint64_t memory, uint64_t copy, bool is_packed)
{
    const struct walk *const w = user;
    const struct model *const model = &w->e->model;
    const bool is_routed = m->count > 1;
    struct plan_class *const c = &w->plan->weights[m == &model->output ? PLAN_HEAD : is_routed ? PLAN_EXPERTS : PLAN_LAYERS];
    const uint64_t file = matrix_bytes(m), used = is_index_query(model, m) ? 0 : is_routed ? model->shape.n_used : 1;
    c->file_bytes += file;
    for (uint32_t il = 0; !is_routed && il < model->shape.n_layer; il++)
        if ((uintptr_t)m - (uintptr_t)&model->layers[il] < sizeof model->layers[il]) w->plan->layers[il].dense_bytes += file;
    if (!memory)
        c->mapped_bytes += file;
    else if (is_packed)
        c->packed_bytes += memory, c->packed_file_bytes += file;
    else
        c->plain_bytes += memory;
    c->token_bytes += copy / m->count * used;
    c->token_file_bytes += file / m->count * used;
}

static void add_layers(const struct model *m, struct engine_plan *p)
{
    p->n_layer = m->shape.n_layer;
    p->n_expert = m->shape.n_expert;
    for (uint32_t il = 0; il < p->n_layer; il++) {
        const struct layer_weights *const L = &m->layers[il];
        p->layers[il].gate = quant_info(L->gate.type)->name;
        p->layers[il].up = quant_info(L->up.type)->name;
        p->layers[il].down = quant_info(L->down.type)->name;
        p->layers[il].expert_bytes = (matrix_bytes(&L->gate) + matrix_bytes(&L->up) + matrix_bytes(&L->down)) / p->n_expert;
    }
}

/* What no product reads: all that the file has beside the matrices, all that a token reads beside them. */
static void add_rest(const struct engine *e, struct engine_plan *p)
{
    struct plan_class *const rest = &p->weights[PLAN_REST];
    rest->file_bytes = e->facts.tensor_bytes;
    rest->token_bytes = e->facts.token_bytes_layers + e->facts.token_bytes_head;
    for (unsigned i = 0; i < PLAN_REST; i++) {
        rest->file_bytes -= p->weights[i].file_bytes;
        rest->token_bytes -= p->weights[i].token_file_bytes;
    }
    rest->mapped_bytes = rest->file_bytes;
    rest->token_file_bytes = rest->token_bytes;
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static double share(uint64_t part, uint64_t all)
{
    return all ? (double)part / (double)all : 1;
}

/* Weights in own memory, the cache and the activations are there for good. Mapped weights share what is left: first those that
 * every token reads, then experts. */
static void fill_memory(struct engine_plan *p)
{
    const struct plan_class *const experts = &p->weights[PLAN_EXPERTS];
    uint64_t own = 0, mapped = 0, token = 0; /* mapped, and what a token reads of it: without experts */
    for (unsigned i = 0; i < PLAN_CLASSES; i++) {
        own += p->weights[i].packed_bytes + p->weights[i].plain_bytes;
        if (i == PLAN_EXPERTS) continue;
        mapped += p->weights[i].mapped_bytes;
        token += min_u64(p->weights[i].mapped_bytes, p->weights[i].token_file_bytes);
    }
    p->hugepage_bytes = own + p->session.kv_bytes + p->session.activation_bytes;
    const uint64_t fixed = own + p->session.total_bytes;
    p->need_bytes = fixed + mapped + experts->mapped_bytes;
    p->fits = p->need_bytes <= p->memory_bytes;
    if (p->streams) { /* tables are read from the file as they are needed, and leave no trace below a ceiling */
        p->resident_bytes = own;
        p->experts_cached = share(p->expert_cache_bytes, p->expert_all_bytes);
        p->token_disk_bytes = (uint64_t)((double)experts->token_file_bytes * (1 - p->experts_cached)) + token;
        return;
    }
    const uint64_t room = p->memory_bytes > fixed ? p->memory_bytes - fixed : 0;
    const uint64_t dense = min_u64(mapped, room), routed = min_u64(experts->mapped_bytes, room - dense);
    p->expert_cache_bytes = experts->packed_bytes + experts->plain_bytes + routed;
    p->resident_bytes = own + dense + routed - p->expert_cache_bytes;
    p->experts_cached = share(experts->packed_file_bytes + experts->plain_bytes + routed, experts->file_bytes);
    p->token_disk_bytes =
        (uint64_t)((double)experts->token_file_bytes * (1 - p->experts_cached) + (double)token * (1 - share(dense, mapped)));
}

/* Cache that a token reads at the end of the context; the cache's memory is taken but not touched. */
static enum mc_code count_kv(const struct engine *e, const struct session_options *session, struct engine_plan *p,
                             struct mc_err *err)
{
    struct kv_cache kv;
    if (p->session.kv_bytes > p->memory_bytes) return MC_OK; /* it does not fit, whatever it reads */
    const enum kern_kv form = e->exact ? KERN_KV_F32 : session->kv;
    const enum mc_code code = kv_cache_init(&kv, &e->model.shape, form, p->n_ctx, 1, err);
    if (code) return code;
    p->token_kv_bytes = kv_cache_token_bytes(&kv, p->n_ctx - 1);
    if (kv_index_needed(&e->model.shape, p->n_ctx - 1)) p->token_kv_bytes += model_index_bytes(&e->model);
    kv_cache_deinit(&kv);
    return MC_OK;
}

enum mc_code engine_plan_make(const struct engine_options *opt, const struct session_options *session, uint64_t memory_bytes,
                              struct workers *team, bool pinned, struct engine_plan *out, struct mc_err *err)
{
    struct engine_plan p = {.n_threads = workers_count(team)};
    struct session_options so = *session;
    struct engine_options eo = *opt;
    struct engine *const e = calloc(1, sizeof *e);
    if (!e) return mc_fail(err, MC_ENOMEM, 0, "out of memory for the plan");
    struct walk w = {e, &p};
    struct resident_foresee foresee = {.available_bytes = memory_bytes, .tell = add_matrix, .user = &w};
    if (!memory_bytes) { /* the pools are not part of what counts as free */
        foresee.available_bytes = os_memory_available_bytes();
        foresee.pool_bytes = os_huge_pool_free_bytes(OS_HUGE_AUTO);
    }
    p.memory_bytes = foresee.available_bytes + foresee.pool_bytes;
    e->facts.n_threads = p.n_threads;
    e->facts.pinned = pinned;
    e->team = team;
    eo.session = &so;
    eo.memory_bytes = memory_bytes;
    enum mc_code code = engine_bind(&eo, e, err);
    if (!code) code = engine_session_room(e, &so, &p.session, err);
    p.n_ctx = so.n_ctx;
    if (!code) code = count_kv(e, &so, &p, err);
    if (!code) code = engine_make_resident(&eo, e, &foresee, err);
    if (!code) {
        p.isa = e->kern.isa;
        p.streams = e->resident.streams;
        p.expert_cache_bytes = e->resident.expert_bytes;
        p.expert_all_bytes = e->facts.expert_all_bytes;
        add_layers(&e->model, &p);
        add_rest(e, &p);
        fill_memory(&p);
    }
    e->team = NULL; /* the caller's */
    engine_close(e);
    if (!code) *out = p;
    return code;
}
