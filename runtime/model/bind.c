/* bind.c - see bind.h.
 *
 * The walk over all tensors runs twice: the first time it checks and counts the floats that small vectors need, the second time
 * it decodes them into one arena of that size and looks for NaN: a choice of experts made of such numbers could not be seen in
 * the logits. */
#include "runtime/model/bind.h"

#include "io/gguf/gguf.h"
#include "io/weights/weights.h"
#include "platform/os.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct binder {
    const struct gguf *g;
    const struct weights *w;
    const struct kern_table *kern;
    const struct model_shape *s;
    struct mc_err *err;
    enum mc_code code;
    uint8_t *arena; /* NULL in the first walk */
    size_t used;
    char prefix[32]; /* "" or "blk.N." */
};

/* The other spelling that some public files use for a tensor. */
static const struct {
    const char *name, *other;
} aliases[] = {
    {"attn_compressor_kv.weight", "attn_compress_kv.weight"},
    {"attn_compressor_gate.weight", "attn_compress_gate.weight"},
    {"attn_compressor_ape.weight", "attn_compress_ape.weight"},
    {"attn_compressor_norm.weight", "attn_compress_norm.weight"},
    {"indexer_compressor_kv.weight", "indexer.compress_kv.weight"},
    {"indexer_compressor_gate.weight", "indexer.compress_gate.weight"},
    {"indexer_compressor_ape.weight", "indexer.compress_ape.weight"},
    {"indexer_compressor_norm.weight", "indexer.compress_norm.weight"},
    {"attn_kv.weight", "attn_kv_latent.weight"},
    {"exp_probs_b.bias", "exp_probs_b.weight"},
    {"output_hc_fn.weight", "hc_head_fn.weight"},
    {"output_hc_base.weight", "hc_head_base.weight"},
    {"output_hc_scale.weight", "hc_head_scale.weight"},
};

static const struct gguf_tensor *find(const struct binder *b, const char *name)
{
    char full[128];
    snprintf(full, sizeof full, "%s%s", b->prefix, name);
    const struct gguf_tensor *t = gguf_tensor_find(b->g, full);
    for (size_t i = 0; !t && i < ARRAY_LEN(aliases); i++) {
        if (strcmp(aliases[i].name, name)) continue;
        snprintf(full, sizeof full, "%s%s", b->prefix, aliases[i].other);
        t = gguf_tensor_find(b->g, full);
    }
    return t;
}

/* The tensor `name` with exactly these dimensions (trailing ones may be left out of the file). */
static const struct gguf_tensor *need(struct binder *b, const char *name, uint64_t ne0, uint64_t ne1, uint64_t ne2)
{
    if (b->code) return NULL;
    const struct gguf_tensor *t = find(b, name);
    if (!t) {
        b->code = mc_fail(b->err, MC_EFORMAT, 0, "%s: tensor %s%s is missing; the file is not a complete deepseek4 model",
                          gguf_path(b->g), b->prefix, name);
        return NULL;
    }
    if (t->ne[0] != ne0 || t->ne[1] != ne1 || t->ne[2] != ne2 || t->ne[3] != 1) {
        b->code = mc_fail(b->err, MC_EFORMAT, 0,
                          "%s: tensor %s%s has the shape [%" PRIu64 ",%" PRIu64 ",%" PRIu64 "]; the metadata asks for [%" PRIu64
                          ",%" PRIu64 ",%" PRIu64 "]",
                          gguf_path(b->g), b->prefix, name, t->ne[0], t->ne[1], t->ne[2], ne0, ne1, ne2);
        return NULL;
    }
    return t;
}

static const uint8_t *data_of(const struct binder *b, const struct gguf_tensor *t)
{
    return weights_tensor(b->w, (size_t)(t - gguf_tensor_at(b->g, 0)));
}

static struct matrix matrix_of(struct binder *b, const char *name, uint64_t k, uint64_t rows, uint64_t count)
{
    struct matrix m = {0};
    const struct gguf_tensor *t = need(b, name, k, rows, count);
    if (!t) return m;
    if (t->type == QUANT_I32) {
        b->code = mc_fail(b->err, MC_EFORMAT, 0, "%s: tensor %s%s has the type i32; expected a weight type", gguf_path(b->g),
                          b->prefix, name);
        return m;
    }
    m.data = data_of(b, t);
    m.type = t->type;
    m.k = (uint32_t)k;
    m.rows = (uint32_t)rows;
    m.count = (uint32_t)count;
    m.row_bytes = (size_t)quant_row_bytes(quant_info(t->type), k);
    m.home_rows = m.rows;
    return m;
}

static void *arena_take(struct binder *b, size_t bytes)
{
    const size_t at = b->used;
    b->used += KERN_PAD(bytes);
    return b->arena ? b->arena + at : NULL;
}

