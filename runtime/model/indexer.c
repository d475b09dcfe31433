/* indexer.c - which compressed rows a token of a ratio-4 layer may attend to (architecture.md 6).
 *
 * Runs only where more rows are visible than may be chosen; before that every visible row is chosen and nothing here is
 * computed. The Hadamard transform of queries and rows leaves every score unchanged in exact arithmetic; it is computed where
 * it has a purpose, which is to spread what is large in a row before its values are rounded together: in a q8 cache. Score rows
 * for as many tokens as the buffer holds, then choose for them, then go on. */
#include "runtime/model/forward.h"

#include <math.h>

enum { SCORE_ROWS = 256 }; /* index rows of one task */

bool indexer_needed(const struct layer_weights *L, const struct flow *f)
{
    return L->ratio == 4 && kv_index_needed(&f->model->shape, f->p0 + f->n - 1);
}

bool indexer_transforms(const struct flow *f)
{
    const uint32_t d = f->model->shape.d_index;
    return f->kv->kv == KERN_KV_Q8 && (d & (d - 1)) == 0;
}

static uint32_t visible_rows(const struct flow *f, size_t t)
{
    return (f->p0 + (uint32_t)t + 1) / 4;
}

static void prepare_queries(struct flow *f, struct worker *w)
{
    const struct model_shape *s = &f->model->shape;
    const size_t pairs = s->d_rope / 2;
    const float scale = 1.0f / sqrtf((float)s->d_index * (float)s->n_index_head);
    size_t i0, i1;
    flow_share(w, (size_t)f->n * s->n_index_head, &i0, &i1);
    for (size_t i = i0; i < i1; i++) {
        const size_t t = i / s->n_index_head;
        float *head = f->iq + i * s->d_index;
        f->env.kern->rope(head + s->d_index - s->d_rope, f->cos[ROPE_COMPRESSED] + t * pairs,
                          f->sin[ROPE_COMPRESSED] + t * pairs, pairs, false);
        if (indexer_transforms(f)) f->env.kern->hadamard(head, s->d_index);
        f->iw[i] *= scale;
    }
    flow_sync(f, w);
}

static void score_block(const struct kv_layer *kv, struct flow *f, size_t t, uint32_t r0, uint32_t r1, float *scores,
                        unsigned worker)
{
    const struct model_shape *s = &f->model->shape;
    const void *rows[SCORE_ROWS];
    for (uint32_t r = r0; r < r1; r++) rows[r - r0] = kv->index + (size_t)r * f->kv->index_row_bytes;
    trace_work(f->env.trace, worker, (r1 - r0) * (uint64_t)f->kv->index_row_bytes,
               (uint64_t)(r1 - r0) * s->n_index_head * s->d_index);
    f->env.kern->index_scores(scores + r0, f->iq + t * s->n_index_head * s->d_index, f->iw + t * s->n_index_head,
                              s->n_index_head, s->d_index, rows, r1 - r0, f->kv->kv, f->scratch[worker].attend);
}

void indexer_choose(const struct layer_weights *L, struct flow *f, struct worker *w)
{
    const struct model_shape *s = &f->model->shape;
    const struct kv_layer *kv = &f->kv->layers[L->il];
    const size_t row_stride = f->kv->n_ctx / 4;
    prepare_queries(f, w);
    for (size_t first = 0; first < f->n; first += f->score_tokens) {
        const size_t n = f->n - first < f->score_tokens ? f->n - first : f->score_tokens;
        const size_t blocks = (visible_rows(f, first + n - 1) + SCORE_ROWS - 1) / SCORE_ROWS;
        size_t i0, i1;
        flow_share(w, n * blocks, &i0, &i1);
        for (size_t i = i0; i < i1; i++) {
            const size_t t = first + i / blocks;
            const uint32_t visible = visible_rows(f, t), r0 = (uint32_t)(i % blocks) * SCORE_ROWS;
            const uint32_t r1 = r0 + SCORE_ROWS < visible ? r0 + SCORE_ROWS : visible;
            if (visible > s->index_top_k && r0 < r1) score_block(kv, f, t, r0, r1, f->scores + (t - first) * row_stride, w->id);
        }
        flow_sync(f, w);
        flow_share(w, n, &i0, &i1);
        for (size_t i = i0; i < i1; i++) {
            const size_t t = first + i;
            if (visible_rows(f, t) > s->index_top_k)
                kern_top_rows(f->chosen + t * s->index_top_k, f->scores + i * row_stride, visible_rows(f, t), s->index_top_k,
                              f->scratch[w->id].top);
        }
        flow_sync(f, w);
    }
}
