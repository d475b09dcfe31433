/* metadata.c - see metadata.h.
 *
 * Public files differ in which keys they carry; where a value can be read off a tensor's shape it is, where a silent default
 * would give wrong text the file is refused. Arrays may be longer than the model (drafter entries): the first n_layer count. */
#include "runtime/model/metadata.h"

#include "io/gguf/gguf.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* One pass over the keys: the first failure is kept, later calls do nothing. */
struct reader {
    const struct gguf *g;
    struct mc_err *err;
    enum mc_code code;
};

static void key_of(char buf[128], const char *key)
{
    snprintf(buf, 128, "deepseek4.%s", key);
}

static bool has(const struct reader *r, const char *key)
{
    char name[128];
    key_of(name, key);
    return gguf_find(r->g, name) != NULL;
}

static void refuse(struct reader *r, enum mc_code code, const char *key, const char *found, const char *want)
{
    if (r->code) return;
    r->code = mc_fail(r->err, code, 0, "%s: metadata key deepseek4.%s is %s; expected %s", gguf_path(r->g), key, found, want);
}

/* An integer in [min, max]; `dflt` < 0 means the key is required. */
static uint32_t read_u32(struct reader *r, const char *key, int64_t dflt, uint64_t min, uint64_t max)
{
    char name[128];
    uint64_t v = 0;
    if (r->code) return 0;
    key_of(name, key);
    r->code = dflt < 0 ? gguf_get_u64(r->g, name, &v, r->err) : gguf_get_u64_or(r->g, name, (uint64_t)dflt, &v, r->err);
    if (r->code) return 0;
    if (v < min || v > max) {
        char found[32], want[64];
        snprintf(found, sizeof found, "%llu", (unsigned long long)v);
        snprintf(want, sizeof want, "%llu to %llu", (unsigned long long)min, (unsigned long long)max);
        refuse(r, MC_EFORMAT, key, found, want);
    }
    return (uint32_t)v;
}

/* A finite number in [min, max]; a NaN default means the key is required. */
static double read_f64(struct reader *r, const char *key, double dflt, double min, double max)
{
    char name[128];
    double v = 0;
    if (r->code) return 0;
    key_of(name, key);
    r->code = isnan(dflt) ? gguf_get_f64(r->g, name, &v, r->err) : gguf_get_f64_or(r->g, name, dflt, &v, r->err);
    if (r->code) return 0;
    if (!(v >= min && v <= max)) {
        char found[32], want[64];
        snprintf(found, sizeof found, "%g", v);
        snprintf(want, sizeof want, "%g to %g", min, max);
        refuse(r, MC_EFORMAT, key, found, want);
    }
    return v;
}

/* ne[dim] of a tensor, 0 when there is no such tensor. */
static uint64_t tensor_dim(const struct reader *r, const char *name, unsigned dim)
{
    const struct gguf_tensor *t = gguf_tensor_find(r->g, name);
    return t ? t->ne[dim] : 0;
}

static void read_architecture(struct reader *r)
{
    struct mc_span arch;
    if ((r->code = gguf_get_string(r->g, "general.architecture", &arch, r->err))) return;
    if (arch.size == 9 && !memcmp(arch.data, "deepseek4", 9)) return;
    if (arch.size == 10 && !memcmp(arch.data, "deepseek41", 10))
        r->code =
            mc_fail(r->err, MC_EUNSUPPORTED, 0,
                    "%s: general.architecture is deepseek41 (V4.1): a different graph that this program does not run; use a "
                    "deepseek4 (V4) file",
                    gguf_path(r->g));
    else
        r->code =
            mc_fail(r->err, MC_EUNSUPPORTED, 0, "%s: general.architecture is '%.*s'; this program runs deepseek4 models only",
                    gguf_path(r->g), (int)(arch.size < 40 ? arch.size : 40), (const char *)arch.data);
}

static void read_layers(struct reader *r, struct model_shape *s)
{
    const uint32_t blocks = read_u32(r, "block_count", -1, 1, MODEL_LAYERS_MAX);
    const uint32_t nextn = read_u32(r, "nextn_predict_layers", 0, 0, 8);
    if (r->code) return;
    s->n_layer = blocks;
    /* A count of draft layers does not mean that their tensors are in the file (architecture.md 1, variant 1). */
    if (nextn && nextn < blocks) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.nextn.eh_proj.weight", (unsigned)(blocks - nextn));
        if (gguf_tensor_find(r->g, name)) s->n_layer = blocks - nextn;
    }
}

