/* forward.h - n tokens through the model (architecture.md sections 3 to 7): prefill and decode are the same walk, n = 1 or
 * many.
 *
 * Every worker runs forward_walk from top to bottom and does its share of each step; flow_sync marks each place where
 * numbers cross from one worker to another. Shares are cut by index, never by arrival, except for product tiles, whose result
 * does not depend on who computes them: the logits are the same bits for any number of workers and any split of the tokens into
 * chunks.
 *
 * struct flow is the working memory of one session: buffers for n_batch tokens, nothing allocated later. Shapes are [n][...],
 * token first. */
#ifndef RUNTIME_MODEL_FORWARD_H
#define RUNTIME_MODEL_FORWARD_H

#include "runtime/cache/kv_cache.h"
#include "runtime/control/settings.h"
#include "runtime/model/bind.h"
#include "runtime/model/expert_waves.h"
#include "runtime/model/product.h"
#include "runtime/model/rope_table.h"
#include "topology/workers.h"

#include <stdatomic.h>

enum {
    HYPER_CHUNK = 1024, /* columns of one partial sum of the mixing matrices (kernels.md 7.4) */
    HEAD_ROWS = 32,     /* rows of logits at a time */
    ACT_BLOCK = 256,    /* columns of an activation that are quantised together */
};

/* Private memory of one worker. */
struct flow_scratch {
    float *attend, *acc, *m, *z; /* attention of some heads: see kern_attend_scratch; acc [H][Dh] */
    float *row;                  /* max(d_head, d_index) floats and two rope rows behind it */
    float *angle_c, *angle_s;    /* [pairs] */
    uint64_t *top;               /* one for each compressed row */
};

/* What the dials left of the layers walked so far; rows as they were asked for, bytes as they were saved. */
struct flow_counts {
    uint64_t experts_used, experts_dropped; /* routed experts of a token and layer */
    uint64_t rows_computed, rows_skipped;   /* of the up projections, by token */
    uint64_t bytes_saved;                   /* of weights that a chunk would have read */
};

/* What becomes of gate and up rows: see moe.c. */
struct moe_gated {
    const struct flow *f;
    struct act h; /* with the format that down reads */
    float limit;
};

struct flow {
    const struct model *model;
    struct product_env env;
    struct kv_cache *kv;
    struct rope_table rope;

    /* The chunk at hand: set before the walk. */
    const int32_t *ids;
    uint32_t n, p0;                             /* tokens, position of the first one */
    uint32_t head_rows[HEAD_ROWS], n_head_rows; /* tokens of the chunk whose logits are wanted */
    struct moe_settings dials;                  /* this chunk's copy; lossless where they have no say */

    /* Asked by worker 0 in front of every layer but the first, NULL: nobody; false stops the walk behind that layer. */
    bool (*go_on)(void *user, uint32_t layers_done);
    void *go_on_user;
    _Atomic uint32_t stop_at; /* layer that is the last one; UINT32_MAX: none was said. Written in front of a barrier of that
                                 layer, so that all see it at its end and nobody before */

