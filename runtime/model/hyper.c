/* hyper.c - hyper-connections: what a sub-layer reads from the residual streams and how they are mixed behind it
 * (architecture.md 3).
 *
 * The mixing matrix has few rows and very many columns, so its product is cut into chunks of HYPER_CHUNK columns that workers
 * share; partial sums and sums of squares are added in chunk order (kernels.md 7.4, 7.5). */
#include "runtime/model/forward.h"

#include <math.h>

enum { TOKEN_TILE = 16 };

static const float *stream_row(const struct flow *f, const uint32_t *rows, size_t t)
{
    const struct model_shape *s = &f->model->shape;
    return f->X + (size_t)(rows ? rows[t] : t) * s->hc * s->d_model;
}

/* hyper_parts of n tokens (rows[t], or t): n_mix partial products and a partial sum of squares for each chunk. */
static void parts(const struct matrix *fn, const uint32_t *rows, uint32_t n, struct flow *f, struct worker *w)
{
    const size_t n_mix = fn->rows, stride = n_mix + 1, chunks = f->n_hyper_chunks;
    const size_t tiles = (n + TOKEN_TILE - 1) / TOKEN_TILE;
    size_t i0, i1;
    flow_share(w, chunks * tiles, &i0, &i1);
    for (size_t i = i0; i < i1; i++) {
        const size_t chunk = i / tiles, t0 = i % tiles * TOKEN_TILE, at = chunk * HYPER_CHUNK;
        const size_t t1 = t0 + TOKEN_TILE < n ? t0 + TOKEN_TILE : n;
        const size_t k = at + HYPER_CHUNK < fn->k ? HYPER_CHUNK : fn->k - at;
        const void *x[TOKEN_TILE];
        float *y[TOKEN_TILE];
        for (size_t t = t0; t < t1; t++) {
            x[t - t0] = stream_row(f, rows, t) + at;
            y[t - t0] = f->hyper_parts + (t * chunks + chunk) * stride;
            y[t - t0][n_mix] = f->env.kern->sum_squares(x[t - t0], k);
        }
        const uint8_t *W = fn->data + at * quant_info(fn->type)->block_bytes;
        trace_work(f->env.trace, w->id, t0 ? 0 : n_mix * k * quant_info(fn->type)->block_bytes, n_mix * k * (t1 - t0));
        f->env.kern->matmul[fn->type](y, W, fn->row_bytes, x, k, n_mix, t1 - t0);
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

void hyper_in(const struct hyper_weights *h, const float *norm, unsigned kinds, struct flow *f, struct worker *w)
{
    const struct model_shape *s = &f->model->shape;
    const struct act u = act_select(&f->u, kinds);
    size_t t0, t1;
    parts(&h->fn, NULL, f->n, f, w);
    flow_share(w, f->n, &t0, &t1);
    for (size_t t = t0; t < t1; t++) {
        float m[MODEL_HC_MAX * (MODEL_HC_MAX + 2)], pre[MODEL_HC_MAX];
        float *x = u.f + t * u.f_stride;
        mix_inputs(&h->fn, f, t, m);
        kern_hyper_mix(pre, f->post + t * s->hc, f->comb + t * s->hc * s->hc, m, h->scale, h->base, s->hc, s->sinkhorn_iters,
                       s->hc_eps);
        f->env.kern->hyper_read(x, stream_row(f, NULL, t), s->d_model, pre, s->hc, s->d_model);
        f->env.kern->rms_norm(x, x, norm, s->d_model, s->rms_eps);
        act_quantise(&f->env, &u, t);
    }
    flow_sync(f, w);
}

void hyper_out(struct flow *f, struct worker *w)
{
    const struct model_shape *s = &f->model->shape;
    const size_t blocks = (s->d_model + HYPER_CHUNK - 1) / HYPER_CHUNK;
    size_t i0, i1;
    flow_share(w, f->n * blocks, &i0, &i1);
    for (size_t i = i0; i < i1; i++) {
        const size_t t = i / blocks, at = i % blocks * HYPER_CHUNK;
        const size_t n = at + HYPER_CHUNK < s->d_model ? HYPER_CHUNK : s->d_model - at;
        f->env.kern->hyper_write(f->X + t * s->hc * s->d_model + at, s->d_model, f->y + t * s->d_model + at,
                                 f->post + t * s->hc, f->comb + t * s->hc * s->hc, s->hc, n);
    }
    flow_sync(f, w);
}

void hyper_head(struct flow *f, struct worker *w)
{
    const struct model *model = f->model;
    const struct model_shape *s = &model->shape;
    const struct hyper_weights *h = &model->hyper_head;
    const struct act u = act_select(&f->u, act_kind(&model->output));
    size_t t0, t1;
    parts(&h->fn, f->head_rows, f->n_head_rows, f, w);
    flow_share(w, f->n_head_rows, &t0, &t1);
    for (size_t t = t0; t < t1; t++) {
        float m[MODEL_HC_MAX], weight[MODEL_HC_MAX];
        float *x = u.f + t * u.f_stride;
        mix_inputs(&h->fn, f, t, m);
        kern_hyper_head(weight, m, h->scale, h->base, s->hc, s->hc_eps);
        f->env.kern->hyper_read(x, stream_row(f, f->head_rows, t), s->d_model, weight, s->hc, s->d_model);
        f->env.kern->rms_norm(x, x, model->output_norm, s->d_model, s->rms_eps);
        act_quantise(&f->env, &u, t);
    }
    flow_sync(f, w);
}
