/* moe.c - the experts: gate and up of all of them as one phase, down as another (architecture.md 7).
 *
 * The rows of a chunk are grouped by expert, so each expert's weights are read once. A token's results wait in expert_out by
 * slot (the router's order, the shared expert last) and are added in that order, whoever was computed first (kernels.md 7.7).
 *
 * Where the dials leave out rows of up, the gate comes first: its result ranks the rows of each stratum of 128, and up is a
 * phase of its own. The strata are those of the matrix, so the choice depends on nothing else. A single token reads only the
 * kept rows if the matrix is in the file's layout; packed matrices, and experts that several tokens of a chunk share, compute
 * all rows and use the kept ones, which are the same bits. */
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
    for (size_t i = 0; i < n; i++)
        if (f->expert_ids[i] >= 0) first[f->expert_ids[i] + 1]++;
    for (uint32_t e = 0; e < s->n_expert; e++) first[e + 1] += first[e];
    for (size_t i = 0; i < n; i++) {
        if (f->expert_ids[i] < 0) continue; /* left out */
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

static size_t n_strata(const struct model_shape *s)
{
    return (s->d_expert + KERN_STRATUM - 1) / KERN_STRATUM;
}

/* Is up of this matrix computed for the kept rows alone? */
static bool gathers(const struct matrix *W, uint32_t cols)
{
    return !W->packed && cols == 1;
}

/* The product of up where rows are left out: `slot` is that of the column if there is only one. */
static struct product up_product(const struct flow *f, struct product p, uint32_t rows, size_t slot)
{
    if (!gathers(p.W, p.cols)) return p;
    p.kept = f->kept + slot * n_strata(&f->model->shape);
    p.rows = (uint32_t)kern_rows_kept(p.W->rows, rows);
    return p;
}

static void count(const struct layer_weights *L, struct flow *f, const struct layer_dials *d)
{
    const struct model_shape *s = &f->model->shape;
    struct flow_counts *c = &f->counts;
    const uint64_t used = f->expert_first[s->n_expert], dropped = (uint64_t)f->n * s->n_used - used;
    const uint64_t exps = kern_rows_kept(s->d_expert, d->rows_exps), shexp = kern_rows_kept(s->d_expert, d->rows_shexp);
    const uint64_t rows = used * exps + f->n * shexp, skipped = (used + f->n) * s->d_expert - rows;
    c->experts_used += used;
    c->experts_dropped += dropped;
    c->rows_computed += rows;
    c->rows_skipped += skipped;
    if (f->n > 1) return;
    c->bytes_saved += dropped * (matrix_bytes(&L->gate) + matrix_bytes(&L->up) + matrix_bytes(&L->down)) / s->n_expert;
    if (gathers(&L->up, 1)) c->bytes_saved += used * (s->d_expert - exps) * L->up.row_bytes;
    if (gathers(&L->up_shared, 1)) c->bytes_saved += (s->d_expert - shexp) * L->up_shared.row_bytes;
}

/* The task lists; one worker only. */
static void list_products(const struct layer_weights *L, struct flow *f, const struct layer_dials *d)
{
    const struct model_shape *s = &f->model->shape;
    const uint32_t slots = s->n_used + 1; /* of a token */
    struct product *in = f->moe_in, *up = f->moe_up, *out = f->moe_out;
    for (uint32_t e = 0; e < s->n_expert; e++) {
        if (f->expert_first[e] == f->expert_first[e + 1]) continue;
        *in++ = expert_product(f, &L->gate, e, &f->u, f->expert_tokens, f->h.f, s->d_expert);
        const struct product p = expert_product(f, &L->up, e, &f->u, f->expert_tokens, f->up, s->d_expert);
        if (d->rows_exps)
            *up++ = up_product(f, p, d->rows_exps, f->expert_slots[f->expert_first[e]]);
        else
            *in++ = p;
        *out++ = expert_product(f, &L->down, e, &f->h, f->expert_slots, f->expert_out, s->d_model);
    }
    const size_t h_off = (size_t)s->n_used * s->d_expert;
    *in++ = product_of(&L->gate_shared, &f->u, f->h.f + h_off, (size_t)slots * s->d_expert, f->n);
    const struct product p = product_of(&L->up_shared, &f->u, f->up + h_off, (size_t)slots * s->d_expert, f->n);
    if (d->rows_shexp)
        *up++ = up_product(f, p, d->rows_shexp, s->n_used);
    else
        *in++ = p;
    *out = product_of(&L->down_shared, &f->h, f->expert_out + (size_t)s->n_used * s->d_model, (size_t)slots * s->d_model, f->n);
    out->x_first = s->n_used;
    out->x_step = slots;
    out++;
    f->n_moe_in = (uint32_t)(in - f->moe_in);
    f->n_moe_up = (uint32_t)(up - f->moe_up);
    f->n_moe_out = (uint32_t)(out - f->moe_out);
}

/* What slot i of the chunk belongs to. */
struct slot {
    bool used, shared, packed; /* packed: the kept rows of up stand close together */
    uint32_t rows;             /* kept of each stratum; 0: all */
    float limit;
};

static struct slot slot_at(const struct layer_weights *L, const struct flow *f, const struct layer_dials *d, size_t i)
{
    const struct model_shape *s = &f->model->shape;
    const uint32_t slots = s->n_used + 1, j = (uint32_t)(i % slots);
    if (j == s->n_used) return (struct slot){true, true, gathers(&L->up_shared, f->n), d->rows_shexp, s->clamp_shared[L->il]};
    const int32_t e = f->expert_ids[i / slots * s->n_used + j];
    if (e < 0) return (struct slot){.used = false};
    const uint32_t cols = f->expert_first[e + 1] - f->expert_first[e];
    return (struct slot){true, false, gathers(&L->up, cols), d->rows_exps, s->clamp[L->il]};
}

/* Rows of a stratum. */
static size_t stratum_rows(const struct model_shape *s, size_t stratum)
{
    const size_t left = s->d_expert - stratum * KERN_STRATUM;
    return left < KERN_STRATUM ? left : KERN_STRATUM;
}

/* gate -> silu(gate) and the kept rows, stratum by stratum, where rows are left out. */
static void choose_rows(const struct layer_weights *L, struct flow *f, const struct layer_dials *d, struct worker *w)
{
    const struct model_shape *s = &f->model->shape;
    const size_t strata = n_strata(s);
    size_t i0, i1;
    flow_share(w, (size_t)f->n * (s->n_used + 1) * strata, &i0, &i1);
    for (size_t i = i0; i < i1; i++) {
        const struct slot slot = slot_at(L, f, d, i / strata);
        if (!slot.used || !slot.rows) continue;
        const size_t n = stratum_rows(s, i % strata);
        float *h = f->h.f + i / strata * s->d_expert + i % strata * KERN_STRATUM;
        f->env.kern->gate(h, h, n, slot.limit);
        kern_keep_rows(&f->kept[i], h, n, kern_rows_kept(n, slot.rows));
    }
    flow_sync(f, w);
}

/* h = silu(gate) * up where choose_rows has been. */
static void activate_kept(struct flow *f, const struct slot *slot, size_t i)
{
    const struct model_shape *s = &f->model->shape;
    const struct kern_kept *kept = f->kept + i * n_strata(s);
    float *h = f->h.f + i * s->d_expert;
    const float *up = f->up + i * s->d_expert;
    for (size_t at = 0; at < n_strata(s); at++) {
        const size_t n = stratum_rows(s, at);
        kern_kept_times_up(h, h, up, n, &kept[at], slot->packed, slot->limit);
        h += n;
        up += slot->packed ? kept[at].n : n;
    }
}

/* h = silu(gate) * up for every slot, quantised as that slot's down matrix wants it. */
static void activate(const struct layer_weights *L, struct flow *f, const struct layer_dials *d, struct worker *w)
{
    const struct model_shape *s = &f->model->shape;
    const struct act routed = act_select(&f->h, act_kind(&L->down)), shared = act_select(&f->h, act_kind(&L->down_shared));
    size_t i0, i1;
    flow_share(w, (size_t)f->n * (s->n_used + 1), &i0, &i1);
    for (size_t i = i0; i < i1; i++) {
        const struct slot slot = slot_at(L, f, d, i);
        if (!slot.used) continue;
        float *h = f->h.f + i * s->d_expert;
        if (slot.rows)
            activate_kept(f, &slot, i);
        else
            f->env.kern->swiglu(h, h, f->up + i * s->d_expert, s->d_expert, slot.limit);
        act_quantise(&f->env, slot.shared ? &shared : &routed, i);
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
        float weight[MODEL_USED_MAX + 1];
        uint32_t m = 0;
        for (uint32_t j = 0; j < slots; j++) {
            if (j < s->n_used && f->expert_ids[t * s->n_used + j] < 0) continue;
            e[m] = f->expert_out + (t * slots + j) * s->d_model + at;
            weight[m++] = f->expert_w[t * slots + j];
        }
        f->env.kern->combine(f->y + t * s->d_model + at, e, weight, m, n);
    }
}

void moe(const struct layer_weights *L, struct flow *f, struct worker *w)
{
    const struct layer_dials dials = dials_of(L, f);
    flow_enter(f, w, L->il, TRACE_ROUTER);
    router(L, f, w);
    if (f->n > 1) flow_sync(f, w);
    if (w->id == w->count - 1) { /* who has chosen the experts of a single token */
        group_by_expert(f);
        list_products(L, f, &dials);
        count(L, f, &dials);
    }
    flow_sync(f, w);
    flow_enter(f, w, L->il, TRACE_EXPERTS_IN);
    products_run(&f->env, f->moe_in, f->n_moe_in, w);
    flow_sync(f, w);
    flow_enter(f, w, L->il, TRACE_ACTIVATE);
    if (dials.rows_exps || dials.rows_shexp) {
        choose_rows(L, f, &dials, w);
        flow_enter(f, w, L->il, TRACE_EXPERTS_IN);
        products_run(&f->env, f->moe_up, f->n_moe_up, w);
        flow_sync(f, w);
        flow_enter(f, w, L->il, TRACE_ACTIVATE);
    }
    activate(L, f, &dials, w);
    flow_enter(f, w, L->il, TRACE_EXPERTS_OUT);
    products_run(&f->env, f->moe_out, f->n_moe_out, w);
    flow_sync(f, w);
    flow_enter(f, w, L->il, TRACE_HYPER_OUT);
    combine(f, w);
}
