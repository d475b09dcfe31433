/* synth.h - random but valid deepseek4 models: dimensions, vocabulary, blocks, and the file made of them. Private to
 * runtime/app.
 *
 *   options -> synth_config (checked) -> synth_write: vocabulary, metadata, list of tensors, then tensor after tensor, straight
 * to disk
 *
 * Everything is drawn from one seed and the tensor's name, so the same options give the same bytes on every machine. Weights
 * are random valid blocks of their type, not quantised floats: the file is made as fast as the disk takes it. */
#ifndef RUNTIME_APP_SYNTH_H
#define RUNTIME_APP_SYNTH_H

#include "kernels/kernels.h"
#include "platform/base/bytes.h"
#include "platform/base/err.h"
#include "runtime/text/text_buf.h"

struct app_options;

/* ---- dimensions and types (synth_config.c) ---------------------------------------------------------------------------- */

enum { SYNTH_LAYERS_MAX = 256 };

/* Names of --set, in this order; all but the floats are integers. */
struct synth_dims {
    uint32_t embd, heads, head_dim, rot, q_lora, groups, o_lora, experts, used, ff, swa, idx_heads, idx_dim, top_k, hc,
        sinkhorn, vocab, ctx, yarn_ctx;
    float rope_base, comp_base, yarn, beta_fast, beta_slow, eps, hc_eps, w_scale, clamp, clamp_sh;
};

enum synth_class {
    SYNTH_EMBD,
    SYNTH_OUTPUT,
    SYNTH_ATTN,
    SYNTH_SHEXP,
    SYNTH_EXPS,
    SYNTH_COMP,
    SYNTH_APE,
    SYNTH_INDEXER,
    SYNTH_ROUTER,
    SYNTH_HC,
    SYNTH_CLASS_COUNT
};

struct synth_config {
    struct synth_dims d;
    uint32_t layers, hash_layers, alignment;
    uint32_t ratio[SYNTH_LAYERS_MAX];
    enum quant_type types[SYNTH_CLASS_COUNT];
    enum quant_type expert_up[SYNTH_LAYERS_MAX], expert_down[SYNTH_LAYERS_MAX];
    uint64_t seed;
};

/* Errors: MC_EARG naming the option and what it may be. */
MC_MUST_CHECK enum mc_code synth_config(const struct app_options *o, struct synth_config *c, struct mc_err *err);

/* ---- vocabulary (synth_vocab.c) --------------------------------------------------------------------------------------- */

/* tokens, types and merges as the elements of GGUF arrays: strings with their u64 length, i32 types. */
struct synth_vocab {
    struct text_buf tokens, types, merges;
    uint32_t n_tokens, n_merges;
};

/* n tokens: 3 control tokens, 256 bytes, merges, and the 5 protocol tokens of the chat form at the end. n >= SYNTH_VOCAB_MIN.
 */
enum { SYNTH_VOCAB_MIN = 3 + 256 + 5 };
MC_MUST_CHECK enum mc_code synth_vocab_create(struct synth_vocab *v, uint32_t n, struct mc_err *err);
void synth_vocab_destroy(struct synth_vocab *v);

/* ---- blocks (synth_blocks.c) ------------------------------------------------------------------------------------------ */

struct synth_random {
    uint64_t state;
};
void synth_random_init(struct synth_random *r, uint64_t seed, const char *name);
uint64_t synth_random_next(struct synth_random *r);

struct synth_filler {
    enum quant_type type;
    float std, mean; /* the mean is met by f32, f16, bf16; it is 0 for the others */
    double scale;    /* block scale that gives std */
};

/* Measures what spread random blocks of this type have. kernels: any table. Errors: MC_ENOMEM, MC_EUNSUPPORTED (i32). */
MC_MUST_CHECK enum mc_code synth_filler_init(struct synth_filler *f, const struct kern_table *kernels, enum quant_type type,
                                             float std, float mean, struct mc_err *err);
/* n_blocks random blocks at dst, which has room for 8 bytes more. */
void synth_fill(const struct synth_filler *f, struct synth_random *r, uint8_t *dst, size_t n_blocks);

/* ---- the file (synth_model.c) ----------------------------------------------------------------------------------------- */

struct synth_report {
    uint64_t bytes;
    double seconds;
};
/* On failure, a full disk or Ctrl-C no file is left. */
MC_MUST_CHECK enum mc_code synth_write(const struct synth_config *c, const char *path, bool quiet, struct synth_report *report,
                                       struct mc_err *err);

#endif