    uint32_t n_batch, n_hyper_chunks;
    float *cos[ROPE_KINDS], *sin[ROPE_KINDS]; /* [n][pairs] */
    float *X;                                 /* [n][hc][D] residual streams */
    float *hyper_parts;                       /* [n][chunks][n_mix + 1]: partial products, then the partial sum of squares */
    float *post, *comb;                       /* [n][hc], [n][hc][hc] (source, destination) */
    struct act u;                             /* [n][D] input of a sub-layer */
    struct act qr;                            /* [n][q_lora] */
    struct act o;                  /* [n * G][H*Dh/G]: queries q[n][H][Dh], then overwritten by the attention result */
    struct act low;                /* [n][G*R] */
    _Atomic uint32_t *low_done;    /* [n][blocks of G*R]: columns of a block so far */
    float *kv_row;                 /* [n][Dh] */
    float *comp_half, *index_half; /* [n][2*w]: projections kv | score of this chunk, as rows of kv_layer.half */
    float *iq, *iw;                /* [n][IH][ID], [n][IH] */
    float *scores;                 /* [score_tokens][compressed rows] */
    uint32_t score_tokens;
    uint32_t *chosen;                   /* [n][top_k] ascending rows of ratio-4 layers; used where kv_index_needed */
    float *y;                           /* [n][D] result of a sub-layer */
    float *norm_parts;                  /* [workers][blocks of D]: sums of squares of fewer tokens than workers */
    float *route_logits, *route_scores; /* [n][E] */
    int32_t *expert_ids;                /* [n][used]; -1 behind the last one where experts were left out */
    float *expert_w;                    /* [n][used + 1], the shared expert last (1) */
    struct act h;      /* [n * (used + 1)][F]: gate, then silu(gate) * up; slot token*(used+1)+i, shared last */
    float *up;         /* like h */
    float *expert_out; /* [n * (used + 1)][D] */
    uint32_t *expert_tokens, *expert_slots; /* [n * used], grouped by expert */
    uint32_t *expert_first;                 /* [E + 1] */
    struct kern_kept *kept;                 /* [n * (used + 1)][strata of F]: rows of up that are computed */
    _Atomic uint32_t *h_done;               /* [n * (used + 1)][blocks of F]: gate and up rows of a block so far */
    struct moe_gated gated[2];              /* routed, shared; written with the lists */
    struct expert_waves waves;
    struct product *moe_in, *moe_out;       /* [2 * E + 3], [E + 1] */
    struct product *moe_up;                 /* [E + 1]: what has to wait for the choice of rows */
    uint32_t n_moe_in, n_moe_up, n_moe_out; /* written by one worker between two barriers */
    struct flow_counts counts;              /* likewise */
    float *logits;                          /* [HEAD_ROWS][V] */
    struct flow_scratch *scratch;           /* by worker */
    unsigned n_workers;
    void *memory;
    size_t memory_bytes;
};

/* Bytes that flow_init takes; false when that overflows. */
MC_MUST_CHECK bool flow_bytes(const struct model *m, unsigned n_workers, uint32_t n_ctx, uint32_t n_batch, bool exact,
                              uint64_t *out);
/* The model, the kernel table and the cache must outlive the flow. */
MC_MUST_CHECK enum mc_code flow_init(struct flow *f, const struct model *m, const struct kern_table *kern, struct kv_cache *kv,
                                     unsigned n_workers, bool exact, struct mc_err *err);
void flow_deinit(struct flow *f);

/* worker_fn with a struct flow: the chunk through all layers, then the head for head_rows. The cache is written for positions
 * p0 .. p0+n-1 but not advanced. Where go_on has said no, stop_at is a layer and there are no logits. */
void forward_walk(void *flow, struct worker *w);
/* worker_fn: the head alone, for head_rows of the chunk walked last. */
void forward_head(void *flow, struct worker *w);

/* Barriers of a layer while one token is decoded: 16, each because every worker reads what all of them have just written (n
 * tokens: one more, in front of the experts' list; where the indexer has to choose: three more; as many tokens as workers: none
 * for the sum of squares):
 *   hyper_in 2      sum of squares -> norm; the normalised input -> all products
 *   attention 6     inputs -> norms and cache row; -> queries; -> heads; -> out_a, quantised; -> out_b; -> streams
 *   hyper_turn 1    streams' partial sums of the mixing -> their sum
 *   hyper_in 2
 *   moe 4           router logits -> choice and list; -> gate and up, SwiGLU, quantised; -> down; -> sum over the experts
 *                   (where rows are left out three more: -> choice of rows; -> up; -> SwiGLU of these)
 *                   (streamed experts: the last three once more for each further wave)
 *   hyper_turn 1
 * In front of one behind which a known matrix is read each worker asks for the first lines of its home there (product_ask). */

/* ---- the rooms of a layer; each ends with its numbers visible to all workers unless it says otherwise ---- */

/* X and its hyper_parts -> u (normalised input of the sub-layer, quantised into the formats of `kinds`); post and comb, which
 * are there behind the next sync. `first` is the matrix that will read u.  section 3; hyper.c */
void hyper_in(const struct hyper_weights *h, const float *norm, unsigned kinds, const struct matrix *first, struct flow *f,
              struct worker *w);
