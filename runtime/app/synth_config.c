/* synth_config.c - presets, and the options that change them. See synth.h. */
#include "runtime/app/synth.h"

#include "runtime/app/numbers.h"
#include "runtime/app/options.h"
#include "runtime/model/shape.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

static const struct synth_dims nano = {.embd = 128,
                                       .heads = 4,
                                       .head_dim = 64,
                                       .rot = 32,
                                       .q_lora = 64,
                                       .groups = 2,
                                       .o_lora = 32,
                                       .experts = 8,
                                       .used = 3,
                                       .ff = 32,
                                       .swa = 32,
                                       .idx_heads = 16,
                                       .idx_dim = 64,
                                       .top_k = 16,
                                       .hc = 4,
                                       .sinkhorn = 20,
                                       .vocab = 384,
                                       .ctx = 4096,
                                       .yarn_ctx = 256,
                                       .rope_base = 10000,
                                       .comp_base = 160000,
                                       .yarn = 16,
                                       .beta_fast = 32,
                                       .beta_slow = 1,
                                       .eps = 1e-6f,
                                       .hc_eps = 1e-6f,
                                       .w_scale = 1.5f,
                                       .clamp = 1.25f,
                                       .clamp_sh = 1.75f};
static const struct synth_dims nano_quant = {.embd = 256,
                                             .heads = 8,
                                             .head_dim = 64,
                                             .rot = 32,
                                             .q_lora = 256,
                                             .groups = 2,
                                             .o_lora = 128,
                                             .experts = 6,
                                             .used = 3,
                                             .ff = 256,
                                             .swa = 32,
                                             .idx_heads = 16,
                                             .idx_dim = 64,
                                             .top_k = 16,
                                             .hc = 4,
                                             .sinkhorn = 20,
                                             .vocab = 384,
                                             .ctx = 4096,
                                             .yarn_ctx = 256,
                                             .rope_base = 10000,
                                             .comp_base = 160000,
                                             .yarn = 16,
                                             .beta_fast = 32,
                                             .beta_slow = 1,
                                             .eps = 1e-6f,
                                             .hc_eps = 1e-6f,
                                             .w_scale = 1.5f,
                                             .clamp = 1.25f,
                                             .clamp_sh = 1.75f};
static const struct synth_dims truedims = {.embd = 4096,
                                           .heads = 64,
                                           .head_dim = 512,
                                           .rot = 64,
                                           .q_lora = 1024,
                                           .groups = 8,
                                           .o_lora = 1024,
                                           .experts = 256,
                                           .used = 6,
                                           .ff = 2048,
                                           .swa = 128,
                                           .idx_heads = 64,
                                           .idx_dim = 128,
                                           .top_k = 512,
                                           .hc = 4,
                                           .sinkhorn = 20,
                                           .vocab = 129280,
                                           .ctx = 1048576,
                                           .yarn_ctx = 65536,
                                           .rope_base = 10000,
                                           .comp_base = 160000,
                                           .yarn = 16,
                                           .beta_fast = 32,
                                           .beta_slow = 1,
                                           .eps = 1e-6f,
                                           .hc_eps = 1e-6f,
                                           .w_scale = 1.5f,
                                           .clamp = 10,
                                           .clamp_sh = 10};

struct preset {
    const struct synth_dims *dims;
    uint32_t layers, hash_layers;
    uint32_t ratio[5]; /* used when the number of layers is the preset's */
    enum quant_type types[SYNTH_CLASS_COUNT];
    const char *experts; /* as for --experts; NULL: the mix of the full model */
};

/* In the order of the choices of --preset. */
static const struct preset presets[] = {
    {&nano,
     5,
     2,
     {0, 4, 128, 4, 128},
     {QUANT_F16, QUANT_Q8_0, QUANT_Q8_0, QUANT_Q8_0, QUANT_F16, QUANT_F16, QUANT_F32, QUANT_F16, QUANT_F32, QUANT_F32},
     "0:f16,1:q8_0,2:f16,3:f16/q8_0,4:q8_0"},
    {&nano_quant,
     4,
     2,
     {0, 4, 128, 4, 0},
     {QUANT_Q8_0, QUANT_Q6_K, QUANT_Q2_0, QUANT_Q2_0, QUANT_IQ1_S, QUANT_Q8_0, QUANT_F32, QUANT_Q4_K, QUANT_F32, QUANT_F16},
     "0:iq2_xxs,1:iq1_s,2:iq1_m,3:iq1_s"},
    {&truedims,
     4,
     3,
     {0, 0, 4, 128, 0},
     {QUANT_Q4_K, QUANT_Q6_K, QUANT_Q2_0, QUANT_Q2_0, QUANT_IQ1_S, QUANT_F16, QUANT_F32, QUANT_F16, QUANT_F32, QUANT_F16},
     NULL},
};

