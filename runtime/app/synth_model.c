/* synth_model.c - the file of a synthetic model: metadata, list of tensors, and their bytes one after the other. See synth.h.
 *
 * Spreads of the weights are those that keep a random network alive: 1/sqrt(inputs) for a projection, more where its result is
 * scaled down later, norms around 1. The routing tables name distinct experts. */
#include "runtime/app/synth.h"

#include "io/gguf/gguf.h"
#include "kernels/cpu_flags.h"
#include "platform/os.h"
#include "runtime/app/model.h"
#include "runtime/app/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { WRITE_BYTES = 4 << 20, TENSORS_PER_LAYER = 48 };

struct plan_tensor {
    char name[64];
    enum quant_type type; /* i32: a routing table */
    unsigned n_dims;
    uint64_t ne[3], bytes;
    float std, mean;
};

struct plan {
    const struct synth_config *c;
    struct plan_tensor *tensors;
    size_t n, cap;
    enum mc_code code; /* the first put that failed; later ones do nothing */
    struct mc_err *err;
};

/* ---- list of tensors -------------------------------------------------------------------------------------------------- */

/* ne0 is the contiguous dimension; ne2 = 0: a matrix, ne1 = 0: a vector. layer < 0: no prefix. */
static void put(struct plan *p, int layer, const char *name, enum quant_type type, uint64_t ne0, uint64_t ne1, uint64_t ne2,
                double std, double mean)
{
    const struct quant_info *q = quant_info(type);
    if (p->code) return;
    if (p->n == p->cap) {
        p->code = mc_fail(p->err, MC_ENOMEM, 0,
                          "more tensors than planned for"); /* cannot happen: cap is counted from the code below */
        return;
    }
    struct plan_tensor *t = &p->tensors[p->n++];
    if (layer < 0)
        snprintf(t->name, sizeof t->name, "%s", name);
    else
        snprintf(t->name, sizeof t->name, "blk.%d.%s", layer, name);
    t->type = type;
    t->n_dims = ne2 ? 3 : ne1 ? 2 : 1;
    t->ne[0] = ne0, t->ne[1] = ne1 ? ne1 : 1, t->ne[2] = ne2 ? ne2 : 1;
    t->std = (float)std, t->mean = (float)mean;
    if (ne0 % q->block_len) {
        p->code = mc_fail(p->err, MC_EARG, 0,
                          "%s: rows of %" PRIu64 " weights are no whole blocks of %s (%u); choose another type or dimension",
                          t->name, ne0, q->name, q->block_len);
        return;
    }
    t->bytes = quant_row_bytes(q, ne0) * t->ne[1] * t->ne[2]; /* dimensions are limited: no overflow */
}

static void put_linear(struct plan *p, int layer, const char *name, enum quant_type type, uint64_t in, uint64_t out,
                       double gain)
{
    put(p, layer, name, type, in, out, 0, gain / sqrt((double)in), 0);
}

static void put_norm(struct plan *p, int layer, const char *name, uint64_t n)
{
    put(p, layer, name, QUANT_F32, n, 0, 0, 0.1, 1);
}

/* One set of hyper-connection weights: fn, scale, base. */
static void put_hyper(struct plan *p, int layer, const char *prefix, uint64_t n_mix, uint64_t n_scale)
{
    const uint64_t in = (uint64_t)p->c->d.hc * p->c->d.embd;
    char name[40];
    snprintf(name, sizeof name, "%s_fn.weight", prefix);
    put_linear(p, layer, name, p->c->types[SYNTH_HC], in, n_mix, 1);
    snprintf(name, sizeof name, "%s_scale.weight", prefix);
    put(p, layer, name, QUANT_F32, n_scale, 0, 0, 0.15, 1);
    snprintf(name, sizeof name, "%s_base.weight", prefix);
    put(p, layer, name, QUANT_F32, n_mix, 0, 0, 0.7, 0);
}