/* X <- post * result + comb * X, then hyper_parts of X for `next` (NULL: none). */
enum hyper_result { HYPER_NOTHING /* X stays */, HYPER_Y /* y */, HYPER_EXPERTS /* moe_combine */ };
void hyper_turn(const struct hyper_weights *next, enum hyper_result result, struct flow *f, struct worker *w);
/* X of head_rows -> u rows 0..n_head_rows-1, ready for the head matrix */
void hyper_head(struct flow *f, struct worker *w);

/* u -> y; appends the raw rows and every compressed row completed in this chunk.  section 4; attention.c */
void attention(const struct layer_weights *L, struct flow *f, struct worker *w);
unsigned attention_input_kinds(const struct layer_weights *L);

/* Products of the compressors (sections 5, 6) that share the input u with the other projections: writes at most 4 entries.
 * compressor.c */
size_t compressor_products(const struct layer_weights *L, struct flow *f, const struct act *u, struct product *list);
/* After those products: adds the score bias of token t's place in its block, once for both roles the token may play. */
void compressor_bias(const struct layer_weights *L, struct flow *f, size_t t);
/* After the biases and a sync: produces the rows of all blocks completed in this chunk. Does not sync. */
void compressor_rows(const struct layer_weights *L, struct flow *f, struct worker *w);
/* After compressor_rows and a sync: keeps the projections that later chunks need. Does not sync. */
void compressor_keep(const struct layer_weights *L, struct flow *f, struct worker *w);

/* iq, iw -> chosen rows of every token that has to choose.  section 6; indexer.c */
void indexer_choose(const struct layer_weights *L, struct flow *f, struct worker *w);
/* True when some token of the chunk sees more compressed rows than may be chosen. */
bool indexer_needed(const struct layer_weights *L, const struct flow *f);
/* Do index queries and rows go through the Hadamard transform? */
bool indexer_transforms(const struct flow *f);

/* What the dials say about one layer; hash layers run whole. */
struct layer_dials {
    uint32_t k;
    float min_weight;
    uint32_t rows_exps, rows_shexp; /* of each stratum; 0: all */
};
struct layer_dials dials_of(const struct layer_weights *L, const struct flow *f);

/* u -> expert_ids, expert_w; token t by the worker that flow_share gives it to. Does not sync.  section 7; router.c */
void router(const struct layer_weights *L, struct flow *f, struct worker *w);
/* Experts of a token in a hash layer. */
void router_look_up(int32_t *ids, const struct layer_weights *L, const struct model_shape *s, int32_t token);
/* u -> expert_out.  section 7; moe.c */
void moe(const struct layer_weights *L, struct flow *f, struct worker *w);
/* y of token t in columns [at, at + n) from expert_out. */
void moe_combine(struct flow *f, size_t t, size_t at, size_t n);
unsigned moe_input_kinds(const struct layer_weights *L);

/* ---- helpers shared by the rooms ---- */

/* Tasks [*i0, *i1) of n for this worker. */
void flow_share(const struct worker *w, size_t n, size_t *i0, size_t *i1);
/* x with only the formats in `kinds` (bits 1 << enum quant_act). */
struct act act_select(const struct act *x, unsigned kinds);
/* The worker goes on to another operator of a layer; a barrier. */
static inline void flow_enter(const struct flow *f, const struct worker *w, uint32_t il, enum trace_op op)
{
    trace_enter(f->env.trace, w, il, op);
}
static inline void flow_sync(const struct flow *f, const struct worker *w)
{
    trace_sync(f->env.trace, w);
}
/* n more of the `all` values of a block are there. True for one caller, who may read what every caller has written in front of
 * this; `done` is 0 again then. */
static inline bool flow_completes(_Atomic uint32_t *done, uint32_t n, uint32_t all)
{
    if (atomic_fetch_add_explicit(done, n, memory_order_acq_rel) + n < all) return false;
    atomic_store_explicit(done, 0, memory_order_relaxed); /* the next to come is behind a barrier */
    return true;
}
static inline unsigned act_kind(const struct matrix *m)
{
    return 1u << quant_info(m->type)->act;
}

#endif