static const char *const class_names[SYNTH_CLASS_COUNT] = {"embd", "output", "attn",    "shexp",  "exps",
                                                           "comp", "ape",    "indexer", "router", "hc"};

/* Nothing beyond what a model may say (runtime/model/metadata.c). Limits also keep every product of two dimensions far from 64
 * bits, and a typing error from a file of petabytes. */
static const struct {
    const char *name;
    size_t off;
    uint32_t min, max; /* max 0: a float */
    double f_min, f_max;
} dim_names[] = {
#define WHOLE(name, min, max)                                                                                                  \
    {                                                                                                                          \
#name, offsetof(struct synth_dims, name), min, max, 0, 0                                                               \
    }
#define REAL(name, min, max)                                                                                                   \
    {                                                                                                                          \
#name, offsetof(struct synth_dims, name), 0, 0, min, max                                                               \
    }
    WHOLE(embd, 1, 65536),
    WHOLE(heads, 1, 1024),
    WHOLE(head_dim, 16, 4096),
    WHOLE(rot, 2, 4096),
    WHOLE(q_lora, 1, 65536),
    WHOLE(groups, 1, 1024),
    WHOLE(o_lora, 1, 65536),
    WHOLE(experts, 1, 4096),
    WHOLE(used, 1, MODEL_USED_MAX),
    WHOLE(ff, 1, 65536),
    WHOLE(swa, 1, 65536),
    WHOLE(idx_heads, 1, 1024),
    WHOLE(idx_dim, 2, 4096),
    WHOLE(top_k, 1, 65536),
    WHOLE(hc, 1, MODEL_HC_MAX),
    WHOLE(sinkhorn, 1, 1000),
    WHOLE(vocab, SYNTH_VOCAB_MIN, 1u << 22),
    WHOLE(ctx, 1, 1u << 30),
    WHOLE(yarn_ctx, 1, 1u << 30),
    REAL(rope_base, 1, 1e12),
    REAL(comp_base, 1, 1e12),
    REAL(yarn, 1, 1e6),
    REAL(beta_fast, 1e-3, 1e6),
    REAL(beta_slow, 1e-3, 1e6),
    REAL(eps, 0, 1),
    REAL(hc_eps, 0, 1),
    REAL(w_scale, 1e-6, 1e6),
    REAL(clamp, 0, 1e30),
    REAL(clamp_sh, 0, 1e30),
#undef WHOLE
#undef REAL
};

/* Takes the next item of "a,b,c" as a C string; false at the end. An item that does not fit comes out cut and will not be
 * known. */
static bool next_item(const char **list, char item[64])
{
    if (!**list) return false;
    const size_t len = strcspn(*list, ",");
    const size_t kept = len < 63 ? len : 63;
    memcpy(item, *list, kept);
    item[kept] = '\0';
    *list += len + ((*list)[len] == ',');
    return true;
}

/* Cuts item at `sep`; the second half, or NULL. */
static char *cut_at(char *item, char sep)
{
    char *at = strchr(item, sep);
    if (at) *at++ = '\0';
    return at;
}

static enum mc_code read_type(const char *text, const char *option, enum quant_type *out, struct mc_err *err)
{
    const enum quant_type t = quant_type_of_name(text);
    if (t == QUANT_TYPE_COUNT || t == QUANT_I32)
        return mc_fail(err, MC_EARG, 0, "%s: '%s' is no weight type (q4_K, iq1_s, mxfp4, f16 ...)", option, text);
    *out = t;
    return MC_OK;
}

