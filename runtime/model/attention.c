/* attention.c - queries, the one key/value row, attention over window and compressed rows, grouped output (architecture.md 4).
 *
 *   u -> q_a -> norm -> qr -> q_b -> norm, rope -> q          u -> kv -> norm, rope -> raw row of the cache
 *   q . (raw window rows, compressed rows) -> o -> inverse rope -> out_a by group -> low -> out_b -> y
 *
 * Rows are visited in parts that are cut at multiples of 64 of the absolute row number, raw rows first (kernels.md 7.6). */
#include "runtime/model/forward.h"

#include <math.h>
#include <string.h>

unsigned attention_input_kinds(const struct layer_weights *L)
{
    unsigned kinds = act_kind(&L->q_a) | act_kind(&L->kv);
    if (L->ratio) kinds |= act_kind(&L->comp.kv) | act_kind(&L->comp.gate);
    if (L->ratio == 4) kinds |= act_kind(&L->index_comp.kv) | act_kind(&L->index_comp.gate) | act_kind(&L->index_proj);
    return kinds;
}

static enum rope_kind rope_of(const struct layer_weights *L)
{
    return L->ratio ? ROPE_COMPRESSED : ROPE_PLAIN;
}

static void rotate(const struct layer_weights *L, const struct flow *f, size_t t, float *head, bool inverse)
{
    const struct model_shape *s = &f->model->shape;
    const size_t pairs = s->d_rope / 2;
    const enum rope_kind kind = rope_of(L);
    f->env.kern->rope(head, f->cos[kind] + t * pairs, f->sin[kind] + t * pairs, pairs, inverse);
}

static struct product queries(const struct layer_weights *L, const struct flow *f)
{
    const struct model_shape *s = &f->model->shape;
    return product_of(&L->q_b, &f->qr, f->o.f, (size_t)s->n_head * s->d_head, f->n);
}

struct low {
    const struct flow *f;
    struct act act; /* with the format that out_b reads */
};

/* Rows [r0, r1) of a group are there: what of `low` is complete now is quantised. */
static void quantise_low(void *user, const struct product *p, uint32_t r0, uint32_t r1, uint32_t c0, uint32_t c1)
{
    const struct low *low = user;
    const struct flow *f = low->f;
    const uint32_t k = (uint32_t)f->low.k, blocks = (k + ACT_BLOCK - 1) / ACT_BLOCK;
    r0 += p->first_row, r1 += p->first_row; /* of out_a, which are the columns of out_b */
    for (uint32_t t = c0; t < c1; t++)
        for (uint32_t b = r0 / ACT_BLOCK; b * ACT_BLOCK < r1; b++) {
            const uint32_t b0 = b * ACT_BLOCK, b1 = b0 + ACT_BLOCK < k ? b0 + ACT_BLOCK : k;
            const uint32_t n = (r1 < b1 ? r1 : b1) - (r0 > b0 ? r0 : b0);
            if (flow_completes(&f->low_done[(size_t)t * blocks + b], n, b1 - b0))
                act_quantise_part(&f->env, &low->act, t, b0, b1);
        }
}

/* Group g multiplies rows g*R.. of out_a with its own heads only. */
static struct product group_output(const struct layer_weights *L, const struct flow *f, uint32_t g)
{
    const struct model_shape *s = &f->model->shape;
    struct product p = product_of(&L->out_a, &f->o, f->low.f + (size_t)g * s->o_lora, f->low.f_stride, f->n);
    p.first_row = g * s->o_lora;
    p.rows = s->o_lora;
    p.x_first = g;
    p.x_step = s->n_group;
    return p;
}

/* Everything that reads u: one phase. */
static void project_inputs(const struct layer_weights *L, struct flow *f, struct worker *w)
{
    const struct model_shape *s = &f->model->shape;
    struct product list[8];
    size_t n = 0;
    list[n++] = product_of(&L->q_a, &f->u, f->qr.f, s->q_lora, f->n);
    list[n++] = product_of(&L->kv, &f->u, f->kv_row, s->d_head, f->n);
    n += compressor_products(L, f, &f->u, list + n);
    if (indexer_needed(L, f)) list[n++] = product_of(&L->index_proj, &f->u, f->iw, s->n_index_head, f->n);
    products_run(&f->env, list, n, w);
    const struct product q_b = queries(L, f);
    product_ask(&f->env, &q_b, w);
    flow_sync(f, w);
}