static void put_compressor(struct plan *p, int i, const char *prefix, uint64_t ratio, uint64_t width)
{
    const struct synth_config *c = p->c;
    const uint64_t rows = ratio == 4 ? 2 * width : width; /* two overlapping lanes */
    char name[48];
    snprintf(name, sizeof name, "%s_kv.weight", prefix);
    put_linear(p, i, name, c->types[SYNTH_COMP], c->d.embd, rows, 1);
    snprintf(name, sizeof name, "%s_gate.weight", prefix);
    put_linear(p, i, name, c->types[SYNTH_COMP], c->d.embd, rows, 1);
    snprintf(name, sizeof name, "%s_ape.weight", prefix);
    put(p, i, name, c->types[SYNTH_APE], rows, ratio, 0, 0.5, 0);
    snprintf(name, sizeof name, "%s_norm.weight", prefix);
    put_norm(p, i, name, width);
}

static void put_attention(struct plan *p, int i)
{
    const struct synth_dims *d = &p->c->d;
    const enum quant_type attn = p->c->types[SYNTH_ATTN], indexer = p->c->types[SYNTH_INDEXER];
    const uint64_t heads = (uint64_t)d->heads * d->head_dim, lora = (uint64_t)d->o_lora * d->groups;
    put_hyper(p, i, "hc_attn", (uint64_t)d->hc * (d->hc + 2), 3);
    put_norm(p, i, "attn_norm.weight", d->embd);
    put(p, i, "attn_sinks.weight", QUANT_F32, d->heads, 0, 0, 1, 0);
    put_linear(p, i, "attn_q_a.weight", attn, d->embd, d->q_lora, 1);
    put_norm(p, i, "attn_q_a_norm.weight", d->q_lora);
    put_linear(p, i, "attn_q_b.weight", attn, d->q_lora, heads, 1);
    put_linear(p, i, "attn_kv.weight", attn, d->embd, d->head_dim, 1);
    put_norm(p, i, "attn_kv_a_norm.weight", d->head_dim);
    put_linear(p, i, "attn_output_a.weight", attn, heads / d->groups, lora, 2);
    put_linear(p, i, "attn_output_b.weight", attn, lora, d->embd, 1.5);
    const uint32_t ratio = p->c->ratio[i];
    if (ratio) put_compressor(p, i, "attn_compressor", ratio, d->head_dim);
    if (ratio != 4) return;
    put_linear(p, i, "indexer.attn_q_b.weight", indexer, d->q_lora, (uint64_t)d->idx_heads * d->idx_dim, 1);
    put_linear(p, i, "indexer.proj.weight", indexer, d->embd, d->idx_heads, 1);
    put_compressor(p, i, "indexer_compressor", 4, d->idx_dim);
}

static void put_experts(struct plan *p, int i)
{
    const struct synth_config *c = p->c;
    const struct synth_dims *d = &c->d;
    const enum quant_type shared = c->types[SYNTH_SHEXP];
    put_hyper(p, i, "hc_ffn", (uint64_t)d->hc * (d->hc + 2), 3);
    put_norm(p, i, "ffn_norm.weight", d->embd);
    put_linear(p, i, "ffn_gate_inp.weight", c->types[SYNTH_ROUTER], d->embd, d->experts, 3);
    if ((uint32_t)i < c->hash_layers)
        put(p, i, "ffn_gate_tid2eid.weight", QUANT_I32, d->used, d->vocab, 0, 0, 0);
    else
        put(p, i, "exp_probs_b.bias", QUANT_F32, d->experts, 0, 0, 0.2, 0);
    put(p, i, "ffn_gate_exps.weight", c->expert_up[i], d->embd, d->ff, d->experts, 1 / sqrt(d->embd), 0);
    put(p, i, "ffn_up_exps.weight", c->expert_up[i], d->embd, d->ff, d->experts, 1 / sqrt(d->embd), 0);
    put(p, i, "ffn_down_exps.weight", c->expert_down[i], d->ff, d->embd, d->experts, 1.5 / sqrt(d->ff), 0);
    put_linear(p, i, "ffn_gate_shexp.weight", shared, d->embd, d->ff, 1);
    put_linear(p, i, "ffn_up_shexp.weight", shared, d->embd, d->ff, 1);
    put_linear(p, i, "ffn_down_shexp.weight", shared, d->ff, d->embd, 1.5);
}