static void read_attention(struct reader *r, struct model_shape *s)
{
    s->n_head = read_u32(r, "attention.head_count", -1, 1, 4096);
    read_u32(r, "attention.head_count_kv", 1, 1, 1);
    const uint64_t d_head = tensor_dim(r, "blk.0.attn_kv_a_norm.weight", 0);
    s->d_head = read_u32(r, "attention.key_length", d_head ? (int64_t)d_head : -1, 16, 4096);
    const uint32_t d_value = read_u32(r, "attention.value_length", s->d_head, 16, 4096);
    if (!r->code && d_value != s->d_head)
        refuse(r, MC_EFORMAT, "attention.value_length", "not the key length", "the same number");
    if (!r->code && s->d_head % 16) refuse(r, MC_EUNSUPPORTED, "attention.key_length", "no multiple of 16", "a multiple of 16");
    const uint64_t q_lora = tensor_dim(r, "blk.0.attn_q_a.weight", 1);
    s->q_lora = read_u32(r, "attention.q_lora_rank", q_lora ? (int64_t)q_lora : -1, 1, 1 << 20);
    s->window = read_u32(r, "attention.sliding_window", -1, 1, 1 << 16);
    const uint64_t group_width = tensor_dim(r, "blk.0.attn_output_a.weight", 0);
    const uint64_t groups = group_width ? (uint64_t)s->n_head * s->d_head / group_width : 0;
    s->n_group = read_u32(r, "attention.output_group_count", groups ? (int64_t)groups : -1, 1, 4096);
    if (r->code) return;
    const uint64_t rank = tensor_dim(r, "blk.0.attn_output_b.weight", 0) / s->n_group;
    s->o_lora = read_u32(r, "attention.output_lora_rank", rank ? (int64_t)rank : -1, 1, 1 << 20);
    if (!r->code && s->n_head % s->n_group)
        refuse(r, MC_EFORMAT, "attention.output_group_count", "no divisor of the head count",
               "heads divided evenly into groups");
    s->n_index_head = read_u32(r, "attention.indexer.head_count", -1, 1, 4096);
    s->d_index = read_u32(r, "attention.indexer.key_length", -1, 2, 4096);
    s->index_top_k = read_u32(r, "attention.indexer.top_k", -1, 1, 1 << 20);
}

static void read_rope(struct reader *r, struct model_shape *s)
{
    s->d_rope = read_u32(r, "rope.dimension_count", -1, 2, 4096);
    if (!r->code && (s->d_rope > s->d_head || s->d_rope > s->d_index || s->d_rope % 2))
        refuse(r, MC_EFORMAT, "rope.dimension_count", "odd, or larger than a head or an index head",
               "an even number that fits both");
    s->rope_base = read_f64(r, "rope.freq_base", 10000.0, 1.0, 1e12);
    if (!r->code && !has(r, "attention.compress_rope_freq_base") && has(r, "rope.freq_base_swa"))
        s->rope_base_compressed =
            read_f64(r, "rope.freq_base_swa", (double)NAN, 1.0, 1e12); /* an early converter stored it there */
    else
        s->rope_base_compressed = read_f64(r, "attention.compress_rope_freq_base", (double)NAN, 1.0, 1e12);
    struct mc_span type;
    if (!r->code && !(r->code = gguf_get_string(r->g, "deepseek4.rope.scaling.type", &type, r->err)) &&
        !(type.size == 4 && !memcmp(type.data, "yarn", 4)))
        refuse(r, MC_EUNSUPPORTED, "rope.scaling.type", "another method", "\"yarn\"");
    s->yarn_factor = read_f64(r, "rope.scaling.factor", (double)NAN, 1.0, 1e6);
    s->yarn_ctx = read_u32(r, "rope.scaling.original_context_length", -1, 1, UINT32_MAX);
    s->yarn_beta_fast = read_f64(r, "rope.scaling.yarn_beta_fast", 32.0, 1e-3, 1e6);
    s->yarn_beta_slow = read_f64(r, "rope.scaling.yarn_beta_slow", 1.0, 1e-3, 1e6);
}

static void read_experts(struct reader *r, struct model_shape *s)
{
    s->n_expert = read_u32(r, "expert_count", -1, 1, 1 << 16);
    s->n_used = read_u32(r, "expert_used_count", -1, 1, MODEL_USED_MAX);
    if (!r->code && s->n_used > s->n_expert)
        refuse(r, MC_EFORMAT, "expert_used_count", "larger than the expert count", "at most expert_count");
    read_u32(r, "expert_shared_count", 1, 1, 1);
    const uint64_t width = tensor_dim(r, "blk.0.ffn_gate_exps.weight", 1);
    s->d_expert = read_u32(r, "expert_feed_forward_length", width ? (int64_t)width : -1, 1, 1 << 20);
    s->expert_scale = (float)read_f64(r, "expert_weights_scale", (double)NAN, 1e-6, 1e6);
    if (!r->code) r->code = gguf_get_bool_or(r->g, "deepseek4.expert_weights_norm", true, &s->expert_normalise, r->err);
    if (read_u32(r, "expert_gating_func", 4, 0, UINT32_MAX) != 4 && !r->code)
        refuse(r, MC_EUNSUPPORTED, "expert_gating_func", "another function", "4 (square root of softplus)");
    if (read_u32(r, "expert_group_count", 0, 0, UINT32_MAX) > 1 || read_u32(r, "expert_group_used_count", 0, 0, UINT32_MAX) > 1)
        refuse(r, MC_EUNSUPPORTED, "expert_group_count", "more than 1", "0 or 1 (this architecture has no grouped routing)");
    if (read_u32(r, "leading_dense_block_count", 0, 0, UINT32_MAX) > 0)
        refuse(r, MC_EUNSUPPORTED, "leading_dense_block_count", "not 0", "0 (every layer is a mixture of experts)");
}

