/* router.c - which experts a token uses and how much each counts (architecture.md 7). */
#include "runtime/model/forward.h"

#include "platform/base/bytes.h"

/* Ids of a hash layer. They were checked when the file was bound, but it may be cut or changed while it is mapped: a wrong id
 * becomes 0 here (the session reports the damage) instead of reaching memory that is not ours. */
void router_look_up(int32_t *ids, const struct layer_weights *L, const struct model_shape *s, int32_t token)
{
    for (uint32_t i = 0; i < s->n_used; i++) {
        const uint32_t id = mc_load_u32(L->hash_ids + ((size_t)token * s->n_used + i) * 4);
        ids[i] = id < s->n_expert ? (int32_t)id : 0;
    }
}

struct layer_dials dials_of(const struct layer_weights *L, const struct flow *f)
{
    const struct moe_settings *d = &f->dials;
    if (L->hash_ids) return (struct layer_dials){.k = f->model->shape.n_used};
    return (struct layer_dials){settings_k(d, L->il), d->min_weight, d->rows_exps, d->rows_shexp};
}

/* Leaves out experts as the dials say; the others are rescaled. */
static void drop(int32_t *ids, float *weight, const struct layer_dials *d, const struct flow *f)
{
    const uint32_t n = f->model->shape.n_used;
    if (d->k >= n && !(d->min_weight > 0)) return;
    float a = 0, b = 0; /* factors of the squares' sum and of the sum's square */
    switch (f->dials.rescale) {
    case MOE_RESCALE_L2:
        a = 1;
        break;
    case MOE_RESCALE_L1:
        b = 1;
        break;
    case MOE_RESCALE_RHO:
        b = f->dials.rho;
        a = 1 - b;
        break;
    default:
        break;
    }
    kern_route_keep(ids, weight, n, d->k, d->min_weight, a, b);
}

void router(const struct layer_weights *L, struct flow *f, struct worker *w)
{
    const struct model_shape *s = &f->model->shape;
    const struct layer_dials dials = dials_of(L, f);
    const struct product logits = product_of(&L->router, &f->u, f->route_logits, s->n_expert, f->n);
    size_t t0, t1;
    const struct product shared = product_of(&L->gate_shared, &f->u, NULL, 0, f->n); /* first of the experts' list */
    products_run(&f->env, &logits, 1, w);
    product_ask(&f->env, &shared, w);
    flow_sync(f, w);
    flow_share(w, f->n, &t0, &t1);
    for (size_t t = t0; t < t1; t++) {
        float *score = f->route_scores + t * s->n_expert, *weight = f->expert_w + t * (s->n_used + 1);
        int32_t *ids = f->expert_ids + t * s->n_used;
        kern_route_scores(score, f->route_logits + t * s->n_expert, s->n_expert);
        if (L->hash_ids)
            router_look_up(ids, L, s, f->ids[t]);
        else
            kern_route_top(ids, score, L->router_bias, s->n_expert, s->n_used);
        kern_route_weights(weight, score, ids, s->n_used, s->expert_scale, s->expert_normalise);
        drop(ids, weight, &dials, f);
        weight[s->n_used] = 1.0f; /* the shared expert */
    }
}