static enum mc_code make_plan(struct plan *p, const struct synth_config *c, struct mc_err *err)
{
    const struct synth_dims *d = &c->d;
    *p = (struct plan){.c = c, .cap = 8 + (size_t)c->layers * TENSORS_PER_LAYER, .err = err};
    p->tensors = calloc(p->cap, sizeof *p->tensors);
    if (!p->tensors) return mc_fail(err, MC_ENOMEM, 0, "no memory for the list of tensors");
    put(p, -1, "token_embd.weight", c->types[SYNTH_EMBD], d->embd, d->vocab, 0, 1, 0);
    for (uint32_t i = 0; i < c->layers; i++) {
        put_attention(p, (int)i);
        put_experts(p, (int)i);
    }
    put_hyper(p, -1, "output_hc", d->hc, 1);
    put_norm(p, -1, "output_norm.weight", d->embd);
    put_linear(p, -1, "output.weight", c->types[SYNTH_OUTPUT], d->embd, d->vocab, 3);
    return p->code;
}

/* ---- metadata --------------------------------------------------------------------------------------------------------- */

static void add_u32(struct text_buf *b, uint32_t v)
{
    uint8_t bytes[4];
    mc_store_u32(bytes, v);
    text_buf_add(b, bytes, sizeof bytes);
}

static void add_u64(struct text_buf *b, uint64_t v)
{
    uint8_t bytes[8];
    mc_store_u64(bytes, v);
    text_buf_add(b, bytes, sizeof bytes);
}

static void add_string(struct text_buf *b, const char *s)
{
    add_u64(b, strlen(s));
    text_buf_add_str(b, s);
}

struct meta {
    struct text_buf buf;
    uint64_t n;
};

static void key(struct meta *m, const char *name, enum gguf_type type)
{
    add_string(&m->buf, name);
    add_u32(&m->buf, (uint32_t)type);
    m->n++;
}

static void meta_u32(struct meta *m, const char *name, uint32_t v)
{
    key(m, name, GGUF_U32);
    add_u32(&m->buf, v);
}

static void add_f32(struct text_buf *b, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, 4);
    add_u32(b, bits);
}

static void meta_f32(struct meta *m, const char *name, float v)
{
    key(m, name, GGUF_F32);
    add_f32(&m->buf, v);
}

static void meta_bool(struct meta *m, const char *name, bool v)
{
    key(m, name, GGUF_BOOL);
    text_buf_add_char(&m->buf, (char)v);
}

static void meta_text(struct meta *m, const char *name, const char *v)
{
    key(m, name, GGUF_STRING);
    add_string(&m->buf, v);
}

static void meta_array(struct meta *m, const char *name, enum gguf_type item, uint64_t n)
{
    key(m, name, GGUF_ARRAY);
    add_u32(&m->buf, (uint32_t)item);
    add_u64(&m->buf, n);
}

static void meta_same_floats(struct meta *m, const char *name, float v, uint32_t n)
{
    meta_array(m, name, GGUF_F32, n);
    for (uint32_t i = 0; i < n; i++) add_f32(&m->buf, v);
}

static void meta_dims(struct meta *m, const struct synth_config *c)
{
#define KEY(name) "deepseek4." name
    const struct synth_dims *d = &c->d;
    const struct {
        const char *name;
        uint32_t v;
    } whole[] = {{KEY("vocab_size"), d->vocab},
                 {KEY("context_length"), d->ctx},
                 {KEY("embedding_length"), d->embd},
                 {KEY("block_count"), c->layers},
                 {KEY("attention.head_count"), d->heads},
                 {KEY("attention.head_count_kv"), 1},
                 {KEY("attention.key_length"), d->head_dim},
                 {KEY("attention.value_length"), d->head_dim},
                 {KEY("attention.q_lora_rank"), d->q_lora},
                 {KEY("attention.sliding_window"), d->swa},
                 {KEY("attention.indexer.head_count"), d->idx_heads},
                 {KEY("attention.indexer.key_length"), d->idx_dim},
                 {KEY("attention.indexer.top_k"), d->top_k},
                 {KEY("attention.output_group_count"), d->groups},
                 {KEY("attention.output_lora_rank"), d->o_lora},
                 {KEY("rope.dimension_count"), d->rot},
                 {KEY("rope.scaling.original_context_length"), d->yarn_ctx},
                 {KEY("expert_count"), d->experts},
                 {KEY("expert_used_count"), d->used},
                 {KEY("expert_shared_count"), 1},
                 {KEY("expert_feed_forward_length"), d->ff},
                 {KEY("expert_gating_func"), 4},
                 {KEY("hash_layer_count"), c->hash_layers},
                 {KEY("hyper_connection.count"), d->hc},
                 {KEY("hyper_connection.sinkhorn_iterations"), d->sinkhorn}};
    const struct {
        const char *name;
        float v;
    } real[] = {{KEY("attention.layer_norm_rms_epsilon"), d->eps},
                {KEY("attention.compress_rope_freq_base"), d->comp_base},
                {KEY("rope.freq_base"), d->rope_base},
                {KEY("rope.scaling.factor"), d->yarn},
                {KEY("rope.scaling.yarn_beta_fast"), d->beta_fast},
                {KEY("rope.scaling.yarn_beta_slow"), d->beta_slow},
                {KEY("expert_weights_scale"), d->w_scale},
                {KEY("hyper_connection.epsilon"), d->hc_eps}};
    for (size_t i = 0; i < ARRAY_LEN(whole); i++) meta_u32(m, whole[i].name, whole[i].v);
    for (size_t i = 0; i < ARRAY_LEN(real); i++) meta_f32(m, real[i].name, real[i].v);
    meta_text(m, KEY("rope.scaling.type"), "yarn");
    meta_bool(m, KEY("expert_weights_norm"), true);
    meta_array(m, KEY("attention.compress_ratios"), GGUF_I32, c->layers);
    for (uint32_t i = 0; i < c->layers; i++) add_u32(&m->buf, c->ratio[i]);
    meta_same_floats(m, KEY("swiglu_clamp_exp"), d->clamp, c->layers);
    meta_same_floats(m, KEY("swiglu_clamp_shexp"), d->clamp_sh, c->layers);
#undef KEY
}

