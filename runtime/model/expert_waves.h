/* expert_waves.h - the routed experts of a layer, in the order in which their weights are there.
 *
 * With all experts resident a layer has one wave. With a cache of experts (io/experts) the first wave is what is in memory, and
 * the shared expert; each further one is what has arrived meanwhile, while the rest is being read. The results are added in the
 * router's order in the end, so the waves change no bit.
 *
 * All of it is called by one worker, the leader, between two barriers. */
#ifndef RUNTIME_MODEL_EXPERT_WAVES_H
#define RUNTIME_MODEL_EXPERT_WAVES_H

#include "runtime/model/bind.h"

struct expert_cache;
struct flow;

enum wave_state { WAVE_NOT_USED, WAVE_ASK, WAVE_COMING, WAVE_NOW, WAVE_DONE };

struct expert_waves {
    struct expert_cache *cache; /* NULL: all experts are resident. Set by the session */
    uint8_t *state;             /* [E] enum wave_state */
    struct matrix *streamed;    /* [E][3] gate, up, down of the experts of this wave, if there is a cache */
    float *guess_logits;        /* [E] the next layer's router on this layer's input */
    float *guess_scores;
    int32_t guess[MODEL_USED_MAX]; /* experts that it would choose */
    uint32_t n_guess;              /* 0: nobody has guessed for the layer at hand */
    bool guessing;                 /* guess_logits are being made in this layer */
    uint32_t n_waves;              /* of this layer so far */
    bool first, last;              /* the wave at hand; after the last nothing is left */
    bool failed;                   /* an expert could not be read: the rest of the chunk is worthless */
};

/* A chunk begins: experts that are known from its tokens (hash layers) are asked for. */
void waves_chunk(struct flow *f);
/* The experts of layer L are chosen and grouped. */
void waves_layer(const struct layer_weights *L, struct flow *f);
/* Gives the last wave's experts back, fills `state` with WAVE_NOW for the next one's. Waits for the disk if nothing else is to
 * be done. */
void waves_next(const struct layer_weights *L, struct flow *f);
/* The layer is done: gives back, and asks for what the next layer may want. */
void waves_end(const struct layer_weights *L, struct flow *f);
/* The matrix of an expert of this wave and the first of its rows in it. piece: EXPERT_GATE, EXPERT_UP, EXPERT_DOWN. */
const struct matrix *wave_matrix(const struct flow *f, const struct matrix *W, uint32_t e, unsigned piece, uint32_t *first_row);

#endif
