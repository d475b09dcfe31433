/* Files that are well-formed GGUF but no model this engine can run: one edit of a good model each, and the one line it must
 * give. And the other way round: spellings, missing optional keys and longer arrays that public files have must open and give
 * the same logits. */
#include "io/weights/weights.h"
#include "runtime/engine/engine.h"
#include "tests/unit/io/gguf_image.h"

#include <inttypes.h>

enum edit_kind {
    DROP_KEY,
    SET_U32,
    SET_F32,
    SET_TEXT,
    ADD_U32,
    CUT_ARRAY,
    GROW_ARRAY,
    DROP_TENSOR,
    RENAME_TENSOR,
    SET_DIM,
    SET_I32_DATA
};

struct edit {
    enum edit_kind kind;
    const char *name; /* of the key or tensor */
    double number;    /* value, or array length, or the new ne[arg] */
    const char *text; /* value, or new name */
    unsigned arg;
};

static bool is_edit(const struct edit *e, enum edit_kind kind, struct mc_span name)
{
    return e->kind == kind && strlen(e->name) == name.size && !memcmp(e->name, name.data, name.size);
}

static void put_span(struct image *m, struct mc_span s)
{
    img_u64(m, s.size);
    img_bytes(m, s.data, s.size);
}

static void put_f32(struct image *m, float v)
{
    uint8_t b[4];
    uint32_t u;
    memcpy(&u, &v, 4);
    mc_store_u32(b, u);
    img_bytes(m, b, 4);
}

static void put_value(struct image *m, const struct gguf_value *v, const struct edit *e)
{
    put_span(m, v->key);
    const bool set_u32 = is_edit(e, SET_U32, v->key), set_f32 = is_edit(e, SET_F32, v->key),
               set_text = is_edit(e, SET_TEXT, v->key);
    img_u32(m, set_u32 ? 4 : set_f32 ? 6 : set_text ? 8 : (uint32_t)v->type);
    if (set_u32) {
        img_u32(m, (uint32_t)e->number);
    } else if (set_f32) {
        put_f32(m, (float)e->number);
    } else if (set_text) {
        img_text(m, e->text);
    } else if (v->type == GGUF_STRING) {
        put_span(m, v->data);
    } else if (v->type == GGUF_ARRAY) {
        const size_t item = v->count && v->item_type != GGUF_STRING ? v->data.size / v->count : 0;
        uint64_t n = v->count;
        if (is_edit(e, CUT_ARRAY, v->key) || is_edit(e, GROW_ARRAY, v->key)) n = (uint64_t)e->number;
        img_u32(m, (uint32_t)v->item_type);
        img_u64(m, n);
        if (n <= v->count && item)
            img_bytes(m, v->data.data, n * item);
        else
            img_bytes(m, v->data.data, v->data.size);
        for (uint64_t i = v->count; i < n; i++) img_fill(m, 0, item);
    } else {
        img_bytes(m, v->data.data, v->data.size);
    }
}

/* Writes `base` with one edit to ./edited.gguf. */
static void write_edited(const char *base, const struct edit *e)
{
    struct gguf *g = NULL;
    struct weights *w = NULL;
    struct mc_err err = {0};
    if (gguf_open(base, &g, &err) || weights_open(g, &w, &err)) fail_msg("%s", err.msg);
    struct image m = {0};
    uint64_t n_values = gguf_n_values(g), n_tensors = gguf_n_tensors(g), off = 0;
    bool found = e->kind == ADD_U32;
    for (size_t i = 0; i < gguf_n_values(g); i++)
        if (is_edit(e, DROP_KEY, gguf_value_at(g, i)->key)) n_values--, found = true;
    for (size_t i = 0; i < gguf_n_tensors(g); i++)
        if (is_edit(e, DROP_TENSOR, gguf_tensor_at(g, i)->name)) n_tensors--, found = true;
    img_header(&m, n_tensors, n_values + (e->kind == ADD_U32));
    for (size_t i = 0; i < gguf_n_values(g); i++) {
        const struct gguf_value *v = gguf_value_at(g, i);
        found = found || (v->key.size == strlen(e->name) && !memcmp(v->key.data, e->name, v->key.size));
        if (!is_edit(e, DROP_KEY, v->key)) put_value(&m, v, e);
    }
    if (e->kind == ADD_U32) {
        img_key(&m, e->name, 4);
        img_u32(&m, (uint32_t)e->number);
    }
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (is_edit(e, DROP_TENSOR, t->name)) continue;
        uint64_t ne[4] = {t->ne[0], t->ne[1], t->ne[2], t->ne[3]};
        if (is_edit(e, RENAME_TENSOR, t->name)) {
            img_text(&m, e->text);
            found = true;
        } else {
            put_span(&m, t->name);
        }
        if (is_edit(e, SET_DIM, t->name)) ne[e->arg] = (uint64_t)e->number, found = true;
        found = found || is_edit(e, SET_I32_DATA, t->name);
        img_u32(&m, t->n_dims);
        for (unsigned d = 0; d < t->n_dims; d++) img_u64(&m, ne[d]);
        img_u32(&m, (uint32_t)t->type);
        img_u64(&m, off);
        off += (quant_row_bytes(quant_info(t->type), ne[0]) * ne[1] * ne[2] * ne[3] + 31) / 32 * 32;
    }
    img_pad(&m, 32);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (is_edit(e, DROP_TENSOR, t->name)) continue;
        uint64_t ne[4] = {t->ne[0], t->ne[1], t->ne[2], t->ne[3]};
        if (is_edit(e, SET_DIM, t->name)) ne[e->arg] = (uint64_t)e->number;
        const uint64_t bytes = quant_row_bytes(quant_info(t->type), ne[0]) * ne[1] * ne[2] * ne[3];
        const size_t at = m.size;
        if (bytes <= t->size_bytes) {
            img_bytes(&m, weights_tensor(w, i), bytes);
        } else {
            img_bytes(&m, weights_tensor(w, i), t->size_bytes);
            img_fill(&m, 0, bytes - t->size_bytes);
        }
        if (is_edit(e, SET_I32_DATA, t->name)) mc_store_u32(m.data + at + 4 * e->arg, (uint32_t)(int32_t)e->number);
        img_pad(&m, 32);
    }
    if (!found) fail_msg("the test edits %s, which %s does not have", e->name, base);
    FILE *file = fopen("edited.gguf", "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(m.data, 1, m.size, file), m.size);
    fclose(file);
    free(m.data);
    weights_close(w);
    gguf_close(g);
}