static enum mc_code apply_set(const char *list, struct synth_dims *d, struct mc_err *err)
{
    for (char item[64]; next_item(&list, item);) {
        const char *value = cut_at(item, '=');
        size_t i = 0;
        while (i < ARRAY_LEN(dim_names) && strcmp(dim_names[i].name, item)) i++;
        if (i == ARRAY_LEN(dim_names) || !value)
            return mc_fail(err, MC_EARG, 0, "--set: expected NAME=VALUE with a name of `synth --help`, found '%s'", item);
        char *at = (char *)d + dim_names[i].off;
        int64_t n;
        double f;
        if (dim_names[i].max) {
            if (!number_i64(value, dim_names[i].min, dim_names[i].max, &n))
                return mc_fail(err, MC_EARG, 0, "--set %s: '%s' is not an integer from %u to %u", item, value, dim_names[i].min,
                               dim_names[i].max);
            const uint32_t v = (uint32_t)n;
            memcpy(at, &v, sizeof v);
        } else {
            const double min = dim_names[i].f_min, max = dim_names[i].f_max;
            if (!number_f64(value, min, max, &f))
                return mc_fail(err, MC_EARG, 0, "--set %s: '%s' is not a number from %g to %g", item, value, min, max);
            float v = (float)f;
            if ((double)v < min) v = nextafterf(v, HUGE_VALF); /* the file holds floats */
            if ((double)v > max) v = nextafterf(v, 0);
            memcpy(at, &v, sizeof v);
        }
    }
    return MC_OK;
}

static enum mc_code apply_types(const char *list, enum quant_type types[SYNTH_CLASS_COUNT], struct mc_err *err)
{
    for (char item[64]; next_item(&list, item);) {
        const char *value = cut_at(item, '=');
        int c = 0;
        while (c < SYNTH_CLASS_COUNT && strcmp(class_names[c], item)) c++;
        if (c == SYNTH_CLASS_COUNT || !value)
            return mc_fail(err, MC_EARG, 0, "--type: expected CLASS=TYPE with a class of `synth --help`, found '%s'", item);
        const enum mc_code code = read_type(value, "--type", &types[c], err);
        if (code) return code;
    }
    return MC_OK;
}

/* "0:iq2_xxs/q2_K,1-2:iq1_s". Layers beyond the last are skipped when the list is a preset's own. */
static enum mc_code apply_experts(const char *list, struct synth_config *c, bool own, struct mc_err *err)
{
    for (char item[64]; next_item(&list, item);) {
        char *types = cut_at(item, ':');
        char *until = cut_at(item, '-');
        int64_t a, b;
        if (!types || !number_i64(item, 0, SYNTH_LAYERS_MAX, &a) || !number_i64(until ? until : item, a, SYNTH_LAYERS_MAX, &b))
            return mc_fail(err, MC_EARG, 0, "--experts: expected LAYER:TYPE or FIRST-LAST:TYPE, found '%s'", item);
        if (b >= c->layers && !own)
            return mc_fail(err, MC_EARG, 0, "--experts names layer %d, the model has %u", (int)b, c->layers);
        const char *down = cut_at(types, '/');
        enum quant_type up_type = QUANT_F32, down_type = QUANT_F32;
        enum mc_code code = read_type(types, "--experts", &up_type, err);
        if (!code) code = read_type(down ? down : types, "--experts", &down_type, err);
        if (code) return code;
        for (int64_t i = a; i <= b && i < c->layers; i++) {
            c->expert_up[i] = up_type;
            c->expert_down[i] = down_type;
        }
    }
    return MC_OK;
}

/* The mix of the full model: anchor layers iq2_xxs, about a fifth iq1_m, otherwise iq1_s; a cut of few layers gets one of each.
 */
static enum quant_type usual_expert(uint32_t layer, uint32_t layers)
{
    static const enum quant_type few[] = {QUANT_IQ2_XXS, QUANT_IQ1_S, QUANT_IQ1_S, QUANT_IQ1_M, QUANT_IQ1_S, QUANT_IQ1_S};
    static const uint8_t anchors[] = {0, 1, 26, 28, 41, 42};
    if (layers <= ARRAY_LEN(few)) return few[layer];
    for (size_t i = 0; i < ARRAY_LEN(anchors); i++)
        if (anchors[i] == layer) return QUANT_IQ2_XXS;
    return layer % 5 == 3 ? QUANT_IQ1_M : QUANT_IQ1_S;
}

static enum mc_code apply_ratios(const char *list, struct synth_config *c, struct mc_err *err)
{
    int32_t *values;
    size_t n;
    enum mc_code code = number_list_arg(list, "--ratios", 0, 128, &values, &n, err);
    if (code) return code;
    if (n != c->layers) code = mc_fail(err, MC_EARG, 0, "--ratios: %zu values for %u layers", n, c->layers);
    for (size_t i = 0; i < n && !code; i++) {
        c->ratio[i] = (uint32_t)values[i];
        if (values[i] != 0 && values[i] != 4 && values[i] != 128)
            code = mc_fail(err, MC_EARG, 0, "--ratios: %d is none of 0, 4, 128", (int)values[i]);
    }
    free(values);
    return code;
}

