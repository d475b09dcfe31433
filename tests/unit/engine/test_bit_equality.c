/* The same logits, to the bit, whatever the number of workers, the split of the prompt into chunks, the way back (rewind at
 * every residue of the 4- and 128-blocks, and beyond the reach), through a snapshot, with matrices packed or in the file
 * layout, wherever the workers sit. Judged against one run of one worker, all tokens in one chunk, file layout. */
#include "kernels/cpu_flags.h"
#include "platform/os.h"
#include "tests/support/engine_fixture.h"

enum { TOKENS = 400 };

/* Under the thread sanitizer, some hundred times slower: what crosses from worker to worker, once. */
#ifdef __SANITIZE_THREAD__
static const char *const models[] = {"nano-quant"};
static const enum kern_kv kv_first = KERN_KV_F16, kv_last = KERN_KV_F16;
#else
static const char *const models[] = {"nano", "nano-quant", "tiny"};
static const enum kern_kv kv_first = KERN_KV_F32, kv_last = KERN_KV_Q8;
#endif

struct reference {
    uint32_t n_vocab;
    int32_t *ids;
    float *logits; /* [TOKENS][n_vocab] */
};

static struct reference make_reference(const char *model, enum kern_kv kv)
{
    struct engine *e = fixture_engine_layout(model, ENGINE_FAST, "auto", 1, "file");
    struct session *s = fixture_session(e, TOKENS, TOKENS, kv);
    struct reference r = {.n_vocab = engine_shape(e)->n_vocab};
    r.ids = fixture_tokens(TOKENS, r.n_vocab, 7);
    r.logits = fixture_append_all(s, r.n_vocab, r.ids, TOKENS);
    session_destroy(s);
    engine_close(e);
    return r;
}

static void free_reference(struct reference *r)
{
    free(r->ids);
    free(r->logits);
}

static void assert_logits_at(const struct session *s, const struct reference *r, uint32_t position)
{
    const float *got = session_logits(s), *want = r->logits + (size_t)position * r->n_vocab;
    assert_non_null(got);
    if (memcmp(got, want, r->n_vocab * sizeof *got)) fail_msg("logits at position %u differ", (unsigned)position);
}

static void threads_and_chunks_change_no_bit(void **state)
{
    (void)state;
    static const unsigned threads[] = {1, 2, 3};
    static const uint32_t batches[] = {1, 7, 64, 400};
    for (size_t m = 0; m < ARRAY_LEN(models); m++)
        for (unsigned kv = kv_first; kv <= (unsigned)kv_last; kv++) {
            struct reference r = make_reference(models[m], (enum kern_kv)kv);
            for (size_t t = 0; t < ARRAY_LEN(threads); t++) {
                if (kv != KERN_KV_F16 && threads[t] != 2) continue;
                struct engine *e = fixture_engine(models[m], ENGINE_FAST, "auto", threads[t]);
                for (size_t b = 0; b < ARRAY_LEN(batches); b++) {
                    struct session *s = fixture_session(e, TOKENS, batches[b], (enum kern_kv)kv);
                    float *got = fixture_append_all(s, r.n_vocab, r.ids, TOKENS);
                    if (memcmp(got, r.logits, (size_t)TOKENS * r.n_vocab * sizeof *got))
                        fail_msg("%s: kv %u, %u threads, chunks of %u give other logits", models[m], kv, threads[t],
                                 (unsigned)batches[b]);
                    free(got);
                    session_destroy(s);
                }
                engine_close(e);
            }
            free_reference(&r);
        }
}

/* Bound one to a CPU, all to one CPU, more workers than the machine has CPUs, not bound. */
static void placements_change_no_bit(void **state)
{
    (void)state;
    unsigned cpu;
    char one_cpu[64], path[512];
    assert_true(os_cpus_allowed(&cpu, 1) == 1);
    snprintf(one_cpu, sizeof one_cpu, "%u,%u,%u", cpu, cpu, cpu);
    const struct {
        const char *pin;
        unsigned n_threads;
    } places[] = {{"auto", 0}, {one_cpu, 0}, {one_cpu, 5}, {"off", 5}, {"auto", 1}};
    struct reference r = make_reference("nano-quant", KERN_KV_F16);
    snprintf(path, sizeof path, "%s/golden/nano-quant.gguf", MC_TEST_DATA);
    for (size_t p = 0; p < ARRAY_LEN(places); p++) {
        const struct engine_options opt = {.model_path = path, .n_threads = places[p].n_threads, .pin = places[p].pin};
        struct engine *e = NULL;
        struct mc_err err;
        if (engine_open(&opt, &e, &err)) fail_msg("%s", err.msg);
        struct session *s = fixture_session(e, TOKENS, 64, KERN_KV_F16);
        fixture_append(s, r.ids, 70);
        assert_logits_at(s, &r, 69);
        for (uint32_t n = 70; n < 75; n++) fixture_append(s, r.ids + n, 1);
        assert_logits_at(s, &r, 74);
        session_destroy(s);
        engine_close(e);
    }
    free_reference(&r);
}