/* Decodes a whole tensor of n_rows rows of n values. */
static float *floats_of(struct binder *b, const struct gguf_tensor *t, uint64_t n, uint64_t n_rows)
{
    if (!t) return NULL;
    if (t->type == QUANT_I32) {
        b->code = mc_fail(b->err, MC_EFORMAT, 0, "%s: tensor %.*s has the type i32; expected a weight type", gguf_path(b->g),
                          (int)t->name.size, (const char *)t->name.data);
        return NULL;
    }
    float *x = arena_take(b, (size_t)(n * n_rows) * sizeof *x);
    if (!x) return NULL;
    const uint8_t *src = data_of(b, t);
    const size_t row_bytes = (size_t)quant_row_bytes(quant_info(t->type), n);
    for (uint64_t r = 0; r < n_rows; r++) b->kern->dequantize[t->type](x + r * n, src + r * row_bytes, (size_t)n);
    for (uint64_t i = 0; i < n * n_rows && !b->code; i++)
        if (isnan(x[i]))
            b->code = mc_fail(b->err, MC_EFORMAT, 0,
                              "%s: tensor %.*s holds NaN (element %" PRIu64 "): the file is damaged; get it again",
                              gguf_path(b->g), (int)t->name.size, (const char *)t->name.data, i);
    return x;
}

static float *vector_of(struct binder *b, const char *name, uint64_t n)
{
    return floats_of(b, need(b, name, n, 1, 1), n, 1);
}

static struct hyper_weights hyper_of(struct binder *b, const char *stem, uint64_t n_mix, uint64_t n_scale)
{
    struct hyper_weights h = {0};
    const uint64_t k = (uint64_t)b->s->hc * b->s->d_model;
    char name[64];
    snprintf(name, sizeof name, "%s_fn.weight", stem);
    h.fn = matrix_of(b, name, k, n_mix, 1);
    if (!b->code && quant_info(h.fn.type)->act != QUANT_ACT_F32) {
        /* Small, and its input must not be rounded to 8 bits (architecture.md 11.32): keep it decoded. */
        h.fn.data = (const uint8_t *)floats_of(b, find(b, name), k, n_mix);
        h.fn.type = QUANT_F32;
        h.fn.row_bytes = (size_t)k * sizeof(float);
    }
    snprintf(name, sizeof name, "%s_scale.weight", stem);
    h.scale = vector_of(b, name, n_scale);
    snprintf(name, sizeof name, "%s_base.weight", stem);
    h.base = vector_of(b, name, n_mix);
    return h;
}

static struct compressor_weights compressor_of(struct binder *b, const char *stem, uint32_t ratio, uint64_t dim)
{
    struct compressor_weights c = {0};
    const uint64_t width = ratio == 4 ? 2 * dim : dim;
    char name[64];
    snprintf(name, sizeof name, "%s_kv.weight", stem);
    c.kv = matrix_of(b, name, b->s->d_model, width, 1);
    snprintf(name, sizeof name, "%s_gate.weight", stem);
    c.gate = matrix_of(b, name, b->s->d_model, width, 1);
    snprintf(name, sizeof name, "%s_ape.weight", stem);
    c.ape = floats_of(b, need(b, name, width, ratio, 1), width, ratio);
    snprintf(name, sizeof name, "%s_norm.weight", stem);
    c.norm = vector_of(b, name, dim);
    return c;
}

static void attention_of(struct binder *b, struct layer_weights *L)
{
    const struct model_shape *s = b->s;
    const uint64_t heads = (uint64_t)s->n_head * s->d_head;
    L->attn_norm = vector_of(b, "attn_norm.weight", s->d_model);
    L->sinks = vector_of(b, "attn_sinks.weight", s->n_head);
    L->q_a = matrix_of(b, "attn_q_a.weight", s->d_model, s->q_lora, 1);
    L->q_a_norm = vector_of(b, "attn_q_a_norm.weight", s->q_lora);
    L->q_b = matrix_of(b, "attn_q_b.weight", s->q_lora, heads, 1);
    L->kv = matrix_of(b, "attn_kv.weight", s->d_model, s->d_head, 1);
    L->kv_norm = vector_of(b, "attn_kv_a_norm.weight", s->d_head);
    L->out_a = matrix_of(b, "attn_output_a.weight", heads / s->n_group, (uint64_t)s->n_group * s->o_lora, 1);
    L->out_a.home_rows = s->o_lora;
    L->out_b = matrix_of(b, "attn_output_b.weight", (uint64_t)s->n_group * s->o_lora, s->d_model, 1);
    if (L->ratio) L->comp = compressor_of(b, "attn_compressor", L->ratio, s->d_head);
    if (L->ratio == 4) {
        L->index_comp = compressor_of(b, "indexer_compressor", 4, s->d_index);
        L->index_q_b = matrix_of(b, "indexer.attn_q_b.weight", s->q_lora, (uint64_t)s->n_index_head * s->d_index, 1);
        L->index_proj = matrix_of(b, "indexer.proj.weight", s->d_model, s->n_index_head, 1);
    }
}

