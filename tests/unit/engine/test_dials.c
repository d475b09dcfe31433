/* Lossy settings leave the rules of the engine in force: the same bits for every thread count, chunk size and layout; lossless
 * again means the plain path; what was lossy in the cache is remembered; rows that are left out are not read. */
#include "runtime/control/settings.h"
#include "runtime/model/trace.h"
#include "tests/support/engine_fixture.h"

#include "platform/base/bytes.h"

enum { TOKENS = 150 };

static struct moe_settings dials(const struct engine *e, uint32_t k, float min_weight, uint32_t rows_exps, uint32_t rows_shexp)
{
    const struct model_shape *s = engine_shape(e);
    const struct settings_limits m = {s->n_layer, s->n_hash_layer, s->n_used};
    struct moe_settings d = settings_lossless(&m);
    d.top_k = d.inner_k = k < s->n_used ? k : s->n_used;
    d.min_weight = min_weight;
    d.rows_exps = rows_exps;
    d.rows_shexp = rows_shexp;
    d.scope = MOE_SCOPE_ALL;
    return d;
}

static void put(struct engine *e, struct moe_settings d)
{
    assert_true(settings_box_set(engine_settings(e), &d, SETTINGS_SOCKET, 0) > 0);
}

static const struct {
    uint32_t k;
    float min_weight;
    uint32_t rows_exps, rows_shexp;
} lossy[] = {{2, 0, 0, 0}, {32, 0.2f, 0, 0}, {32, 0, 80, 0}, {32, 0, 0, 50}, {2, 0.1f, 77, 96}};

static struct moe_settings lossy_at(const struct engine *e, size_t i)
{
    return dials(e, lossy[i].k, lossy[i].min_weight, lossy[i].rows_exps, lossy[i].rows_shexp);
}

static const char *const models[] = {"nano", "nano-quant", "tiny"};

static void threads_chunks_and_layouts_change_no_bit(void **state)
{
    (void)state;
    static const uint32_t batches[] = {1, 7, 64};
    static const struct {
        unsigned threads;
        const char *layout;
    } runs[] = {{2, "file"}, {3, "auto"}, {1, "packed"}};
    for (size_t m = 0; m < ARRAY_LEN(models); m++) {
        struct engine *e = fixture_engine_layout(models[m], ENGINE_FAST, "auto", 1, "file");
        const uint32_t n_vocab = engine_shape(e)->n_vocab;
        int32_t *ids = fixture_tokens(TOKENS, n_vocab, 3);
        float *want[ARRAY_LEN(lossy) + 1];
        for (size_t i = 0; i <= ARRAY_LEN(lossy); i++) {
            put(e, i < ARRAY_LEN(lossy) ? lossy_at(e, i) : dials(e, 32, 0, 0, 0));
            struct session *s = fixture_session(e, TOKENS, TOKENS, KERN_KV_F16);
            want[i] = fixture_append_all(s, n_vocab, ids, TOKENS);
            session_destroy(s);
        }
        for (size_t i = 0; i < ARRAY_LEN(lossy); i++) /* the dials do something */
            assert_memory_not_equal(want[i], want[ARRAY_LEN(lossy)], (size_t)TOKENS * n_vocab * sizeof(float));
        engine_close(e);
        for (size_t r = 0; r < ARRAY_LEN(runs); r++) {
            e = fixture_engine_layout(models[m], ENGINE_FAST, "auto", runs[r].threads, runs[r].layout);
            if (!e) continue;
            for (size_t i = 0; i < ARRAY_LEN(lossy); i++)
                for (size_t b = 0; b < ARRAY_LEN(batches); b++) {
                    put(e, lossy_at(e, i));
                    struct session *s = fixture_session(e, TOKENS, batches[b], KERN_KV_F16);
                    float *got = fixture_append_all(s, n_vocab, ids, TOKENS);
                    if (memcmp(got, want[i], (size_t)TOKENS * n_vocab * sizeof *got) != 0)
                        fail_msg("%s, settings %zu, %u threads, chunks of %u, layout %s", models[m], i, runs[r].threads,
                                 (unsigned)batches[b], runs[r].layout);
                    free(got);
                    session_destroy(s);
                }
            engine_close(e);
        }
        for (size_t i = 0; i <= ARRAY_LEN(lossy); i++) free(want[i]);
        free(ids);
    }
}

