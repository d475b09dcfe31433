/* hyper.c - hyper-connections: what a sub-layer reads from the residual streams and how they are mixed behind it
 * (architecture.md 3).
 *
 * The mixing matrix has few rows and very many columns, so its product is cut into chunks of HYPER_CHUNK columns that workers
 * share; partial sums and sums of squares are added in chunk order (kernels.md 7.4, 7.5).
 *
 * Between two sub-layers a worker has a block of columns of all streams: it adds the result to them, multiplies the same
 * columns with the next mixing matrix while they are in its cache, and behind the barrier reads them once more for the input
 * of the next sub-layer. */
#include "runtime/model/forward.h"

#include <math.h>

enum { TOKEN_TILE = 16 };

static const float *stream_row(const struct flow *f, const uint32_t *rows, size_t t)
{
    const struct model_shape *s = &f->model->shape;
    return f->X + (size_t)(rows ? rows[t] : t) * s->hc * s->d_model;
}

/* Columns of a block: a chunk of each stream, or all where chunks and streams do not end together. */
static size_t block_columns(const struct model_shape *s)
{
    return s->d_model % HYPER_CHUNK ? s->d_model : HYPER_CHUNK;
}

/* One chunk of hyper_parts of tokens [t0, t1) (rows[t], or t): n_mix partial products and a partial sum of squares. */
static void chunk_parts(const struct matrix *fn, const uint32_t *rows, size_t chunk, size_t t0, size_t t1, struct flow *f,
                        unsigned worker)
{
    const size_t n_mix = fn->rows, stride = n_mix + 1, at = chunk * HYPER_CHUNK, bytes = quant_info(fn->type)->block_bytes;
    const size_t k = at + HYPER_CHUNK < fn->k ? HYPER_CHUNK : fn->k - at;
    const void *x[TOKEN_TILE];
    float *y[TOKEN_TILE];
    for (size_t t = t0; t < t1; t++) {
        x[t - t0] = stream_row(f, rows, t) + at;
        y[t - t0] = f->hyper_parts + (t * f->n_hyper_chunks + chunk) * stride;
        y[t - t0][n_mix] = f->env.kern->sum_squares(x[t - t0], k);
    }
    trace_work(f->env.trace, worker, t0 ? 0 : n_mix * k * bytes, n_mix * k * (t1 - t0));
    f->env.kern->matmul[fn->type](y, fn->data + at * bytes, fn->row_bytes, x, k, n_mix, t1 - t0);
}

/* hyper_parts of a block of columns, chunk by chunk. */
static void block_parts(const struct matrix *fn, const uint32_t *rows, size_t at, size_t t0, size_t t1, struct flow *f,
                        unsigned worker)
{
    const struct model_shape *s = &f->model->shape;
    const bool whole = block_columns(s) != HYPER_CHUNK;
    const size_t step = whole ? 1 : s->d_model / HYPER_CHUNK;
    for (size_t chunk = whole ? 0 : at / HYPER_CHUNK; chunk < f->n_hyper_chunks; chunk += step)
        chunk_parts(fn, rows, chunk, t0, t1, f, worker);
}

/* X <- post*y + comb*X in columns [at, at + n) of token t. */
static void write_streams(struct flow *f, size_t t, size_t at, size_t n)
{
    const struct model_shape *s = &f->model->shape;
    f->env.kern->hyper_write(f->X + t * s->hc * s->d_model + at, s->d_model, f->y + t * s->d_model + at, f->post + t * s->hc,
                             f->comb + t * s->hc * s->hc, s->hc, n);
}

void hyper_turn(const struct hyper_weights *next, enum hyper_result result, struct flow *f, struct worker *w)
{
    const struct model_shape *s = &f->model->shape;
    const size_t n = block_columns(s), tiles = (f->n + TOKEN_TILE - 1) / TOKEN_TILE;
    size_t i0, i1;
    flow_share(w, s->d_model / n * tiles, &i0, &i1);
    for (size_t i = i0; i < i1; i++) {
        const size_t at = i / tiles * n, t0 = i % tiles * TOKEN_TILE;
        const size_t t1 = t0 + TOKEN_TILE < f->n ? t0 + TOKEN_TILE : f->n;
        for (size_t t = t0; result != HYPER_NOTHING && t < t1; t++) {
            if (result == HYPER_EXPERTS) moe_combine(f, t, at, n);
            write_streams(f, t, at, n);
        }
        if (next) block_parts(&next->fn, NULL, at, t0, t1, f, w->id);
    }
    flow_sync(f, w);
}

/* m[n_mix] of token t: parts in chunk order, times the norm of the flat streams. */
static void mix_inputs(const struct matrix *fn, const struct flow *f, size_t t, float *m)
{
    const size_t n_mix = fn->rows, stride = n_mix + 1;
    const float *p = f->hyper_parts + t * f->n_hyper_chunks * stride;
    float sum[MODEL_HC_MAX * (MODEL_HC_MAX + 2) + 1] = {0};
    for (size_t chunk = 0; chunk < f->n_hyper_chunks; chunk++, p += stride)
        for (size_t j = 0; j < stride; j++) sum[j] += p[j];
    const float r = 1.0f / sqrtf(sum[n_mix] / (float)fn->k + f->model->shape.rms_eps);
    for (size_t j = 0; j < n_mix; j++) m[j] = sum[j] * r;
}