static void meta_all(struct meta *m, const struct synth_config *c, const struct synth_vocab *v)
{
    char name[80];
    snprintf(name, sizeof name, "synthetic deepseek4, %u layers, seed %" PRIu64, (unsigned)c->layers, c->seed);
    meta_text(m, "general.architecture", "deepseek4");
    meta_text(m, "general.type", "model");
    meta_text(m, "general.name", name);
    meta_u32(m, "general.alignment", c->alignment);
    meta_u32(m, "general.quantization_version", 2);
    meta_u32(m, "general.file_type", 1);
    meta_dims(m, c);
    meta_text(m, "tokenizer.ggml.model", "gpt2");
    meta_text(m, "tokenizer.ggml.pre", "joyai-llm");
    meta_array(m, "tokenizer.ggml.tokens", GGUF_STRING, v->n_tokens);
    text_buf_add_span(&m->buf, text_buf_span(&v->tokens));
    meta_array(m, "tokenizer.ggml.token_type", GGUF_I32, v->n_tokens);
    text_buf_add_span(&m->buf, text_buf_span(&v->types));
    meta_array(m, "tokenizer.ggml.merges", GGUF_STRING, v->n_merges);
    text_buf_add_span(&m->buf, text_buf_span(&v->merges));
    meta_u32(m, "tokenizer.ggml.bos_token_id", 0);
    meta_u32(m, "tokenizer.ggml.eos_token_id", 1);
    meta_u32(m, "tokenizer.ggml.padding_token_id", 2);
    meta_bool(m, "tokenizer.ggml.add_bos_token", true);
    meta_bool(m, "tokenizer.ggml.add_eos_token", false);
}

static uint64_t padded(const struct synth_config *c, uint64_t bytes)
{
    return (bytes + c->alignment - 1) / c->alignment * c->alignment;
}