/* qr and the raw row of each token. */
static void finish_rows(const struct layer_weights *L, struct flow *f, struct worker *w)
{
    const struct model_shape *s = &f->model->shape;
    const struct kern_table *k = f->env.kern;
    const struct act qr = act_select(&f->qr, act_kind(&L->q_b) | (indexer_needed(L, f) ? act_kind(&L->index_q_b) : 0));
    size_t t0, t1;
    flow_share(w, f->n, &t0, &t1);
    for (size_t t = t0; t < t1; t++) {
        float *x = qr.f + t * qr.f_stride, *kv = f->kv_row + t * s->d_head;
        k->rms_norm(x, x, L->q_a_norm, s->q_lora, s->rms_eps);
        act_quantise(&f->env, &qr, t);
        k->rms_norm(kv, kv, L->kv_norm, s->d_head, s->rms_eps);
        rotate(L, f, t, kv + s->d_head - s->d_rope, false);
        k->kv_store(kv_ring_row(&f->kv->layers[L->il].raw, f->p0 + (uint32_t)t), kv, s->d_head, f->kv->kv);
        compressor_bias(L, f, t);
    }
    flow_sync(f, w);
}

/* Queries, and the compressed rows completed in this chunk. */
static void project_queries(const struct layer_weights *L, struct flow *f, struct worker *w)
{
    const struct model_shape *s = &f->model->shape;
    struct product list[2];
    size_t n = 0;
    list[n++] = queries(L, f);
    if (indexer_needed(L, f)) list[n++] = product_of(&L->index_q_b, &f->qr, f->iq, (size_t)s->n_index_head * s->d_index, f->n);
    compressor_rows(L, f, w);
    products_run(&f->env, list, n, w);
    const struct product out = group_output(L, f, 0);
    product_ask(&f->env, &out, w);
    flow_sync(f, w);
}

/* One token, heads [h0, h0 + n_heads), being gathered part by part. */
struct gather {
    const struct flow *f;
    const struct flow_scratch *scratch;
    unsigned worker;
    bool first; /* of the tasks of its token: the others read the same rows again */
    const float *q;
    uint32_t n_heads;
    float scale;
    const void *rows[KERN_ATTEND_ROWS];
    size_t n_rows;
};

static void flush(struct gather *g)
{
    const struct flow_scratch *t = g->scratch;
    const struct model_shape *s = &g->f->model->shape;
    trace_work(g->f->env.trace, g->worker, g->first ? g->n_rows * g->f->kv->raw_row_bytes : 0,
               2 * (uint64_t)g->n_rows * g->n_heads * s->d_head);
    if (g->n_rows)
        g->f->env.kern->attend_part(t->acc, t->m, t->z, g->q, g->n_heads, s->d_head, g->rows, g->n_rows, g->f->kv->kv, g->scale,
                                    t->attend);
    g->n_rows = 0;
}

/* Raw rows of the window that ends at p. */
static void gather_raw(struct gather *g, const struct kv_layer *kv, uint32_t p)
{
    const uint32_t window = g->f->model->shape.window;
    for (uint32_t row = p + 1 > window ? p + 1 - window : 0; row <= p; row++) {
        g->rows[g->n_rows++] = kv_ring_row(&kv->raw, row);
        if ((row + 1) % KERN_ATTEND_ROWS == 0) flush(g);
    }
    flush(g);
}

/* Compressed rows: all n visible ones, or the chosen ones (ascending). */
static void gather_compressed(struct gather *g, const struct kv_layer *kv, const uint32_t *chosen, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t row = chosen ? chosen[i] : i;
        g->rows[g->n_rows++] = kv->comp + (size_t)row * g->f->kv->raw_row_bytes;
        const uint32_t next = i + 1 == n ? 0 : chosen ? chosen[i + 1] : i + 1;
        if (next / KERN_ATTEND_ROWS != row / KERN_ATTEND_ROWS) flush(g);
    }
    flush(g);
}

static void attend_heads(const struct layer_weights *L, struct flow *f, size_t t, uint32_t h0, uint32_t n_heads,
                         unsigned worker)
{
    const struct model_shape *s = &f->model->shape;
    const struct kern_table *k = f->env.kern;
    const struct kv_layer *kv = &f->kv->layers[L->il];
    const struct flow_scratch *scratch = &f->scratch[worker];
    const uint32_t p = f->p0 + (uint32_t)t, visible = L->ratio ? (p + 1) / L->ratio : 0;
    float *q = f->o.f + (t * s->n_head + h0) * s->d_head;
    struct gather g = {.f = f,
                       .scratch = scratch,
                       .worker = worker,
                       .first = h0 == 0,
                       .q = q,
                       .n_heads = n_heads,
                       .scale = 1.0f / sqrtf((float)s->d_head)};

    for (uint32_t h = 0; h < n_heads; h++) {
        float *head = q + (size_t)h * s->d_head;
        k->rms_norm(head, head, NULL, s->d_head, s->rms_eps);
        rotate(L, f, t, head + s->d_head - s->d_rope, false);
        scratch->m[h] = L->sinks[h0 + h];
        scratch->z[h] = 1.0f;
    }
    memset(scratch->acc, 0, (size_t)n_heads * s->d_head * sizeof(float));
    gather_raw(&g, kv, p);
    if (L->ratio == 4 && visible > s->index_top_k)
        gather_compressed(&g, kv, f->chosen + t * s->index_top_k, s->index_top_k);
    else
        gather_compressed(&g, kv, NULL, visible);
    k->attend_finish(q, scratch->acc, scratch->z, n_heads, s->d_head);
    for (uint32_t h = 0; h < n_heads; h++) rotate(L, f, t, q + (size_t)(h + 1) * s->d_head - s->d_rope, true);
}