/* A scalar or an array of at least n_layer numbers. */
static void read_clamp(struct reader *r, const char *key, uint32_t n_layer, float *out)
{
    char name[128];
    if (r->code) return;
    key_of(name, key);
    const struct gguf_value *v = gguf_find(r->g, name);
    if (!v) return refuse(r, MC_EFORMAT, key, "missing", "a number or one number per layer");
    if (v->type == GGUF_ARRAY && v->count < n_layer)
        return refuse(r, MC_EFORMAT, key, "shorter than the model", "one entry per layer");
    for (uint32_t i = 0; i < n_layer && !r->code; i++) {
        double x = 0;
        r->code = gguf_item_f64(r->g, v, v->type == GGUF_ARRAY ? i : 0, &x, r->err);
        if (!r->code && !(x >= 0 && x <= 1e30)) refuse(r, MC_EFORMAT, key, "negative or not finite", "a limit >= 0");
        out[i] = (float)x;
    }
}

static void read_ratios(struct reader *r, struct model_shape *s)
{
    static const char key[] = "attention.compress_ratios";
    char name[128];
    if (r->code) return;
    key_of(name, key);
    const struct gguf_value *v = gguf_find(r->g, name);
    if (v && v->type != GGUF_ARRAY) return refuse(r, MC_EFORMAT, key, "no array", "an array with one entry per layer");
    if (v && v->count < s->n_layer) return refuse(r, MC_EFORMAT, key, "shorter than block_count", "one entry per layer");
    for (uint32_t i = 0; i < s->n_layer && !r->code; i++) {
        int64_t ratio = 0;
        if (v) {
            r->code = gguf_item_i64(r->g, v, i, &ratio, r->err);
        } else { /* inferred from which tensors a layer has */
            char t[64];
            snprintf(t, sizeof t, "blk.%u.attn_compressor_kv.weight", (unsigned)i);
            const bool compressed = gguf_tensor_find(r->g, t) != NULL;
            snprintf(t, sizeof t, "blk.%u.indexer.attn_q_b.weight", (unsigned)i);
            ratio = gguf_tensor_find(r->g, t) ? 4 : compressed ? 128 : 0;
        }
        if (!r->code && ratio != 0 && ratio != 4 && ratio != 128)
            r->code = mc_fail(r->err, MC_EUNSUPPORTED, 0,
                              "%s: metadata key deepseek4.%s gives layer %u the ratio %lld; expected 0, 4 or 128",
                              gguf_path(r->g), key, (unsigned)i, (long long)ratio);
        s->ratio[i] = (uint32_t)ratio;
    }
}

static uint32_t count_hash_layers(const struct reader *r, uint32_t n_layer)
{
    uint32_t n = 0;
    for (char name[64]; n < n_layer; n++) {
        snprintf(name, sizeof name, "blk.%u.ffn_gate_tid2eid.weight", (unsigned)n);
        if (!gguf_tensor_find(r->g, name)) break;
    }
    return n;
}

enum mc_code model_shape_read(const struct gguf *g, struct model_shape *out, struct mc_err *err)
{
    struct model_shape s = {0};
    struct reader r = {g, err, MC_OK};
    read_architecture(&r);
    read_layers(&r, &s);
    s.n_ctx_max = read_u32(&r, "context_length", -1, 1, UINT32_MAX);
    s.d_model = read_u32(&r, "embedding_length", -1, 1, 1 << 20);
    const uint64_t rows = tensor_dim(&r, "token_embd.weight", 1);
    s.n_vocab = read_u32(&r, "vocab_size", rows ? (int64_t)rows : -1, 1, 1 << 24);
    s.rms_eps = (float)read_f64(&r, "attention.layer_norm_rms_epsilon", (double)NAN, 0.0, 1.0);
    read_attention(&r, &s);
    read_rope(&r, &s);
    read_experts(&r, &s);
    read_clamp(&r, "swiglu_clamp_exp", s.n_layer, s.clamp);
    if (!r.code && has(&r, "swiglu_clamp_shexp"))
        read_clamp(&r, "swiglu_clamp_shexp", s.n_layer, s.clamp_shared);
    else
        memcpy(s.clamp_shared, s.clamp, sizeof s.clamp);
    s.n_hash_layer = read_u32(&r, "hash_layer_count", count_hash_layers(&r, s.n_layer), 0, s.n_layer);
    const uint64_t hc = tensor_dim(&r, "output_hc_base.weight", 0);
    s.hc = read_u32(&r, "hyper_connection.count", hc ? (int64_t)hc : -1, 1, MODEL_HC_MAX);
    s.sinkhorn_iters = read_u32(&r, "hyper_connection.sinkhorn_iterations", -1, 1, 1000);
    s.hc_eps = (float)read_f64(&r, "hyper_connection.epsilon", (double)NAN, 0.0, 1.0);
    read_ratios(&r, &s);
    if (!r.code) *out = s;
    return r.code;
}
