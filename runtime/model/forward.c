/* forward.c - see forward.h: the story of a chunk, and the memory it needs. */
#include "runtime/model/forward.h"

#include "io/experts/expert_cache.h"
#include "platform/os.h"

#include <string.h>

void flow_share(const struct worker *w, size_t n, size_t *i0, size_t *i1)
{
    *i0 = n * w->id / w->count;
    *i1 = n * (w->id + 1) / w->count;
}

struct act act_select(const struct act *x, unsigned kinds)
{
    struct act a = *x;
    for (unsigned kind = 0; kind < QUANT_ACT_COUNT; kind++)
        if (!(kinds & 1u << kind)) a.q[kind] = NULL;
    return a;
}

/* ---- memory ---- */

struct arena {
    uint8_t *base; /* NULL: only count */
    uint64_t at;
    bool overflow;
};

static void *take(struct arena *a, uint64_t n, uint64_t size)
{
    uint64_t bytes, end;
    if (!mc_mul_u64(n, size, &bytes) || !mc_add_u64(bytes, 2 * KERN_ALIGN - 1, &bytes) || /* rows may be over-read */
        !mc_add_u64(a->at, bytes & ~(uint64_t)(KERN_ALIGN - 1), &end) || end > SIZE_MAX / 2) {
        a->overflow = true;
        return NULL;
    }
    void *p = a->base ? a->base + a->at : NULL;
    a->at = end;
    return p;
}

static float *take_floats(struct arena *a, uint64_t rows, uint64_t n)
{
    return take(a, rows * n, sizeof(float)); /* counts of a checked shape times a batch: far below 2^64 */
}

static struct act take_act(struct arena *a, uint64_t rows, size_t k, unsigned kinds)
{
    struct act x = {.k = k, .f_stride = k};
    x.f = take_floats(a, rows, k);
    for (unsigned kind = QUANT_ACT_F32 + 1; kind < QUANT_ACT_COUNT; kind++) {
        if (!(kinds & 1u << kind)) continue;
        x.q_stride[kind] = kern_act_row_bytes((enum quant_act)kind, k);
        x.q[kind] = take(a, rows, x.q_stride[kind]);
    }
    return x;
}

/* Formats that any layer asks for, so that one buffer serves all. */
struct kinds {
    unsigned u, qr, o, low, h;
};