static enum mc_code check_dims(const struct synth_config *c, struct mc_err *err)
{
    const struct synth_dims *d = &c->d;
    if (d->head_dim % 16) return mc_fail(err, MC_EARG, 0, "head_dim (%u) must be a multiple of 16", d->head_dim);
    if (d->heads % d->groups) return mc_fail(err, MC_EARG, 0, "heads (%u) must divide by groups (%u)", d->heads, d->groups);
    if (d->rot % 2 || d->rot > d->head_dim || d->rot > d->idx_dim)
        return mc_fail(err, MC_EARG, 0, "rot (%u) must be even and fit head_dim and idx_dim", d->rot);
    if (d->used > d->experts) return mc_fail(err, MC_EARG, 0, "used (%u) is more than experts (%u)", d->used, d->experts);
    if (c->alignment & (c->alignment - 1)) return mc_fail(err, MC_EARG, 0, "--alignment %u is no power of two", c->alignment);
    return MC_OK;
}

static enum mc_code expert_types(const struct app_options *o, const struct preset *p, struct synth_config *c,
                                 struct mc_err *err)
{
    const bool by_class = opt_text(o, OPT_TYPE) && strstr(opt_text(o, OPT_TYPE), "exps=");
    for (uint32_t i = 0; i < c->layers; i++)
        c->expert_up[i] = c->expert_down[i] = by_class || p->experts ? c->types[SYNTH_EXPS] : usual_expert(i, c->layers);
    enum mc_code code = p->experts && !by_class ? apply_experts(p->experts, c, true, err) : MC_OK;
    if (!code && opt_text(o, OPT_FLOAT)) {
        const enum quant_type t = quant_type_of_name(opt_text(o, OPT_FLOAT));
        for (int k = 0; k < SYNTH_CLASS_COUNT; k++) c->types[k] = t;
        for (uint32_t i = 0; i < c->layers; i++) c->expert_up[i] = c->expert_down[i] = t;
    }
    if (!code && opt_text(o, OPT_EXPERTS)) code = apply_experts(opt_text(o, OPT_EXPERTS), c, false, err);
    return code;
}

enum mc_code synth_config(const struct app_options *o, struct synth_config *c, struct mc_err *err)
{
    const struct preset *p = &presets[opt_int(o, OPT_PRESET)];
    memset(c, 0, sizeof *c);
    c->d = *p->dims;
    memcpy(c->types, p->types, sizeof c->types);
    c->layers = opt_is_set(o, OPT_LAYERS) ? (uint32_t)opt_int(o, OPT_LAYERS) : p->layers;
    c->hash_layers = opt_is_set(o, OPT_HASH_LAYERS) ? (uint32_t)opt_int(o, OPT_HASH_LAYERS) : p->hash_layers;
    if (c->hash_layers > c->layers && opt_is_set(o, OPT_HASH_LAYERS))
        return mc_fail(err, MC_EARG, 0, "--hash-layers %u: the model has %u layers", c->hash_layers, c->layers);
    if (c->hash_layers > c->layers) c->hash_layers = c->layers;
    c->alignment = (uint32_t)opt_int(o, OPT_ALIGNMENT);
    c->seed = opt_is_set(o, OPT_SEED) ? (uint64_t)opt_int(o, OPT_SEED) : 1;
    for (uint32_t i = 0; i < c->layers; i++) c->ratio[i] = c->layers == p->layers ? p->ratio[i] : i < 2 ? 0 : i % 2 ? 128 : 4;
    enum mc_code code = MC_OK;
    if (opt_text(o, OPT_SET)) code = apply_set(opt_text(o, OPT_SET), &c->d, err);
    if (!code && opt_text(o, OPT_RATIOS)) code = apply_ratios(opt_text(o, OPT_RATIOS), c, err);
    if (!code && opt_text(o, OPT_TYPE)) code = apply_types(opt_text(o, OPT_TYPE), c->types, err);
    if (!code) code = expert_types(o, p, c, err);
    return code ? code : check_dims(c, err);
}
