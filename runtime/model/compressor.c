/* compressor.c - rows that stand for 4 or 128 tokens (architecture.md 5), for attention and, in ratio-4 layers, for the
 * indexer.
 *
 * Each token gives a row kv[w] | score[w]. Rows of the chunk at hand lie in flow.comp_half (token first), those of earlier
 * tokens in the ring kv_layer.half. When a block's last token is in the chunk, its row is pooled from both, normalised, rotated
 * and stored. Nothing is computed where no row could ever be read: kv_layer.has_comp, has_index. */
#include "runtime/model/forward.h"

#include <string.h>

enum { CANDIDATES_MAX = 128 };

/* One compressor of a layer, attention's or the indexer's. */
struct view {
    const struct compressor_weights *weights;
    const struct kv_ring *ring;
    float *half; /* [n][2 * width] */
    uint8_t *rows;
    size_t row_bytes;
    uint32_t dim, width, ratio;
    bool transform;
};

static struct view attention_view(const struct layer_weights *L, const struct flow *f)
{
    const struct kv_layer *kv = &f->kv->layers[L->il];
    const uint32_t dim = f->model->shape.d_head;
    return (struct view){&L->comp, &kv->half, f->comp_half, kv->comp, f->kv->raw_row_bytes, dim, L->ratio == 4 ? 2 * dim : dim,
                         L->ratio, false};
}

static struct view index_view(const struct layer_weights *L, const struct flow *f)
{
    const struct kv_layer *kv = &f->kv->layers[L->il];
    const uint32_t dim = f->model->shape.d_index;
    return (struct view){
        &L->index_comp,       &kv->index_half, f->index_half, kv->index, f->kv->index_row_bytes, dim, 2 * dim, 4,
        indexer_transforms(f)};
}

/* The views that matter in this session. */
static size_t views(const struct layer_weights *L, const struct flow *f, struct view out[2])
{
    const struct kv_layer *kv = &f->kv->layers[L->il];
    size_t n = 0;
    if (kv->has_comp) out[n++] = attention_view(L, f);
    if (kv->has_index) out[n++] = index_view(L, f);
    return n;
}

size_t compressor_products(const struct layer_weights *L, struct flow *f, const struct act *u, struct product *list)
{
    struct view v[2];
    size_t n = 0;
    const size_t n_views = views(L, f, v);
    for (size_t i = 0; i < n_views; i++) {
        list[n++] = product_of(&v[i].weights->kv, u, v[i].half, 2 * (size_t)v[i].width, f->n);
        list[n++] = product_of(&v[i].weights->gate, u, v[i].half + v[i].width, 2 * (size_t)v[i].width, f->n);
    }
    return n;
}

static const float *half_row(const struct view *v, const struct flow *f, uint32_t p)
{
    return p >= f->p0 ? v->half + (size_t)(p - f->p0) * 2 * v->width : kv_ring_row(v->ring, p);
}

/* Row c from the projections of its tokens. */
static void make_row(const struct view *v, const struct flow *f, uint32_t c, const struct flow_scratch *scratch)
{
    const struct model_shape *s = &f->model->shape;
    const struct kern_table *k = f->env.kern;
    const float *kv[CANDIDATES_MAX], *score[CANDIDATES_MAX];
    float *row = scratch->row;
    const uint32_t first = c * v->ratio;
    size_t m = 0;
    if (v->ratio == 4 && c > 0) /* the block before speaks through the first half of the channels */
        for (uint32_t p = first - 4; p < first; p++, m++) {
            kv[m] = half_row(v, f, p);
            score[m] = kv[m] + v->width;
        }
    const uint32_t lane = v->width - v->dim; /* the block itself: the second half, or the only one */
    for (uint32_t p = first; p < first + v->ratio; p++, m++) {
        kv[m] = half_row(v, f, p) + lane;
        score[m] = kv[m] + v->width;
    }
    k->pool(row, kv, score, m, v->dim);
    k->rms_norm(row, row, v->weights->norm, v->dim, s->rms_eps);
    rope_angles(&f->rope, ROPE_COMPRESSED, first, scratch->angle_c, scratch->angle_s);
    k->rope(row + v->dim - s->d_rope, scratch->angle_c, scratch->angle_s, s->d_rope / 2, false);
    if (v->transform) k->hadamard(row, v->dim);
    k->kv_store(v->rows + (size_t)c * v->row_bytes, row, v->dim, f->kv->kv);
}

void compressor_bias(const struct layer_weights *L, struct flow *f, size_t t)
{
    struct view v[2];
    const size_t n_views = views(L, f, v);
    for (size_t i = 0; i < n_views; i++) {
        float *score = v[i].half + t * 2 * v[i].width + v[i].width;
        const float *ape = v[i].weights->ape + (f->p0 + t) % v[i].ratio * v[i].width;
        for (uint32_t j = 0; j < v[i].width; j++) score[j] += ape[j];
    }
}

void compressor_rows(const struct layer_weights *L, struct flow *f, struct worker *w)
{
    struct view v[2];
    const size_t n_views = views(L, f, v);
    for (size_t i = 0; i < n_views; i++) {
        const uint32_t c0 = f->p0 / v[i].ratio, c1 = (f->p0 + f->n) / v[i].ratio;
        size_t b0, b1;
        flow_share(w, c1 - c0, &b0, &b1);
        for (size_t b = b0; b < b1; b++) make_row(&v[i], f, c0 + (uint32_t)b, &f->scratch[w->id]);
    }
}

void compressor_keep(const struct layer_weights *L, struct flow *f, struct worker *w)
{
    struct view v[2];
    const size_t n_views = views(L, f, v);
    for (size_t i = 0; i < n_views; i++) {
        const uint32_t kept = f->n < v[i].ring->rows ? f->n : v[i].ring->rows;
        size_t t0, t1;
        flow_share(w, kept, &t0, &t1);
        for (size_t t = f->n - kept + t0; t < f->n - kept + t1; t++)
            memcpy(kv_ring_row(v[i].ring, f->p0 + (uint32_t)t), v[i].half + t * 2 * v[i].width, v[i].ring->row_bytes);
    }
}
