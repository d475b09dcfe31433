/* moe.c - the experts: gate and up of all of them as one phase, down as another (architecture.md 7).
 *
 * The rows of a chunk are grouped by expert, so each expert's weights are read once. A token's results wait in expert_out by
 * slot (the router's order, the shared expert last) and are added in that order, whoever was computed first (kernels.md 7.7).
 */
#include "runtime/model/forward.h"

#include <string.h>

unsigned moe_input_kinds(const struct layer_weights *L)
{
    return act_kind(&L->router) | act_kind(&L->gate) | act_kind(&L->up) | act_kind(&L->gate_shared) | act_kind(&L->up_shared);
}

/* expert_first, expert_tokens, expert_slots: counting sort of (token, i) by expert; tokens stay in order. */
static void group_by_expert(struct flow *f)
{
    const struct model_shape *s = &f->model->shape;
    const size_t n = (size_t)f->n * s->n_used;
    uint32_t *first = f->expert_first;
    memset(first, 0, (s->n_expert + 1) * sizeof *first);
    for (size_t i = 0; i < n; i++) first[f->expert_ids[i] + 1]++;
    for (uint32_t e = 0; e < s->n_expert; e++) first[e + 1] += first[e];
    for (size_t i = 0; i < n; i++) {
        const uint32_t at = first[f->expert_ids[i]]++;
        f->expert_tokens[at] = (uint32_t)(i / s->n_used);
        f->expert_slots[at] = (uint32_t)(i / s->n_used * (s->n_used + 1) + i % s->n_used);
    }
    memmove(first + 1, first, s->n_expert * sizeof *first);
    first[0] = 0;
}

static struct product expert_product(const struct flow *f, const struct matrix *W, uint32_t e, const struct act *x,
                                     const uint32_t *x_rows, float *y, size_t y_stride)
{
    const uint32_t first = f->expert_first[e];
    struct product p = product_of(W, x, y, y_stride, f->expert_first[e + 1] - first);
    p.first_row = e * W->rows;
    p.x_rows = x_rows + first;
    p.y_rows = f->expert_slots + first;
    return p;
}

/* The two task lists; one worker only. */
static void list_products(const struct layer_weights *L, struct flow *f)
{
    const struct model_shape *s = &f->model->shape;
    const uint32_t slots = s->n_used + 1; /* of a token */
    struct product *in = f->moe_in, *out = f->moe_out;
    for (uint32_t e = 0; e < s->n_expert; e++) {
        if (f->expert_first[e] == f->expert_first[e + 1]) continue;
        *in++ = expert_product(f, &L->gate, e, &f->u, f->expert_tokens, f->h.f, s->d_expert);
        *in++ = expert_product(f, &L->up, e, &f->u, f->expert_tokens, f->up, s->d_expert);
        *out++ = expert_product(f, &L->down, e, &f->h, f->expert_slots, f->expert_out, s->d_model);
    }
    const size_t h_off = (size_t)s->n_used * s->d_expert;
    *in++ = product_of(&L->gate_shared, &f->u, f->h.f + h_off, (size_t)slots * s->d_expert, f->n);
    *in++ = product_of(&L->up_shared, &f->u, f->up + h_off, (size_t)slots * s->d_expert, f->n);
    *out = product_of(&L->down_shared, &f->h, f->expert_out + (size_t)s->n_used * s->d_model, (size_t)slots * s->d_model, f->n);
    out->x_first = s->n_used;
    out->x_step = slots;
    out++;
    f->n_moe_in = (uint32_t)(in - f->moe_in);
    f->n_moe_out = (uint32_t)(out - f->moe_out);
}

/* h = silu(gate) * up for every slot, quantised as that slot's down matrix wants it. */
static void activate(const struct layer_weights *L, struct flow *f, struct worker *w)
{
    const struct model_shape *s = &f->model->shape;
    const uint32_t slots = s->n_used + 1;
    const struct act routed = act_select(&f->h, act_kind(&L->down)), shared = act_select(&f->h, act_kind(&L->down_shared));
    size_t i0, i1;
    flow_share(w, (size_t)f->n * slots, &i0, &i1);
    for (size_t i = i0; i < i1; i++) {
        const bool is_shared = i % slots == s->n_used;
        float *h = f->h.f + i * s->d_expert;
        f->env.kern->swiglu(h, h, f->up + i * s->d_expert, s->d_expert, is_shared ? s->clamp_shared[L->il] : s->clamp[L->il]);
        act_quantise(&f->env, is_shared ? &shared : &routed, i);
    }
    flow_sync(f, w);
}

/* No sync: hyper_out, which reads y, gives every worker the same blocks. */
static void combine(struct flow *f, struct worker *w)
{
    const struct model_shape *s = &f->model->shape;
    const uint32_t slots = s->n_used + 1;
    const size_t blocks = (s->d_model + HYPER_CHUNK - 1) / HYPER_CHUNK;
    size_t i0, i1;
    flow_share(w, f->n * blocks, &i0, &i1);
    for (size_t i = i0; i < i1; i++) {
        const size_t t = i / blocks, at = i % blocks * HYPER_CHUNK;
        const size_t n = at + HYPER_CHUNK < s->d_model ? HYPER_CHUNK : s->d_model - at;
        const float *e[MODEL_USED_MAX + 1];
        for (uint32_t j = 0; j < slots; j++) e[j] = f->expert_out + (t * slots + j) * s->d_model + at;
        f->env.kern->combine(f->y + t * s->d_model + at, e, f->expert_w + t * slots, slots, n);
    }
}

void moe(const struct layer_weights *L, struct flow *f, struct worker *w)
{
    flow_enter(f, w, L->il, TRACE_ROUTER);
    router(L, f, w);
    if (f->n > 1) flow_sync(f, w);
    if (w->id == w->count - 1) { /* who has chosen the experts of a single token */
        group_by_expert(f);
        list_products(L, f);
    }
    flow_sync(f, w);
    flow_enter(f, w, L->il, TRACE_EXPERTS_IN);
    products_run(&f->env, f->moe_in, f->n_moe_in, w);
    flow_sync(f, w);
    flow_enter(f, w, L->il, TRACE_ACTIVATE);
    activate(L, f, w);
    flow_enter(f, w, L->il, TRACE_EXPERTS_OUT);
    products_run(&f->env, f->moe_out, f->n_moe_out, w);
    flow_sync(f, w);
    flow_enter(f, w, L->il, TRACE_HYPER_OUT);
    combine(f, w);
}