static const char nano[] = MC_TEST_DATA "/golden/nano.gguf";

static enum mc_code open_edited(const struct edit *e, struct engine **out, struct mc_err *err)
{
    write_edited(nano, e);
    const struct engine_options opt = {.model_path = "edited.gguf", .n_threads = 1, .pin = "off"};
    return engine_open(&opt, out, err);
}

#define K(name)  "deepseek4." name
#define NAN_BITS 2143289344.0 /* of a float: 0x7FC00000 */
static const struct refused {
    struct edit edit;
    enum mc_code code;
    const char *says; /* must be in the message */
} refused[] = {
    {{SET_TEXT, "general.architecture", 0, "llama", 0}, MC_EUNSUPPORTED, "general.architecture is 'llama'"},
    {{SET_TEXT, "general.architecture", 0, "deepseek41", 0}, MC_EUNSUPPORTED, "V4.1"},
    {{DROP_KEY, "general.architecture", 0, NULL, 0}, MC_EFORMAT, "general.architecture"},
    {{DROP_KEY, K("block_count"), 0, NULL, 0}, MC_EFORMAT, "block_count"},
    {{SET_U32, K("block_count"), 0, NULL, 0}, MC_EFORMAT, "block_count"},
    {{SET_U32, K("block_count"), 100000, NULL, 0}, MC_EFORMAT, "block_count"},
    {{SET_U32, K("block_count"), 6, NULL, 0}, MC_EFORMAT, "swiglu_clamp_exp"},
    {{SET_TEXT, K("block_count"), 0, "five", 0}, MC_EFORMAT, "block_count"},
    {{DROP_KEY, K("context_length"), 0, NULL, 0}, MC_EFORMAT, "context_length"},
    {{SET_U32, K("context_length"), 0, NULL, 0}, MC_EFORMAT, "context_length"},
    {{SET_U32, K("embedding_length"), 256, NULL, 0}, MC_EFORMAT, "token_embd.weight"},
    {{SET_U32, K("attention.head_count_kv"), 4, NULL, 0}, MC_EFORMAT, "head_count_kv"},
    {{SET_U32, K("attention.head_count"), 0, NULL, 0}, MC_EFORMAT, "head_count"},
    {{SET_U32, K("attention.value_length"), 32, NULL, 0}, MC_EFORMAT, "value_length"},
    {{SET_U32, K("attention.output_group_count"), 3, NULL, 0}, MC_EFORMAT, "output_group_count"},
    {{CUT_ARRAY, K("attention.compress_ratios"), 4, NULL, 0}, MC_EFORMAT, "compress_ratios"},
    {{SET_U32, K("attention.compress_ratios"), 4, NULL, 0}, MC_EFORMAT, "compress_ratios"},
    {{DROP_KEY, K("attention.compress_rope_freq_base"), 0, NULL, 0}, MC_EFORMAT, "compress_rope_freq_base"},
    {{SET_U32, K("rope.dimension_count"), 128, NULL, 0}, MC_EFORMAT, "rope.dimension_count"},
    {{SET_U32, K("rope.dimension_count"), 31, NULL, 0}, MC_EFORMAT, "rope.dimension_count"},
    {{DROP_KEY, K("rope.scaling.factor"), 0, NULL, 0}, MC_EFORMAT, "rope.scaling.factor"},
    {{DROP_KEY, K("rope.scaling.type"), 0, NULL, 0}, MC_EFORMAT, "rope.scaling.type"},
    {{SET_TEXT, K("rope.scaling.type"), 0, "linear", 0}, MC_EUNSUPPORTED, "rope.scaling.type"},
    {{SET_F32, K("rope.freq_base"), 0, NULL, 0}, MC_EFORMAT, "rope.freq_base"},
    {{SET_U32, K("expert_used_count"), 9, NULL, 0}, MC_EFORMAT, "expert_used_count"},
    {{SET_U32, K("expert_used_count"), 0, NULL, 0}, MC_EFORMAT, "expert_used_count"},
    {{SET_U32, K("expert_shared_count"), 2, NULL, 0}, MC_EFORMAT, "expert_shared_count"},
    {{SET_U32, K("expert_gating_func"), 2, NULL, 0}, MC_EUNSUPPORTED, "expert_gating_func"},
    {{ADD_U32, K("expert_group_count"), 8, NULL, 0}, MC_EUNSUPPORTED, "expert_group_count"},
    {{ADD_U32, K("leading_dense_block_count"), 1, NULL, 0}, MC_EUNSUPPORTED, "leading_dense_block_count"},
    {{DROP_KEY, K("swiglu_clamp_exp"), 0, NULL, 0}, MC_EFORMAT, "swiglu_clamp_exp"},
    {{CUT_ARRAY, K("swiglu_clamp_exp"), 2, NULL, 0}, MC_EFORMAT, "swiglu_clamp_exp"},
    {{SET_U32, K("hash_layer_count"), 4, NULL, 0}, MC_EFORMAT, "ffn_gate_tid2eid"},
    {{SET_U32, K("hyper_connection.count"), 9, NULL, 0}, MC_EFORMAT, "hyper_connection.count"},
    {{SET_U32, K("hyper_connection.count"), 2, NULL, 0}, MC_EFORMAT, "output_hc_fn"},
    {{DROP_KEY, K("hyper_connection.sinkhorn_iterations"), 0, NULL, 0}, MC_EFORMAT, "sinkhorn"},
    {{SET_F32, K("attention.layer_norm_rms_epsilon"), -1, NULL, 0}, MC_EFORMAT, "rms_epsilon"},
    {{SET_U32, K("vocab_size"), 383, NULL, 0}, MC_EFORMAT, "token_embd.weight"},
    {{SET_DIM, "output.weight", 380, NULL, 1}, MC_EFORMAT, "output.weight"},
    {{SET_DIM, "blk.2.ffn_up_exps.weight", 7, NULL, 2}, MC_EFORMAT, "blk.2.ffn_up_exps.weight"},
    {{SET_DIM, "blk.1.attn_kv.weight", 32, NULL, 1}, MC_EFORMAT, "blk.1.attn_kv.weight"},
    {{SET_DIM, "blk.1.attn_compressor_ape.weight", 3, NULL, 1}, MC_EFORMAT, "attn_compressor_ape"},
    {{DROP_TENSOR, "blk.3.attn_sinks.weight", 0, NULL, 0}, MC_EFORMAT, "blk.3.attn_sinks.weight is missing"},
    {{DROP_TENSOR, "blk.1.indexer.proj.weight", 0, NULL, 0}, MC_EFORMAT, "blk.1.indexer.proj.weight is missing"},
    {{DROP_TENSOR, "output.weight", 0, NULL, 0}, MC_EFORMAT, "output.weight is missing"},
    {{RENAME_TENSOR, "blk.0.ffn_gate_exps.weight", 0, "blk.0.ffn_gate_up_exps.weight", 0},
     MC_EUNSUPPORTED,
     "merges gate and up"},
    {{SET_I32_DATA, "blk.0.ffn_gate_tid2eid.weight", 8, NULL, 5}, MC_EFORMAT, "names expert 8"},
    {{SET_I32_DATA, "blk.0.ffn_gate_tid2eid.weight", -1, NULL, 5}, MC_EFORMAT, "names expert -1"},
    {{SET_I32_DATA, "blk.3.exp_probs_b.bias", NAN_BITS, NULL, 5}, MC_EFORMAT, "blk.3.exp_probs_b.bias holds NaN (element 5)"},
    {{SET_I32_DATA, "blk.2.attn_norm.weight", NAN_BITS, NULL, 0}, MC_EFORMAT, "blk.2.attn_norm.weight holds NaN"},
    {{SET_I32_DATA, "blk.0.attn_sinks.weight", NAN_BITS, NULL, 3}, MC_EFORMAT, "blk.0.attn_sinks.weight holds NaN"},
    {{SET_I32_DATA, "blk.4.hc_ffn_base.weight", NAN_BITS, NULL, 1}, MC_EFORMAT, "blk.4.hc_ffn_base.weight holds NaN"},
    {{SET_I32_DATA, "output_hc_scale.weight", NAN_BITS, NULL, 0}, MC_EFORMAT, "output_hc_scale.weight holds NaN"},
    {{CUT_ARRAY, "tokenizer.ggml.token_type", 383, NULL, 0}, MC_OK, ""}, /* the tokenizer's business, not the engine's */
};