/* One engine, all settings in turn; then lossless with the numbers written out must be what an untouched engine gives. */
static void lossless_again_is_the_plain_path(void **state)
{
    (void)state;
    for (size_t m = 0; m < ARRAY_LEN(models); m++) {
        struct engine *e = fixture_engine(models[m], ENGINE_FAST, "auto", 2);
        const uint32_t n_vocab = engine_shape(e)->n_vocab;
        int32_t *ids = fixture_tokens(TOKENS, n_vocab, 3);
        struct session *s = fixture_session(e, TOKENS, 64, KERN_KV_F16);
        float *want = fixture_append_all(s, n_vocab, ids, TOKENS);
        for (size_t i = 0; i < ARRAY_LEN(lossy); i++) {
            put(e, lossy_at(e, i));
            fixture_rewind(s, 0);
            fixture_append(s, ids, TOKENS);
        }
        put(e, dials(e, 32, 0, 0, 0));
        fixture_rewind(s, 0);
        float *got = fixture_append_all(s, n_vocab, ids, TOKENS);
        assert_memory_equal(got, want, (size_t)TOKENS * n_vocab * sizeof *got);
        free(got);
        free(want);
        free(ids);
        session_destroy(s);
        engine_close(e);
    }
}

static void decoding_obeys_where_a_prompt_does_not(void **state)
{
    (void)state;
    struct engine *e = fixture_engine("tiny", ENGINE_FAST, "auto", 2);
    const uint32_t n_vocab = engine_shape(e)->n_vocab;
    int32_t *ids = fixture_tokens(TOKENS, n_vocab, 3);
    struct session *a = fixture_session(e, TOKENS, 64, KERN_KV_F16), *b = fixture_session(e, TOKENS, 64, KERN_KV_F16);
    struct moe_settings d = dials(e, 4, 0, 80, 80), plain = dials(e, 32, 0, 0, 0);
    struct mc_err err = {0};
    fixture_append(a, ids, 100); /* lossless */
    d.scope = MOE_SCOPE_DECODE;
    put(e, d);
    fixture_append(b, ids, 99);
    fixture_append(b, ids + 99, 1); /* one token, but of the prompt */
    assert_memory_equal(session_logits(a), session_logits(b), n_vocab * sizeof(float));
    assert_int_equal(session_lossless_prefix(b), 100);
    if (session_decode(b, ids[100], &err)) fail_msg("%s", err.msg);
    d.scope = MOE_SCOPE_ALL;
    put(e, d);
    fixture_append(a, ids + 100, 1);
    assert_memory_equal(session_logits(a), session_logits(b), n_vocab * sizeof(float));
    put(e, plain);
    if (session_decode(b, ids[101], &err)) fail_msg("%s", err.msg);
    assert_int_equal(session_lossless_prefix(b), 100);

    uint32_t kept = 0;
    struct session_snapshot *snap = NULL;
    if (session_snapshot_take(b, &snap, &err)) fail_msg("%s", err.msg);
    put(e, d); /* lossy: a lossy prefix is good enough */
    if (session_keep_prefix(b, ids, 102, &kept, &err)) fail_msg("%s", err.msg);
    assert_int_equal(kept, 101);
    put(e, plain);
    if (session_keep_prefix(b, ids, 101, &kept, &err)) fail_msg("%s", err.msg);
    assert_int_equal(kept, 100);
    assert_int_equal(session_lossless_prefix(b), 100);
    fixture_append(b, ids + 100, 2);
    assert_int_equal(session_lossless_prefix(b), 102);
    if (session_snapshot_restore(b, snap, &err)) fail_msg("%s", err.msg);
    assert_int_equal(session_lossless_prefix(b), 100);
    session_snapshot_destroy(snap);
    session_destroy(a);
    session_destroy(b);
    engine_close(e);
    free(ids);
}