/* Token id -> expert ids, every one checked here so that the forward pass can trust them. */
static const uint8_t *hash_ids_of(struct binder *b)
{
    const struct model_shape *s = b->s;
    const struct gguf_tensor *t = need(b, "ffn_gate_tid2eid.weight", s->n_used, s->n_vocab, 1);
    if (!t) return NULL;
    if (t->type != QUANT_I32) {
        b->code = mc_fail(b->err, MC_EFORMAT, 0, "%s: tensor %sffn_gate_tid2eid.weight has the type %s; expected i32",
                          gguf_path(b->g), b->prefix, quant_info(t->type)->name);
        return NULL;
    }
    const uint8_t *ids = data_of(b, t);
    for (uint64_t i = 0; !b->arena && i < (uint64_t)s->n_vocab * s->n_used; i++)
        if (mc_load_u32(ids + 4 * i) >= s->n_expert) {
            b->code = mc_fail(b->err, MC_EFORMAT, 0,
                              "%s: tensor %sffn_gate_tid2eid.weight names expert %" PRId32 " for token %" PRIu64
                              "; the model has experts 0 to %u",
                              gguf_path(b->g), b->prefix, (int32_t)mc_load_u32(ids + 4 * i), i / s->n_used,
                              (unsigned)(s->n_expert - 1));
            return NULL;
        }
    return ids;
}

static void experts_of(struct binder *b, struct layer_weights *L)
{
    const struct model_shape *s = b->s;
    L->ffn_norm = vector_of(b, "ffn_norm.weight", s->d_model);
    L->router = matrix_of(b, "ffn_gate_inp.weight", s->d_model, s->n_expert, 1);
    if (L->il < s->n_hash_layer) {
        L->hash_ids = hash_ids_of(b);
    } else if (find(b, "exp_probs_b.bias")) {
        L->router_bias = vector_of(b, "exp_probs_b.bias", s->n_expert);
    }
    if (!b->code && find(b, "ffn_gate_up_exps.weight") && !find(b, "ffn_gate_exps.weight"))
        b->code = mc_fail(b->err, MC_EUNSUPPORTED, 0,
                          "%s: tensor %sffn_gate_up_exps.weight merges gate and up; this program reads files "
                          "with ffn_gate_exps and ffn_up_exps",
                          gguf_path(b->g), b->prefix);
    L->gate = matrix_of(b, "ffn_gate_exps.weight", s->d_model, s->d_expert, s->n_expert);
    L->up = matrix_of(b, "ffn_up_exps.weight", s->d_model, s->d_expert, s->n_expert);
    L->down = matrix_of(b, "ffn_down_exps.weight", s->d_expert, s->d_model, s->n_expert);
    L->gate_shared = matrix_of(b, "ffn_gate_shexp.weight", s->d_model, s->d_expert, 1);
    L->up_shared = matrix_of(b, "ffn_up_shexp.weight", s->d_model, s->d_expert, 1);
    L->down_shared = matrix_of(b, "ffn_down_shexp.weight", s->d_expert, s->d_model, 1);
}

static void check_vocabulary(struct binder *b)
{
    const struct gguf_value *tokens = gguf_find(b->g, "tokenizer.ggml.tokens");
    if (!b->code && tokens && (tokens->type != GGUF_ARRAY || tokens->count != b->s->n_vocab))
        b->code = mc_fail(b->err, MC_EFORMAT, 0,
                          "%s: metadata key tokenizer.ggml.tokens has %" PRIu64 " entries; token_embd.weight has %u "
                          "rows",
                          gguf_path(b->g), tokens->count, (unsigned)b->s->n_vocab);
}