static void layouts_change_no_bit(void **state)
{
    (void)state;
    static const char *const layouts[] = {"packed", "file"}, *const isas[] = {"scalar", "avx2", "avx512"};
    for (size_t m = 0; m < ARRAY_LEN(models); m++) {
        struct reference r = make_reference(models[m], KERN_KV_F16);
        for (size_t i = 0; i < ARRAY_LEN(isas); i++)
            for (size_t l = 0; l < ARRAY_LEN(layouts); l++) {
                uint32_t flags;
                if (kern_isa_flags(isas[i], &flags)) continue;
                struct engine *e = fixture_engine_layout(models[m], ENGINE_FAST, isas[i], 2, layouts[l]);
                if (!e) {
                    printf("skipped: no packed form for %s on %s\n", models[m], isas[i]);
                    continue;
                }
                struct session *s = fixture_session(e, TOKENS, 33, KERN_KV_F16);
                fixture_append(s, r.ids, 70);
                assert_logits_at(s, &r, 69);
                for (uint32_t n = 70; n < 75; n++) {
                    fixture_append(s, r.ids + n, 1);
                    assert_logits_at(s, &r, n);
                }
                struct engine_facts facts;
                engine_facts_get(e, &facts);
                assert_true(l == 0 ? facts.packed_bytes > 0 : facts.packed_bytes == 0);
                printf("%s %s %s: %llu packed bytes for %llu in the file\n", models[m], isas[i], layouts[l],
                       (unsigned long long)facts.packed_bytes, (unsigned long long)facts.packed_file_bytes);
                session_destroy(s);
                engine_close(e);
            }
        free_reference(&r);
    }
}

static void appends_of_any_size_change_no_bit(void **state)
{
    (void)state;
    static const size_t steps[] = {1, 7, 64, 3, 130, 2, 90, 1, 1, 101};
    for (size_t m = 0; m < ARRAY_LEN(models); m++) {
        struct reference r = make_reference(models[m], KERN_KV_F16);
        struct engine *e = fixture_engine(models[m], ENGINE_FAST, "auto", 2);
        struct session *s = fixture_session(e, TOKENS, 512, KERN_KV_F16);
        size_t at = 0;
        for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
            fixture_append(s, r.ids + at, steps[i]);
            at += steps[i];
            assert_logits_at(s, &r, (uint32_t)at - 1);
        }
        assert_int_equal(at, TOKENS);
        session_destroy(s);
        engine_close(e);
        free_reference(&r);
    }
}

#ifndef __SANITIZE_THREAD__
/* From TOKENS back one by one: every residue of both block sizes is a place to go on from. Other tokens are run in between, so
 * that stale rows behind the position would show. */
static void rewind_to_every_residue_is_exact(void **state)
{
    (void)state;
    for (size_t m = 0; m < ARRAY_LEN(models); m++) {
        struct reference r = make_reference(models[m], KERN_KV_F16);
        struct engine *e = fixture_engine(models[m], ENGINE_FAST, "auto", 2);
        struct session *s = fixture_session(e, TOKENS, 64, KERN_KV_F16);
        int32_t *other = fixture_tokens(16, r.n_vocab, 99);
        const uint32_t reach = session_rewind_reach(s);
        assert_true(reach >= 128);
        fixture_append(s, r.ids, TOKENS);
        for (uint32_t n = TOKENS - 1; n > TOKENS - reach; n--) {
            fixture_rewind(s, n);
            assert_null(session_logits(s));
            const uint32_t room = TOKENS - n < 9 ? TOKENS - n : 9;
            fixture_append(s, other, room); /* may close blocks with tokens that are taken back */
            fixture_rewind(s, n);
            const uint32_t k = TOKENS - n < 3 ? TOKENS - n : 3;
            fixture_append(s, r.ids + n, k);
            assert_logits_at(s, &r, n + k - 1);
        }
        free(other);
        session_destroy(s);
        engine_close(e);
        free_reference(&r);
    }
}