static void each_impossible_model_is_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        struct engine *e = NULL;
        struct mc_err err = {0};
        const enum mc_code code = open_edited(&refused[i].edit, &e, &err);
        if (code != refused[i].code || !strstr(err.msg, refused[i].says))
            fail_msg("edit %u of %s: code %d (expected %d), message: %s", (unsigned)i, refused[i].edit.name, code,
                     refused[i].code, err.msg);
        if (code) assert_null(e);
        engine_close(e);
    }
}

static void logits_of(struct engine *e, float *out)
{
    static const int32_t ids[] = {0, 17, 42, 99, 5, 300, 7, 8, 9, 10, 11, 12};
    struct session *s = NULL;
    struct mc_err err = {0};
    if (session_create(e, &(struct session_options){.n_ctx = 64, .kv = KERN_KV_F16}, &s, &err) ||
        session_append(s, ids, ARRAY_LEN(ids), &err))
        fail_msg("%s", err.msg);
    memcpy(out, session_logits(s), engine_shape(e)->n_vocab * sizeof *out);
    session_destroy(s);
}

static void variants_of_public_files_give_the_same_logits(void **state)
{
    (void)state;
    static const struct edit same[] = {
        {RENAME_TENSOR, "blk.1.attn_compressor_kv.weight", 0, "blk.1.attn_compress_kv.weight", 0},
        {RENAME_TENSOR, "blk.1.indexer_compressor_ape.weight", 0, "blk.1.indexer.compress_ape.weight", 0},
        {RENAME_TENSOR, "blk.0.attn_kv.weight", 0, "blk.0.attn_kv_latent.weight", 0},
        {RENAME_TENSOR, "blk.3.exp_probs_b.bias", 0, "blk.3.exp_probs_b.weight", 0},
        {RENAME_TENSOR, "output_hc_base.weight", 0, "hc_head_base.weight", 0},
        {GROW_ARRAY, K("attention.compress_ratios"), 8, NULL, 0},
        {GROW_ARRAY, K("swiglu_clamp_exp"), 7, NULL, 0},
        {DROP_KEY, K("attention.compress_ratios"), 0, NULL, 0},
        {DROP_KEY, K("vocab_size"), 0, NULL, 0},
        {DROP_KEY, K("attention.key_length"), 0, NULL, 0},
        {DROP_KEY, K("attention.q_lora_rank"), 0, NULL, 0},
        {DROP_KEY, K("attention.output_group_count"), 0, NULL, 0},
        {DROP_KEY, K("attention.output_lora_rank"), 0, NULL, 0},
        {DROP_KEY, K("expert_feed_forward_length"), 0, NULL, 0},
        {DROP_KEY, K("expert_gating_func"), 0, NULL, 0},
        {DROP_KEY, K("hash_layer_count"), 0, NULL, 0},
        {DROP_KEY, K("hyper_connection.count"), 0, NULL, 0},
        {ADD_U32, K("nextn_predict_layers"), 1, NULL, 0}, /* the count without the tensors */
        {ADD_U32, K("feed_forward_length"), 77, NULL, 0},
    };
    float want[384], got[384];
    struct engine *e = NULL;
    struct mc_err err = {0};
    if (engine_open(&(struct engine_options){.model_path = nano, .n_threads = 1, .pin = "off"}, &e, &err))
        fail_msg("%s", err.msg);
    logits_of(e, want);
    engine_close(e);
    for (size_t i = 0; i < ARRAY_LEN(same); i++) {
        if (open_edited(&same[i], &e, &err)) fail_msg("edit %u of %s: %s", (unsigned)i, same[i].name, err.msg);
        logits_of(e, got);
        if (memcmp(got, want, sizeof want)) fail_msg("edit %u of %s changes the logits", (unsigned)i, same[i].name);
        engine_close(e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_impossible_model_is_refused_by_name),
        cmocka_unit_test(variants_of_public_files_give_the_same_logits),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove("edited.gguf");
    return failed;
}