/* Weight bytes that decoding 8 tokens hands to the kernels, by the trace. */
static uint64_t bytes_read(struct engine *e, struct moe_settings d, const int32_t *ids, uint64_t *saved)
{
    struct session *s = fixture_session(e, 64, 64, KERN_KV_F16);
    const struct trace *t = NULL;
    struct mc_err err = {0};
    struct engine_counts before, after;
    uint64_t sum = 0;
    put(e, d);
    fixture_append(s, ids, 8);
    if (session_trace(s, &t, &err)) fail_msg("%s", err.msg);
    engine_counts_get(e, &before);
    for (size_t i = 8; i < 16; i++)
        if (session_decode(s, ids[i], &err)) fail_msg("%s", err.msg);
    engine_counts_get(e, &after);
    assert_int_equal(after.steps_decoded - before.steps_decoded, 8);
    *saved = after.bytes_saved - before.bytes_saved;
    for (uint32_t il = 0; il < engine_shape(e)->n_layer; il++)
        sum += trace_cell_at(t, il, TRACE_EXPERTS_IN).bytes + trace_cell_at(t, il, TRACE_EXPERTS_OUT).bytes;
    session_destroy(s);
    return sum;
}

static void what_is_left_out_is_not_read(void **state)
{
    (void)state;
    static const char *const layouts[] = {"file", "packed"};
    for (size_t l = 0; l < ARRAY_LEN(layouts); l++) {
        struct engine *e = fixture_engine_layout("tiny", ENGINE_FAST, "auto", 2, layouts[l]);
        if (!e) continue;
        int32_t *ids = fixture_tokens(16, engine_shape(e)->n_vocab, 5);
        uint64_t saved;
        const uint64_t all = bytes_read(e, dials(e, 32, 0, 0, 0), ids, &saved);
        assert_int_equal(saved, 0);
        const uint64_t top4 = bytes_read(e, dials(e, 4, 0, 0, 0), ids, &saved);
        assert_true(saved > 0);
        assert_int_equal(all - top4, saved);
        const uint64_t rows = bytes_read(e, dials(e, 32, 0, 64, 64), ids, &saved);
        assert_int_equal(all - rows, saved);
        if (l == 0) {
            /* of gate, up and down of about equal size, in the learned half of the layers, half of one is left out */
            assert_true(saved > 0);
            assert_int_equal(saved, 8 * engine_rows_saving(e, 64, 64));
        } else {
            assert_int_equal(saved, 8 * engine_rows_saving(e, 64, 64)); /* what could not be packed may still save */
        }
        free(ids);
        engine_close(e);
    }
}

/* Options of loading: up stays row by row where rows are to be skipped, everything else is packed as before. */
static void matrices_of_which_rows_are_skipped_are_not_packed(void **state)
{
    (void)state;
    char path[512];
    struct mc_err err = {0};
    uint64_t packed[2];
    snprintf(path, sizeof path, "%s/tiny-dsv4.gguf", MC_MODELS);
    for (unsigned keep = 0; keep < 2; keep++) {
        const struct engine_options opt = {.model_path = path, .pin = "off", .keep_up_exps = keep, .keep_up_shexp = keep};
        struct engine *e = NULL;
        struct engine_facts facts;
        if (engine_open(&opt, &e, &err)) fail_msg("%s", err.msg);
        engine_facts_get(e, &facts);
        packed[keep] = facts.packed_file_bytes;
        if (keep) assert_true(engine_rows_saving(e, 64, 64) > 0);
        engine_close(e);
    }
    if (packed[0] > 0) assert_true(packed[1] < packed[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_chunks_and_layouts_change_no_bit),
        cmocka_unit_test(lossless_again_is_the_plain_path),
        cmocka_unit_test(decoding_obeys_where_a_prompt_does_not),
        cmocka_unit_test(what_is_left_out_is_not_read),
        cmocka_unit_test(matrices_of_which_rows_are_skipped_are_not_packed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