static void rewind_beyond_the_reach_runs_the_tokens_again(void **state)
{
    (void)state;
    struct reference r = make_reference("nano-quant", KERN_KV_F16);
    struct engine *e = fixture_engine("nano-quant", ENGINE_FAST, "auto", 2);
    struct session *s = fixture_session(e, TOKENS, 32, KERN_KV_F16);
    for (uint32_t n = 1; n < 240; n += 37) {
        fixture_append(s, r.ids + session_position(s), TOKENS - session_position(s));
        fixture_rewind(s, n);
        assert_int_equal(session_position(s), n);
        fixture_append(s, r.ids + n, 1);
        assert_logits_at(s, &r, n);
    }
    fixture_rewind(s, 0);
    fixture_append(s, r.ids, 200);
    assert_logits_at(s, &r, 199);
    struct mc_err err = {0};
    assert_int_equal(session_rewind(s, 201, &err), MC_EARG);
    assert_int_equal(session_position(s), 200);
    session_destroy(s);
    engine_close(e);
    free_reference(&r);
}

static void a_snapshot_brings_the_state_back(void **state)
{
    (void)state;
    static const uint32_t positions[] = {0, 1, 3, 4, 127, 128, 131, 257, 300};
    for (size_t m = 0; m < ARRAY_LEN(models); m++) {
        struct reference r = make_reference(models[m], KERN_KV_F16);
        struct engine *e = fixture_engine(models[m], ENGINE_FAST, "auto", 2);
        struct session *a = fixture_session(e, TOKENS, 50, KERN_KV_F16), *b = fixture_session(e, TOKENS, 33, KERN_KV_F16);
        int32_t *other = fixture_tokens(200, r.n_vocab, 5);
        struct mc_err err = {0};
        for (size_t i = 0; i < ARRAY_LEN(positions); i++) {
            const uint32_t n = positions[i];
            struct session_snapshot *snap = NULL;
            fixture_rewind(a, 0);
            if (n) fixture_append(a, r.ids, n);
            if (session_snapshot_take(a, &snap, &err)) fail_msg("%s", err.msg);
            assert_true(session_snapshot_bytes(snap) > 0);
            fixture_append(a, other, 90); /* both sessions hold something else by now */
            fixture_rewind(b, 0);
            fixture_append(b, other, 200);
            if (session_snapshot_restore(b, snap, &err) || session_snapshot_restore(a, snap, &err)) fail_msg("%s", err.msg);
            assert_int_equal(session_position(b), n);
            if (n) assert_memory_equal(session_tokens(b), r.ids, n * sizeof *r.ids);
            fixture_append(a, r.ids + n, 60);
            assert_logits_at(a, &r, n + 59);
            fixture_append(b, r.ids + n, 60);
            assert_logits_at(b, &r, n + 59);
            fixture_rewind(b, n + 30); /* still exact, free or not */
            fixture_append(b, r.ids + n + 30, 2);
            assert_logits_at(b, &r, n + 31);
            session_snapshot_destroy(snap);
        }
        free(other);
        session_destroy(a);
        session_destroy(b);
        engine_close(e);
        free_reference(&r);
    }
}

static void a_common_prefix_is_kept(void **state)
{
    (void)state;
    struct reference r = make_reference("tiny", KERN_KV_F16);
    struct engine *e = fixture_engine("tiny", ENGINE_FAST, "auto", 2);
    struct session *s = fixture_session(e, TOKENS, 64, KERN_KV_F16);
    struct mc_err err = {0};
    uint32_t kept = 99;
    int32_t *ids = malloc(TOKENS * sizeof *ids);
    memcpy(ids, r.ids, TOKENS * sizeof *ids);
    ids[251] = (ids[251] + 1) % (int32_t)r.n_vocab;
    fixture_append(s, ids, 300);
    if (session_keep_prefix(s, r.ids, 280, &kept, &err)) fail_msg("%s", err.msg);
    assert_int_equal(kept, 251);
    fixture_append(s, r.ids + kept, 280 - kept);
    assert_logits_at(s, &r, 279);
    if (session_keep_prefix(s, r.ids, 280, &kept, &err)) fail_msg("%s", err.msg);
    assert_int_equal(kept, 279); /* the last token runs again: it has to give logits */
    fixture_append(s, r.ids + 279, 1);
    assert_logits_at(s, &r, 279);
    free(ids);
    session_destroy(s);
    engine_close(e);
    free_reference(&r);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_and_chunks_change_no_bit),
        cmocka_unit_test(placements_change_no_bit),
        cmocka_unit_test(layouts_change_no_bit),
        cmocka_unit_test(appends_of_any_size_change_no_bit),
#ifndef __SANITIZE_THREAD__
        cmocka_unit_test(rewind_to_every_residue_is_exact),
        cmocka_unit_test(rewind_beyond_the_reach_runs_the_tokens_again),
        cmocka_unit_test(a_snapshot_brings_the_state_back),
        cmocka_unit_test(a_common_prefix_is_kept),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