/* Who reads the streams: which tokens' (rows[t], or t), into which rows of u, and the matrix that is first to read those. */
struct reader {
    const struct hyper_weights *h;
    const float *norm;
    const uint32_t *rows;
    uint32_t n;
    struct act u;
    const struct matrix *first;
};

static void read_weights(const struct reader *r, const struct flow *f, size_t t, float *pre)
{
    const struct model_shape *s = &f->model->shape;
    float m[MODEL_HC_MAX * (MODEL_HC_MAX + 2)];
    mix_inputs(&r->h->fn, f, t, m);
    kern_hyper_head(pre, m, r->h->scale, r->h->base, s->hc, s->hc_eps);
}

/* Fewer tokens than workers: each reads the blocks of columns that it has just written; one barrier more, for the norm. */
static void read_blocks(const struct reader *r, struct flow *f, struct worker *w)
{
    const struct model_shape *s = &f->model->shape;
    const size_t n = block_columns(s), blocks = s->d_model / n;
    float pre[MODEL_HC_MAX];
    size_t i0, i1;
    flow_share(w, r->n * blocks, &i0, &i1);
    for (size_t i = i0; i < i1; i++) {
        const size_t t = i / blocks, at = i % blocks * n;
        float *x = r->u.f + t * r->u.f_stride + at;
        if (i == i0 || at == 0) read_weights(r, f, t, pre);
        f->env.kern->hyper_read(x, stream_row(f, r->rows, t) + at, s->d_model, pre, s->hc, n);
        f->norm_parts[i] = f->env.kern->sum_squares(x, n);
    }
    flow_sync(f, w);
    for (size_t i = i0; i < i1; i++) {
        const size_t t = i / blocks, at = i % blocks * n;
        float *x = r->u.f + t * r->u.f_stride + at, sum = 0;
        for (size_t b = 0; b < blocks; b++) sum += f->norm_parts[t * blocks + b];
        kern_norm_scale(x, x, r->norm + at, n, 1.0f / sqrtf(sum / (float)s->d_model + s->rms_eps));
        act_quantise_part(&f->env, &r->u, t, at, at + n);
    }
}

static void read_tokens(const struct reader *r, struct flow *f, struct worker *w)
{
    const struct model_shape *s = &f->model->shape;
    float pre[MODEL_HC_MAX];
    size_t t0, t1;
    flow_share(w, r->n, &t0, &t1);
    for (size_t t = t0; t < t1; t++) {
        float *x = r->u.f + t * r->u.f_stride;
        read_weights(r, f, t, pre);
        f->env.kern->hyper_read(x, stream_row(f, r->rows, t), s->d_model, pre, s->hc, s->d_model);
        f->env.kern->rms_norm(x, x, r->norm, s->d_model, s->rms_eps);
        act_quantise(&f->env, &r->u, t);
    }
}

/* hyper_parts -> u */
static void read_streams(const struct reader *r, struct flow *f, struct worker *w)
{
    if (r->n < w->count)
        read_blocks(r, f, w);
    else
        read_tokens(r, f, w);
    const struct product first = product_of(r->first, &r->u, NULL, 0, r->n);
    product_ask(&f->env, &first, w);
    flow_sync(f, w);
}

void hyper_in(const struct hyper_weights *h, const float *norm, unsigned kinds, const struct matrix *first, struct flow *f,
              struct worker *w)
{
    const struct model_shape *s = &f->model->shape;
    const struct reader r = {h, norm, NULL, f->n, act_select(&f->u, kinds), first};
    size_t t0, t1;
    read_streams(&r, f, w);
    /* Not needed before the sub-layer's result is there; the products that follow are shared by who comes first. */
    flow_share(w, f->n, &t0, &t1);
    for (size_t t = t0; t < t1; t++) {
        float m[MODEL_HC_MAX * (MODEL_HC_MAX + 2)], pre[MODEL_HC_MAX];
        mix_inputs(&h->fn, f, t, m);
        kern_hyper_mix(pre, f->post + t * s->hc, f->comb + t * s->hc * s->hc, m, h->scale, h->base, s->hc, s->sinkhorn_iters,
                       s->hc_eps);
    }
}

void hyper_head(struct flow *f, struct worker *w)
{
    const struct model *model = f->model;
    const struct hyper_weights *h = &model->hyper_head;
    const struct reader r = {
        h, model->output_norm, f->head_rows, f->n_head_rows, act_select(&f->u, act_kind(&model->output)), &model->output};
    const size_t n = block_columns(&model->shape), tiles = (r.n + TOKEN_TILE - 1) / TOKEN_TILE;
    size_t i0, i1;
    flow_share(w, model->shape.d_model / n * tiles, &i0, &i1);
    for (size_t i = i0; i < i1; i++) {
        const size_t t0 = i % tiles * TOKEN_TILE, t1 = t0 + TOKEN_TILE < r.n ? t0 + TOKEN_TILE : r.n;
        block_parts(&h->fn, r.rows, i / tiles * n, t0, t1, f, w->id);
    }
    flow_sync(f, w);
    read_streams(&r, f, w);
}