static void walk(struct binder *b, struct model *m)
{
    const struct model_shape *s = b->s;
    const uint64_t n_mix = (uint64_t)s->hc * (s->hc + 2);
    b->used = 0;
    struct layer_weights *layers = arena_take(b, s->n_layer * sizeof *layers);
    b->prefix[0] = 0;
    m->embd = matrix_of(b, "token_embd.weight", s->d_model, s->n_vocab, 1);
    m->output = matrix_of(b, "output.weight", s->d_model, s->n_vocab, 1);
    m->output_norm = vector_of(b, "output_norm.weight", s->d_model);
    m->hyper_head = hyper_of(b, "output_hc", s->hc, 1);
    check_vocabulary(b);
    for (uint32_t il = 0; il < s->n_layer && !b->code; il++) {
        struct layer_weights L = {.il = il, .ratio = s->ratio[il]};
        snprintf(b->prefix, sizeof b->prefix, "blk.%u.", (unsigned)il);
        L.hyper_attn = hyper_of(b, "hc_attn", n_mix, 3);
        attention_of(b, &L);
        L.hyper_ffn = hyper_of(b, "hc_ffn", n_mix, 3);
        experts_of(b, &L);
        if (layers) layers[il] = L;
    }
    m->layers = layers;
}

enum mc_code model_bind(const struct gguf *g, const struct weights *w, const struct model_shape *shape,
                        const struct kern_table *kern, struct model *out, struct mc_err *err)
{
    struct model m = {.shape = *shape};
    struct binder b = {.g = g, .w = w, .kern = kern, .s = shape, .err = err};
    walk(&b, &m);
    if (b.code) return b.code;
    m.arena_bytes = b.used;
    const enum mc_code code = os_mem_alloc(m.arena_bytes, OS_MEM_PLAIN, "model vectors", &m.arena, err);
    if (code) return code;
    b.arena = m.arena;
    walk(&b, &m);
    if (b.code) {
        os_mem_free(m.arena, m.arena_bytes);
        return b.code;
    }
    *out = m;
    return MC_OK;
}

void model_unbind(struct model *m)
{
    os_mem_free(m->arena, m->arena_bytes);
    m->arena = NULL;
}

void model_each_matrix(struct model *m, void (*fn)(void *user, struct matrix *matrix), void *user)
{
    fn(user, &m->output);
    for (uint32_t il = 0; il < m->shape.n_layer; il++) {
        struct layer_weights *L = &m->layers[il];
        struct matrix *const dense[] = {&L->q_a,    &L->q_b,         &L->kv,        &L->out_a,      &L->out_b,
                                        &L->router, &L->gate_shared, &L->up_shared, &L->down_shared};
        for (size_t i = 0; i < ARRAY_LEN(dense); i++) fn(user, dense[i]);
        struct matrix *const compressed[] = {&L->comp.kv,         &L->comp.gate, &L->index_comp.kv,
                                             &L->index_comp.gate, &L->index_q_b, &L->index_proj};
        for (size_t i = 0; i < (L->ratio == 4 ? 6u : L->ratio ? 2u : 0u); i++) fn(user, compressed[i]);
    }
    for (uint32_t il = 0; il < m->shape.n_layer; il++) {
        struct layer_weights *L = &m->layers[il];
        fn(user, &L->gate);
        fn(user, &L->up);
        fn(user, &L->down);
    }
}

/* The share of an expert matrix that `used` of its slabs are. */
static uint64_t used_bytes(const struct matrix *m, uint32_t used)
{
    return matrix_bytes(m) / m->count * used;
}

void model_token_bytes(const struct model *m, uint64_t *layers, uint64_t *head)
{
    const struct model_shape *s = &m->shape;
    const uint64_t d = s->d_model;
    uint64_t sum = m->embd.row_bytes;
    for (uint32_t il = 0; il < s->n_layer; il++) {
        const struct layer_weights *L = &m->layers[il];
        const struct matrix *const dense[] = {&L->hyper_attn.fn, &L->hyper_ffn.fn, &L->q_a,    &L->q_b,         &L->kv,
                                              &L->out_a,         &L->out_b,        &L->router, &L->gate_shared, &L->up_shared,
                                              &L->down_shared};
        for (size_t i = 0; i < ARRAY_LEN(dense); i++) sum += matrix_bytes(dense[i]);
        if (L->ratio) sum += matrix_bytes(&L->comp.kv) + matrix_bytes(&L->comp.gate);
        if (L->ratio == 4) sum += matrix_bytes(&L->index_comp.kv) + matrix_bytes(&L->index_comp.gate);
        sum += used_bytes(&L->gate, s->n_used) + used_bytes(&L->up, s->n_used) + used_bytes(&L->down, s->n_used);
        sum += (2 * d + s->q_lora + s->d_head + s->n_head) * sizeof(float);
    }
    *layers = sum;
    *head = matrix_bytes(&m->output) + matrix_bytes(&m->hyper_head.fn) + d * sizeof(float);
}

uint64_t model_index_bytes(const struct model *m)
{
    uint64_t sum = 0;
    for (uint32_t il = 0; il < m->shape.n_layer; il++)
        if (m->layers[il].ratio == 4) sum += matrix_bytes(&m->layers[il].index_q_b) + matrix_bytes(&m->layers[il].index_proj);
    return sum;
}