/* Header, metadata and directory, padded to the data section. *total_bytes: of all tensors with their padding. */
static enum mc_code make_head(const struct plan *p, struct text_buf *head, uint64_t *total_bytes, struct mc_err *err)
{
    struct synth_vocab v;
    struct meta m = {.n = 0};
    text_buf_init(&m.buf);
    enum mc_code code = synth_vocab_create(&v, p->c->d.vocab, err);
    if (!code) {
        meta_all(&m, p->c, &v);
        text_buf_add_str(head, "GGUF");
        add_u32(head, 3);
        add_u64(head, p->n);
        add_u64(head, m.n);
        text_buf_add_span(head, text_buf_span(&m.buf));
        uint64_t off = 0;
        for (size_t i = 0; i < p->n; i++) {
            const struct plan_tensor *t = &p->tensors[i];
            add_string(head, t->name);
            add_u32(head, t->n_dims);
            for (unsigned k = 0; k < t->n_dims; k++) add_u64(head, t->ne[k]);
            add_u32(head, (uint32_t)t->type);
            add_u64(head, off);
            off += padded(p->c, t->bytes);
        }
        while (head->size % p->c->alignment && !head->failed) text_buf_add_char(head, 0);
        *total_bytes = off;
        code = text_buf_check(&m.buf, err);
        if (!code) code = text_buf_check(head, err);
    }
    synth_vocab_destroy(&v);
    text_buf_deinit(&m.buf);
    return code;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------------ */

struct sink {
    struct os_writer *out;
    uint8_t *buf; /* WRITE_BYTES and a little more */
    struct kern_table kernels;
    struct progress progress;
    uint64_t done, total;
};

static enum mc_code flush(struct sink *s, size_t size, struct mc_err *err)
{
    enum mc_code code = os_writer_write(s->out, s->buf, size, err);
    s->done += size;
    progress_update(&s->progress, s->done, s->total);
    return code ? code : check_interrupt(err);
}

/* Rows of `used` distinct experts: a random start and steps short enough not to come round. */
static void fill_routes(const struct synth_dims *d, struct synth_random *r, uint8_t *dst, size_t rows)
{
    const uint64_t steps = d->experts / d->used > 2 ? d->experts / d->used - 1 : 1;
    for (size_t i = 0; i < rows; i++) {
        uint64_t e = synth_random_next(r) % d->experts;
        for (uint32_t k = 0; k < d->used; k++, dst += 4) {
            mc_store_u32(dst, (uint32_t)e);
            e = (e + 1 + synth_random_next(r) % steps) % d->experts;
        }
    }
}

static enum mc_code write_tensor(struct sink *s, const struct plan *p, const struct plan_tensor *t, struct mc_err *err)
{
    struct synth_random r;
    synth_random_init(&r, p->c->seed, t->name);
    const bool routes = t->type == QUANT_I32;
    struct synth_filler f;
    enum mc_code code = routes ? MC_OK : synth_filler_init(&f, &s->kernels, t->type, t->std, t->mean, err);
    const size_t unit = routes ? 4 * (size_t)p->c->d.used : quant_info(t->type)->block_bytes;
    const size_t at_once = WRITE_BYTES / unit;
    for (uint64_t left = t->bytes / unit; left && !code;) {
        const size_t n = left < at_once ? (size_t)left : at_once;
        if (routes)
            fill_routes(&p->c->d, &r, s->buf, n);
        else
            synth_fill(&f, &r, s->buf, n);
        code = flush(s, n * unit, err);
        left -= n;
    }
    const size_t pad = (size_t)(padded(p->c, t->bytes) - t->bytes);
    memset(s->buf, 0, pad);
    return code || !pad ? code : flush(s, pad, err);
}

static enum mc_code write_file(const struct plan *p, const struct text_buf *head, uint64_t total, const char *path, bool quiet,
                               struct mc_err *err)
{
    struct sink s = {.buf = malloc(WRITE_BYTES + 64), .total = total};
    if (!s.buf) return mc_fail(err, MC_ENOMEM, 0, "no memory for the write buffer");
    kern_table_init(&s.kernels, 0); /* the scalar decoders: the same measured scales everywhere */
    enum mc_code code = os_writer_create(path, &s.out, err);
    if (!code) {
        progress_begin(&s.progress, "writing", "MB", 1e6, quiet);
        code = os_writer_write(s.out, head->data, head->size, err);
        for (size_t i = 0; i < p->n && !code; i++) code = write_tensor(&s, p, &p->tensors[i], err);
        progress_end(&s.progress);
        if (code)
            os_writer_abort(s.out);
        else
            code = os_writer_finish(s.out, err);
    }
    free(s.buf);
    return code;
}

enum mc_code synth_write(const struct synth_config *c, const char *path, bool quiet, struct synth_report *report,
                         struct mc_err *err)
{
    const uint64_t start = os_clock_ns();
    struct plan p;
    struct text_buf head;
    uint64_t total = 0;
    text_buf_init(&head);
    enum mc_code code = make_plan(&p, c, err);
    if (!code) code = make_head(&p, &head, &total, err);
    if (!code) code = write_file(&p, &head, total, path, quiet, err);
    report->bytes = head.size + total;
    report->seconds = (double)(os_clock_ns() - start) * 1e-9;
    text_buf_deinit(&head);
    free(p.tensors);
    return code;
}
