/* expert_waves.c - see expert_waves.h */
#include "runtime/model/expert_waves.h"

#include "io/experts/expert_cache.h"
#include "runtime/model/forward.h"

#include <string.h>

enum {
    PROMPT_TOKENS = 16, /* decoded tokens that a chunk of a prompt counts as in the worth of its experts: its share of them */
    GUESSES = 2,        /* experts of a layer that are read on a guess: what the disk can do while attention is computed */
};

static double chunk_tokens(const struct flow *f)
{
    return f->n < PROMPT_TOKENS ? f->n : PROMPT_TOKENS;
}

void waves_chunk(struct flow *f)
{
    struct expert_waves *const v = &f->waves;
    const struct model_shape *s = &f->model->shape;
    v->failed = false;
    v->n_guess = 0;
    if (!v->cache) return;
    expert_forget_wishes(v->cache);
    for (uint32_t il = 0; il < s->n_layer && f->model->layers[il].hash_ids; il++)
        for (uint32_t t = 0; t < f->n && (size_t)t * s->n_used < s->n_expert; t++) {
            int32_t ids[MODEL_USED_MAX];
            router_look_up(ids, &f->model->layers[il], s, f->ids[t]);
            for (uint32_t i = 0; i < s->n_used; i++) expert_wish(v->cache, il, (uint32_t)ids[i], true);
        }
}

void waves_layer(const struct layer_weights *L, struct flow *f)
{
    struct expert_waves *const v = &f->waves;
    const struct model_shape *s = &f->model->shape;
    for (uint32_t e = 0; e < s->n_expert; e++)
        v->state[e] = f->expert_first[e] < f->expert_first[e + 1] && !v->failed ? WAVE_ASK : WAVE_NOT_USED;
    v->n_waves = 0;
    v->guessing = false;
    if (!v->cache || f->n > 1) return;
    uint32_t right = 0;
    for (uint32_t i = 0; i < v->n_guess; i++) right += v->state[v->guess[i]] == WAVE_ASK;
    expert_foreseen(v->cache, v->n_guess, right);
    v->n_guess = 0;
    if (L->il + 1 == s->n_layer || L[1].hash_ids || !expert_guesses_pay(v->cache)) return;
    v->guessing = (act_kind(&L[1].router) & ~moe_input_kinds(L)) == 0;
}

/* Experts of the last wave, and after a failure all others that are borrowed, go back. */
static void give_back(const struct layer_weights *L, struct flow *f)
{
    struct expert_waves *const v = &f->waves;
    for (uint32_t e = 0; e < f->model->shape.n_expert; e++) {
        const bool back = v->state[e] == WAVE_NOW || (v->failed && v->state[e] == WAVE_COMING);
        if (back && v->cache) expert_return(v->cache, L->il, e);
        if (back) v->state[e] = WAVE_DONE;
        if (v->failed && v->state[e] == WAVE_ASK) v->state[e] = WAVE_DONE;
    }
}

static void point_at(const struct layer_weights *L, struct flow *f, uint32_t e)
{
    const struct matrix *const stacked[EXPERT_PIECES] = {&L->gate, &L->up, &L->down};
    for (unsigned piece = 0; piece < EXPERT_PIECES; piece++) {
        struct matrix *const m = &f->waves.streamed[e * EXPERT_PIECES + piece];
        *m = *stacked[piece];
        m->count = 1;
        m->data = expert_piece(f->waves.cache, L->il, e, piece);
    }
}

/* How many are there now; *left: how many are still to come. */
static uint32_t collect(const struct layer_weights *L, struct flow *f, uint32_t *left)
{
    static const enum wave_state next[] = {
        [EXPERT_READY] = WAVE_NOW, [EXPERT_COMING] = WAVE_COMING, [EXPERT_NO_ROOM] = WAVE_ASK, [EXPERT_FAILED] = WAVE_DONE};
    struct expert_waves *const v = &f->waves;
    const double unit = chunk_tokens(f) / f->n;
    uint32_t n = 0;
    *left = 0;
    for (uint32_t e = 0; e < f->model->shape.n_expert; e++) {
        enum expert_state s;
        if (v->state[e] == WAVE_ASK)
            s = expert_borrow(v->cache, L->il, e, unit * (f->expert_first[e + 1] - f->expert_first[e]));
        else if (v->state[e] == WAVE_COMING)
            s = expert_look(v->cache, L->il, e);
        else
            continue;
        v->state[e] = (uint8_t)next[s];
        if (s == EXPERT_FAILED) v->failed = true;
        if (s == EXPERT_READY) point_at(L, f, e);
        n += s == EXPERT_READY;
        *left += s == EXPERT_COMING || s == EXPERT_NO_ROOM;
    }
    return n;
}

void waves_next(const struct layer_weights *L, struct flow *f)
{
    struct expert_waves *const v = &f->waves;
    uint32_t left = 0;
    v->first = v->n_waves++ == 0;
    if (!v->cache) {
        for (uint32_t e = 0; e < f->model->shape.n_expert; e++)
            if (v->state[e] == WAVE_ASK) v->state[e] = WAVE_NOW;
        v->last = true;
        return;
    }
    give_back(L, f);
    /* The shared expert is work for the first wave, whatever is there. */
    while (!collect(L, f, &left) && left && !v->first && !v->failed) expert_wait(v->cache);
    if (v->failed) {
        give_back(L, f);
        left = 0;
    }
    v->last = left == 0;
}

/* The next layer of a long chunk uses nearly every expert: the disk may begin with the first ones. */
static void ask_ahead(const struct layer_weights *next, struct flow *f)
{
    const struct model_shape *s = &f->model->shape;
    const bool dense = (uint64_t)f->n * s->n_used >= 8 * (uint64_t)s->n_expert;
    for (uint32_t e = 0; dense && e < s->n_expert; e++) expert_wish(f->waves.cache, next->il, e, true);
}

/* The experts that the next layer's router would choose now. */
static void guess(const struct layer_weights *next, struct flow *f)
{
    struct expert_waves *const v = &f->waves;
    const struct model_shape *s = &f->model->shape;
    kern_route_scores(v->guess_scores, v->guess_logits, s->n_expert);
    kern_route_top(v->guess, v->guess_scores, next->router_bias, s->n_expert, s->n_used);
    v->n_guess = s->n_used;
    for (uint32_t i = 0; i < s->n_used && i < GUESSES; i++) expert_wish(v->cache, next->il, (uint32_t)v->guess[i], false);
}

void waves_end(const struct layer_weights *L, struct flow *f)
{
    struct expert_waves *const v = &f->waves;
    if (!v->cache) return;
    give_back(L, f);
    if (L->il + 1 == f->model->shape.n_layer) {
        expert_cache_pass(v->cache, chunk_tokens(f));
        return;
    }
    if (v->failed) return;
    ask_ahead(L + 1, f);
    if (v->guessing) guess(L + 1, f);
}

const struct matrix *wave_matrix(const struct flow *f, const struct matrix *W, uint32_t e, unsigned piece, uint32_t *first_row)
{
    *first_row = f->waves.cache ? 0 : e * W->rows;
    return f->waves.cache ? &f->waves.streamed[e * EXPERT_PIECES + piece] : W;
}
