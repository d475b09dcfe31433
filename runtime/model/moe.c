/* moe.c - the experts: gate and up of all of them as one phase, down as another (architecture.md 7).
 *
 * The rows of a chunk are grouped by expert, so each expert's weights are read once. A token's results wait in expert_out by
 * slot (the router's order, the shared expert last) and are added in that order, whoever was computed first (kernels.md 7.7).
 *
 * Where the dials leave out rows of up, the gate comes first: its result ranks the rows of each stratum of 128, and up is a
 * phase of its own. The strata are those of the matrix, so the choice depends on nothing else. A single token reads only the
 * kept rows if the matrix is in the file's layout; packed matrices, and experts that several tokens of a chunk share, compute
 * all rows and use the kept ones, which are the same bits.
 *
 * Experts that are read from the file while the model runs come in waves (expert_waves.h): each wave goes through all of this,
 * and what has arrived meanwhile is the next one.
 *
 * Where all rows count there is no phase for SwiGLU: whoever computes the last gate or up row of a block of 256 multiplies the
 * two and quantises the block for down. A worker's home has the same rows of both, so that is the one that computed them. */
#include "runtime/model/forward.h"

#include "io/experts/expert_cache.h"

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

static struct product expert_product(const struct flow *f, const struct matrix *W, unsigned piece, uint32_t e,
                                     const struct act *x, const uint32_t *x_rows, float *y, size_t y_stride)
{
    const uint32_t first = f->expert_first[e];
    uint32_t first_row;
    struct product p = product_of(wave_matrix(f, W, e, piece, &first_row), x, y, y_stride, f->expert_first[e + 1] - first);
    p.first_row = first_row;
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

/* Rows [r0, r1) of gate or up of some slots are there: SwiGLU and quantising of the blocks that are complete now. */
static void activate_tile(void *user, const struct product *p, uint32_t r0, uint32_t r1, uint32_t c0, uint32_t c1)
{
    const struct moe_gated *g = user;
    const struct flow *f = g->f;
    const struct model_shape *s = &f->model->shape;
    const uint32_t k = s->d_expert, blocks = (k + ACT_BLOCK - 1) / ACT_BLOCK;
    for (uint32_t c = c0; c < c1; c++) {
        const size_t slot = p->y_rows ? p->y_rows[c] : (size_t)c * (s->n_used + 1) + s->n_used;
        for (uint32_t b = r0 / ACT_BLOCK; b * ACT_BLOCK < r1; b++) {
            const uint32_t b0 = b * ACT_BLOCK, b1 = b0 + ACT_BLOCK < k ? b0 + ACT_BLOCK : k;
            const uint32_t n = (r1 < b1 ? r1 : b1) - (r0 > b0 ? r0 : b0);
            if (!flow_completes(&f->h_done[slot * blocks + b], n, 2 * (b1 - b0))) continue;
            float *h = f->h.f + slot * k + b0;
            f->env.kern->swiglu(h, h, f->up + slot * k + b0, b1 - b0, g->limit);
            act_quantise_part(&f->env, &g->h, slot, b0, b1);
        }
    }
}

/* gate and up, one behind the other where no rows are left out; else up goes on the list of its own. */
static void list_pair(struct flow *f, struct product gate, struct product up, uint32_t rows, size_t slot,
                      struct moe_gated *gated)
{
    if (rows) {
        f->moe_in[f->n_moe_in++] = gate;
        f->moe_up[f->n_moe_up++] = up_product(f, up, rows, slot);
        return;
    }
    gate.finish = up.finish = activate_tile;
    gate.user = up.user = gated;
    f->moe_in[f->n_moe_in++] = gate;
    f->moe_in[f->n_moe_in++] = up;
}

/* The shared expert: its rows are the same for every token. */
static void list_shared(const struct layer_weights *L, struct flow *f, const struct layer_dials *d)
{
    const struct model_shape *s = &f->model->shape;
    const uint32_t slots = s->n_used + 1; /* of a token */
    const size_t h_off = (size_t)s->n_used * s->d_expert, h_stride = (size_t)slots * s->d_expert;
    const struct product up = product_of(&L->up_shared, &f->u, f->up + h_off, h_stride, f->n);
    list_pair(f, product_of(&L->gate_shared, &f->u, f->h.f + h_off, h_stride, f->n), up, d->rows_shexp, s->n_used,
              &f->gated[1]);
    struct product *out = &f->moe_out[f->n_moe_out++];
    *out = product_of(&L->down_shared, &f->h, f->expert_out + (size_t)s->n_used * s->d_model, (size_t)slots * s->d_model, f->n);
    out->x_first = s->n_used;
    out->x_step = slots;
}

static void list_expert(const struct layer_weights *L, struct flow *f, const struct layer_dials *d, uint32_t e)
{
    const struct model_shape *s = &f->model->shape;
    const struct product gate = expert_product(f, &L->gate, EXPERT_GATE, e, &f->u, f->expert_tokens, f->h.f, s->d_expert);
    const struct product up = expert_product(f, &L->up, EXPERT_UP, e, &f->u, f->expert_tokens, f->up, s->d_expert);
    list_pair(f, gate, up, d->rows_exps, f->expert_slots[f->expert_first[e]], &f->gated[0]);
    f->moe_out[f->n_moe_out++] = expert_product(f, &L->down, EXPERT_DOWN, e, &f->h, f->expert_slots, f->expert_out, s->d_model);
}

/* The task lists of the next wave; one worker only. The shared expert goes with the first. */
static void list_wave(const struct layer_weights *L, struct flow *f, const struct layer_dials *d)
{
    const struct model_shape *s = &f->model->shape;
    waves_next(L, f);
    f->gated[0] = (struct moe_gated){f, act_select(&f->h, act_kind(&L->down)), s->clamp[L->il]};
    f->gated[1] = (struct moe_gated){f, act_select(&f->h, act_kind(&L->down_shared)), s->clamp_shared[L->il]};
    f->n_moe_in = f->n_moe_up = f->n_moe_out = 0;
    if (f->waves.first) list_shared(L, f, d);
    for (uint32_t e = 0; e < s->n_expert; e++)
        if (f->waves.state[e] == WAVE_NOW) list_expert(L, f, d, e);
    if (f->waves.first && f->waves.guessing)
        f->moe_in[f->n_moe_in++] = product_of(&L[1].router, &f->u, f->waves.guess_logits, s->n_expert, 1);
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
    if (j == s->n_used)
        return (struct slot){f->waves.first, true, gathers(&L->up_shared, f->n), d->rows_shexp, s->clamp_shared[L->il]};
    const int32_t e = f->expert_ids[i / slots * s->n_used + j];
    if (e < 0 || f->waves.state[e] != WAVE_NOW) return (struct slot){.used = false}; /* left out, or not in this wave */
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

/* The gate chooses rows of up, then h is made from those. */
static void run_kept_rows(const struct layer_weights *L, struct flow *f, const struct layer_dials *d, struct worker *w)
{
    const struct model_shape *s = &f->model->shape;
    size_t i0, i1;
    flow_enter(f, w, L->il, TRACE_ACTIVATE);
    choose_rows(L, f, d, w);
    flow_enter(f, w, L->il, TRACE_EXPERTS_IN);
    products_run(&f->env, f->moe_up, f->n_moe_up, w);
    flow_sync(f, w);
    flow_enter(f, w, L->il, TRACE_ACTIVATE);
    flow_share(w, (size_t)f->n * (s->n_used + 1), &i0, &i1);
    for (size_t i = i0; i < i1; i++) {
        const struct slot slot = slot_at(L, f, d, i);
        if (!slot.used || !slot.rows) continue;
        activate_kept(f, &slot, i);
        act_quantise(&f->env, &f->gated[slot.shared].h, i);
    }
    flow_sync(f, w);
}

void moe_combine(struct flow *f, size_t t, size_t at, size_t n)
{
    const struct model_shape *s = &f->model->shape;
    const uint32_t slots = s->n_used + 1;
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

/* The experts whose weights are there: gate, up and down. */
static void run_wave(const struct layer_weights *L, struct flow *f, const struct layer_dials *d, struct worker *w)
{
    flow_enter(f, w, L->il, TRACE_EXPERTS_IN);
    products_run(&f->env, f->moe_in, f->n_moe_in, w);
    if (f->n_moe_out) product_ask(&f->env, f->moe_out, w);
    flow_sync(f, w);
    if (d->rows_exps || d->rows_shexp) run_kept_rows(L, f, d, w);
    flow_enter(f, w, L->il, TRACE_EXPERTS_OUT);
    products_run(&f->env, f->moe_out, f->n_moe_out, w);
    flow_sync(f, w);
}

void moe(const struct layer_weights *L, struct flow *f, struct worker *w)
{
    const struct layer_dials dials = dials_of(L, f);
    const bool leads = w->id == w->count - 1; /* who has chosen the experts of a single token */
    flow_enter(f, w, L->il, TRACE_ROUTER);
    router(L, f, w);
    if (f->n > 1) flow_sync(f, w);
    if (leads) {
        group_by_expert(f);
        waves_layer(L, f);
        list_wave(L, f, &dials);
        count(L, f, &dials);
    }
    flow_sync(f, w);
    for (;;) {
        const bool last = f->waves.last; /* before the leader goes on */
        run_wave(L, f, &dials, w);
        if (last) break;
        if (leads) list_wave(L, f, &dials);
        flow_sync(f, w);
    }
    if (leads) waves_end(L, f);
}