/* Heads of one task. Few heads share the work among more workers, many heads pay once for converting the rows, which costs as
 * much as ROW_HEADS heads. */
enum { ROW_HEADS = 3, QUANT_BLOCK = 256 };

static uint32_t heads_of_task(const struct model_shape *s, size_t n_tokens, unsigned n_workers)
{
    const uint32_t group = s->n_head / s->n_group;
    uint32_t best = 1;
    size_t best_time = SIZE_MAX;
    for (uint32_t heads = s->n_head; heads >= 1; heads--) {
        if (s->n_head % heads || (heads % group && (group % heads || heads * s->d_head % QUANT_BLOCK))) continue;
        const size_t tasks = n_tokens * (s->n_head / heads), turns = (tasks + n_workers - 1) / n_workers;
        const size_t time = turns * (heads + ROW_HEADS);
        if (time < best_time) best_time = time, best = heads;
    }
    return best;
}

/* Heads [h0, h1) of token t for out_a: a row of `o` is a group of heads. */
static void quantise_heads(struct flow *f, const struct act *o, size_t t, uint32_t h0, uint32_t h1)
{
    const struct model_shape *s = &f->model->shape;
    const uint32_t group = s->n_head / s->n_group;
    for (uint32_t g = h0 / group; g * group < h1; g++) {
        const uint32_t first = g * group, from = h0 > first ? h0 - first : 0, to = h1 - first < group ? h1 - first : group;
        act_quantise_part(&f->env, o, t * s->n_group + g, (size_t)from * s->d_head, (size_t)to * s->d_head);
    }
}

/* o[t][H][Dh]: queries in, attention result out. */
static void attend(const struct layer_weights *L, struct flow *f, struct worker *w)
{
    const struct model_shape *s = &f->model->shape;
    const struct act o = act_select(&f->o, act_kind(&L->out_a));
    const uint32_t heads = heads_of_task(s, f->n, w->count);
    const size_t tasks = s->n_head / heads;
    compressor_keep(L, f, w);
    for (size_t i = w->id; i < f->n * tasks; i += w->count) { /* later tokens see more rows: everyone gets some of each */
        const size_t t = i / tasks;
        const uint32_t h0 = (uint32_t)(i % tasks) * heads;
        attend_heads(L, f, t, h0, heads, w->id);
        quantise_heads(f, &o, t, h0, h0 + heads);
    }
    flow_sync(f, w);
}

static void project_output(const struct layer_weights *L, struct flow *f, struct worker *w)
{
    const struct model_shape *s = &f->model->shape;
    struct low low = {f, act_select(&f->low, act_kind(&L->out_b))};
    const struct product out = product_of(&L->out_b, &low.act, f->y, s->d_model, f->n);
    struct product list[16]; /* one call lists up to 16 groups */
    for (uint32_t g = 0; g < s->n_group;) {
        size_t n = 0;
        for (; g < s->n_group && n < 16; g++, n++) {
            list[n] = group_output(L, f, g);
            if (!f->env.exact) list[n].finish = quantise_low;
            list[n].user = &low;
        }
        products_run(&f->env, list, n, w);
        if (g == s->n_group) product_ask(&f->env, &out, w);
        flow_sync(f, w);
    }
    flow_enter(f, w, L->il, TRACE_OUT_B);
    products_run(&f->env, &out, 1, w);
    flow_sync(f, w);
}

void attention(const struct layer_weights *L, struct flow *f, struct worker *w)
{
    flow_enter(f, w, L->il, TRACE_INPUTS);
    project_inputs(L, f, w);
    flow_enter(f, w, L->il, TRACE_ROWS);
    finish_rows(L, f, w);
    flow_enter(f, w, L->il, TRACE_QUERIES);
    project_queries(L, f, w);
    if (indexer_needed(L, f)) {
        flow_enter(f, w, L->il, TRACE_INDEX);
        indexer_choose(L, f, w);
    }
    flow_enter(f, w, L->il, TRACE_ATTEND);
    attend(L, f, w);
    flow_enter(f, w, L->il, TRACE_OUT_A);
    project_output(L, f, w);
}
