/* shape.h - the constants of one model, read from the metadata and checked; a leaf header. Nothing in the engine hard-codes the
 * numbers of one model. Symbols are those of the architecture text. */
#ifndef RUNTIME_MODEL_SHAPE_H
#define RUNTIME_MODEL_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

enum { MODEL_LAYERS_MAX = 256, MODEL_HC_MAX = 8, MODEL_USED_MAX = 32 };

struct model_shape {
    uint32_t n_layer;   /* trunk layers (block_count without an appended draft block) */
    uint32_t n_ctx_max; /* context_length */
    uint32_t d_model;   /* D */
    uint32_t n_vocab;   /* V */
    uint32_t n_head;    /* H */
    uint32_t d_head;    /* Dh: key and value length */
    uint32_t d_rope;    /* rotated values at the end of a head */
    uint32_t q_lora;
    uint32_t n_group, o_lora;         /* output groups G, rank R */
    uint32_t window;                  /* W, the query itself included */
    uint32_t ratio[MODEL_LAYERS_MAX]; /* 0, 4 or 128 */
    uint32_t n_index_head, d_index, index_top_k;
    uint32_t n_expert, n_used, d_expert;
    float expert_scale;
    bool expert_normalise;
    float clamp[MODEL_LAYERS_MAX], clamp_shared[MODEL_LAYERS_MAX];
    uint32_t n_hash_layer;
    uint32_t hc, sinkhorn_iters;
    float hc_eps, rms_eps;
    double rope_base, rope_base_compressed;
    double yarn_factor, yarn_beta_fast, yarn_beta_slow;
    uint32_t yarn_ctx; /* original_context_length */
};

#endif