static struct kinds kinds_of(const struct model *m)
{
    struct kinds k = {.u = act_kind(&m->output)};
    for (uint32_t il = 0; il < m->shape.n_layer; il++) {
        const struct layer_weights *L = &m->layers[il];
        k.u |= attention_input_kinds(L) | moe_input_kinds(L);
        k.qr |= act_kind(&L->q_b) | (L->ratio == 4 ? act_kind(&L->index_q_b) : 0);
        k.o |= act_kind(&L->out_a);
        k.low |= act_kind(&L->out_b);
        k.h |= act_kind(&L->down) | act_kind(&L->down_shared);
    }
    return k;
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void layout_scratch(struct arena *a, struct flow *f, const struct model *model, uint32_t n_ctx, bool exact)
{
    const struct model_shape *s = &model->shape;
    uint64_t up_row_bytes = KERN_ALIGN;
    for (uint32_t il = 0; il < s->n_layer; il++)
        up_row_bytes = max_u64(up_row_bytes, max_u64(model->layers[il].up.row_bytes, model->layers[il].up_shared.row_bytes));
    const uint64_t widest = max_u64(max_u64(max_u64(s->d_model, s->d_expert), s->q_lora),
                                    max_u64((uint64_t)s->n_head * s->d_head / s->n_group, (uint64_t)s->n_group * s->o_lora));
    struct flow_scratch *scratch = take(a, f->n_workers, sizeof *scratch);
    float **exact_rows = take(a, f->n_workers, sizeof *exact_rows);
    uint8_t **kept_rows = take(a, f->n_workers, sizeof *kept_rows);
    for (unsigned i = 0; i < f->n_workers; i++) {
        struct flow_scratch t = {0};
        t.attend = take(a, kern_attend_scratch(s->n_head, s->d_head), sizeof(float));
        t.acc = take_floats(a, s->n_head, s->d_head);
        t.m = take_floats(a, 1, s->n_head);
        t.z = take_floats(a, 1, s->n_head);
        t.row = take_floats(a, 1, max_u64(s->d_head, s->d_index));
        t.angle_c = take_floats(a, 1, s->d_rope / 2);
        t.angle_s = take_floats(a, 1, s->d_rope / 2);
        t.top = take(a, n_ctx / 4 + 1, sizeof *t.top);
        float *row = exact ? take_floats(a, 1, widest) : NULL;
        uint8_t *gathered = take(a, PRODUCT_GATHER + 1, up_row_bytes);
        if (scratch) scratch[i] = t;
        if (exact_rows) exact_rows[i] = row;
        if (kept_rows) kept_rows[i] = gathered;
    }
    f->scratch = scratch;
    f->env.scratch = exact_rows;
    f->env.rows = kept_rows;
}

static void layout_attention(struct arena *a, struct flow *f, const struct model_shape *s, const struct kinds *k,
                             uint32_t n_ctx)
{
    const uint64_t n = f->n_batch;
    f->qr = take_act(a, n, s->q_lora, k->qr);
    f->o = take_act(a, n * s->n_group, (size_t)s->n_head * s->d_head / s->n_group, k->o);
    f->low = take_act(a, n, (size_t)s->n_group * s->o_lora, k->low);
    f->low_done = take(a, n * (((uint64_t)s->n_group * s->o_lora + ACT_BLOCK - 1) / ACT_BLOCK), sizeof *f->low_done);
    f->kv_row = take_floats(a, n, s->d_head);
    f->comp_half = take_floats(a, n, 4 * (uint64_t)s->d_head);
    f->index_half = take_floats(a, n, 4 * (uint64_t)s->d_index);
    f->score_tokens = 0;
    if (!kv_index_needed(s, n_ctx - 1)) return;
    const uint64_t rows = n_ctx / 4, budget = (4u << 20) / rows;
    f->score_tokens = (uint32_t)(budget < 1 ? 1 : budget > n ? n : budget);
    f->iq = take_floats(a, n, (uint64_t)s->n_index_head * s->d_index);
    f->iw = take_floats(a, n, s->n_index_head);
    f->scores = take_floats(a, f->score_tokens, rows);
    f->chosen = take(a, n * s->index_top_k, sizeof *f->chosen);
}

static void layout_moe(struct arena *a, struct flow *f, const struct model_shape *s, const struct kinds *k)
{
    const uint64_t n = f->n_batch, slots = n * (s->n_used + 1);
    f->route_logits = take_floats(a, n, s->n_expert);
    f->route_scores = take_floats(a, n, s->n_expert);
    f->expert_ids = take(a, n * s->n_used, sizeof *f->expert_ids);
    f->expert_w = take_floats(a, n, s->n_used + 1);
    f->h = take_act(a, slots, s->d_expert, k->h);
    f->up = take_floats(a, slots, s->d_expert);
    f->expert_out = take_floats(a, slots, s->d_model);
    f->expert_tokens = take(a, n * s->n_used, sizeof *f->expert_tokens);
    f->expert_slots = take(a, n * s->n_used, sizeof *f->expert_slots);
    f->expert_first = take(a, (uint64_t)s->n_expert + 1, sizeof *f->expert_first);
    f->kept = take(a, slots * ((s->d_expert + KERN_STRATUM - 1) / KERN_STRATUM), sizeof *f->kept);
    f->moe_up = take(a, (uint64_t)s->n_expert + 1, sizeof *f->moe_up);
    f->h_done = take(a, slots * ((s->d_expert + ACT_BLOCK - 1) / ACT_BLOCK), sizeof *f->h_done);
    f->waves.state = take(a, s->n_expert, 1);
    f->waves.streamed = take(a, EXPERT_PIECES * (uint64_t)s->n_expert, sizeof *f->waves.streamed);
    f->waves.guess_logits = take_floats(a, 1, s->n_expert);
    f->waves.guess_scores = take_floats(a, 1, s->n_expert);
    f->moe_in = take(a, 2 * (uint64_t)s->n_expert + 3, sizeof *f->moe_in);
    f->moe_out = take(a, (uint64_t)s->n_expert + 1, sizeof *f->moe_out);
}

/* Fills f's pointers (NULL while counting); f->n_batch and n_workers are set. */
static void layout(struct arena *a, struct flow *f, const struct model *m, uint32_t n_ctx, bool exact)
{
    const struct model_shape *s = &m->shape;
    struct kinds k = {0};
    if (!exact) k = kinds_of(m);
    const uint64_t n = f->n_batch, wide = (uint64_t)s->hc * s->d_model;
    f->n_hyper_chunks = (uint32_t)((wide + HYPER_CHUNK - 1) / HYPER_CHUNK);
    for (unsigned kind = 0; kind < ROPE_KINDS; kind++) {
        f->cos[kind] = take_floats(a, n, s->d_rope / 2);
        f->sin[kind] = take_floats(a, n, s->d_rope / 2);
    }
    f->X = take_floats(a, n, wide);
    f->hyper_parts = take_floats(a, n, (uint64_t)f->n_hyper_chunks * (s->hc * (s->hc + 2) + 1));
    f->post = take_floats(a, n, s->hc);
    f->comb = take_floats(a, n, (uint64_t)s->hc * s->hc);
    f->u = take_act(a, max_u64(n, HEAD_ROWS), s->d_model, k.u);
    f->y = take_floats(a, n, s->d_model);
    f->norm_parts = take_floats(a, f->n_workers, (s->d_model + HYPER_CHUNK - 1) / HYPER_CHUNK);
    layout_attention(a, f, s, &k, n_ctx);
    layout_moe(a, f, s, &k);
    f->logits = take_floats(a, n < HEAD_ROWS ? n : HEAD_ROWS, s->n_vocab);
    layout_scratch(a, f, m, n_ctx, exact);
}

bool flow_bytes(const struct model *m, unsigned n_workers, uint32_t n_ctx, uint32_t n_batch, bool exact, uint64_t *out)
{
    struct arena a = {0};
    struct flow f = {.n_batch = n_batch, .n_workers = n_workers};
    layout(&a, &f, m, n_ctx, exact);
    *out = a.at;
    return !a.overflow;
}

enum mc_code flow_init(struct flow *f, const struct model *m, const struct kern_table *kern, struct kv_cache *kv,
                       unsigned n_workers, bool exact, struct mc_err *err)
{
    uint64_t bytes;
    memset(f, 0, sizeof *f);
    if (!flow_bytes(m, n_workers, kv->n_ctx, kv->n_batch, exact, &bytes))
        return mc_fail(err, MC_ENOMEM, 0, "activations of %u tokens are larger than the address space; use a smaller --batch",
                       (unsigned)kv->n_batch);
    f->n_batch = kv->n_batch;
    f->n_workers = n_workers;
    f->model = m;
    f->kv = kv;
    f->env.kern = kern;
    f->env.exact = exact;
    f->dials = settings_lossless(&(struct settings_limits){m->shape.n_layer, m->shape.n_hash_layer, m->shape.n_used});
    rope_table_init(&f->rope, &m->shape);
    const enum mc_code code = os_mem_alloc((size_t)bytes, OS_MEM_HUGE, "activations", &f->memory, err);
    if (code) return code;
    f->memory_bytes = (size_t)bytes;
    struct arena a = {.base = f->memory};
    layout(&a, f, m, kv->n_ctx, exact);
    return MC_OK;
}

void flow_deinit(struct flow *f)
{
    if (f->memory) os_mem_free(f->memory, f->memory_bytes);
    memset(f, 0, sizeof *f);
}

/* ---- the walk ---- */

/* X[h] = embedding row of the token, for every stream; the chunk's rope angles. */
static void embed(struct flow *f, struct worker *w)
{
    const struct model *m = f->model;
    const struct model_shape *s = &m->shape;
    const size_t pairs = s->d_rope / 2;
    size_t t0, t1;
    flow_share(w, f->n, &t0, &t1);
    for (size_t t = t0; t < t1; t++) {
        float *X = f->X + t * s->hc * s->d_model;
        f->env.kern->dequantize[m->embd.type](X, m->embd.data + (size_t)f->ids[t] * m->embd.row_bytes, s->d_model);
        for (uint32_t h = 1; h < s->hc; h++) memcpy(X + (size_t)h * s->d_model, X, s->d_model * sizeof *X);
        for (unsigned kind = 0; kind < ROPE_KINDS; kind++)
            rope_angles(&f->rope, (enum rope_kind)kind, f->p0 + (uint32_t)t, f->cos[kind] + t * pairs,
                        f->sin[kind] + t * pairs);
    }
    if (w->id == w->count - 1) waves_chunk(f); /* behind the rows, which may come from the same disk */
    flow_sync(f, w);
}

static void layer(const struct layer_weights *L, struct flow *f, struct worker *w)
{
    const bool last = L->il + 1 == f->model->shape.n_layer;
    flow_enter(f, w, L->il, TRACE_HYPER_IN);
    hyper_in(&L->hyper_attn, L->attn_norm, attention_input_kinds(L), &L->q_a, f, w); /* X[n][hc][D] -> u[n][D], post, comb */
    attention(L, f, w);                                                              /* u -> y, appends cache rows */
    flow_enter(f, w, L->il, TRACE_HYPER_OUT);
    hyper_turn(&L->hyper_ffn, HYPER_Y, f, w); /* X <- post*y + comb*X, and what the next hyper_in needs of it */
    flow_enter(f, w, L->il, TRACE_HYPER_IN);
    hyper_in(&L->hyper_ffn, L->ffn_norm, moe_input_kinds(L), &L->router, f, w);
    moe(L, f, w); /* u -> results of the experts */
    flow_enter(f, w, L->il, TRACE_HYPER_OUT);
    hyper_turn(last ? NULL : &L[1].hyper_attn, HYPER_EXPERTS, f, w);
}

void forward_head(void *flow, struct worker *w)
{
    struct flow *f = flow;
    const struct matrix *W = &f->model->output;
    if (!f->n_head_rows) return;
    flow_enter(f, w, f->model->shape.n_layer, TRACE_HEAD);
    hyper_head(f, w);
    const struct product head = product_of(W, &f->u, f->logits, f->model->shape.n_vocab, f->n_head_rows);
    products_run(&f->env, &head, 1, w);
    flow_sync(f, w);
    flow_enter(f, w, 0, TRACE_OPS);
}

void forward_walk(void *flow, struct worker *w)
{
    struct flow *f = flow;
    flow_enter(f, w, f->model->shape.n_layer, TRACE_EMBED);
    embed(f, w);
    hyper_turn(&f->model->layers[0].hyper_attn, HYPER_NOTHING, f, w);
    for (uint32_t il = 0; il < f->model->shape.n_layer; il++) {
        if (w->id == 0 && il > 0 && f->go_on && !f->go_on(f->go_on_user, il))
            atomic_store_explicit(&f->stop_at, il, memory_order_relaxed); /* the layer's barriers order it */
        layer(&f->model->layers[il], f, w);
        if (atomic_load_explicit(&f->stop_at, memory_order_relaxed) <= il) {
            flow_enter(f, w, 0, TRACE_OPS);
            return;
        }
    }
    flow_enter(f, w, 0, TRACE_OPS);
    forward_head(f, w);
}
