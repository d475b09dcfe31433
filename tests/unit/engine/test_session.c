/* Limits of a session: a full context, ids outside the vocabulary, memory known beforehand, cancelling, and decoding without
 * allocation. The allocation counter replaces malloc and friends through the linker (--wrap), mmap included. */
#include "tests/support/engine_fixture.h"

#include "platform/os.h"

#ifdef MC_TEST_WRAP_ALLOC
static long allocations;
#define WRAP(type, name, params, args)                                                                                         \
    type __real_##name params;                                                                                                 \
    type __wrap_##name params;                                                                                                 \
    type __wrap_##name params                                                                                                  \
    {                                                                                                                          \
        __atomic_fetch_add(&allocations, 1, __ATOMIC_RELAXED);                                                                 \
        return __real_##name args;                                                                                             \
    }
WRAP(void *, malloc, (size_t n), (n))
WRAP(void *, calloc, (size_t n, size_t m), (n, m))
WRAP(void *, realloc, (void *p, size_t n), (p, n))
WRAP(void *, mmap, (void *p, size_t n, int a, int b, int c, long d), (p, n, a, b, c, d))

static void decoding_allocates_nothing(void **state)
{
    (void)state;
    struct engine *e = fixture_engine("tiny", ENGINE_FAST, "auto", 2);
    struct session *s = fixture_session(e, 1024, 64, KERN_KV_F16);
    int32_t *ids = fixture_tokens(600, engine_shape(e)->n_vocab, 3);
    fixture_append(s, ids, 200);
    struct mc_err err = {0};
    allocations = 0;
    for (size_t i = 200; i < 400; i++) assert_int_equal(session_append(s, ids + i, 1, &err), MC_OK);
    assert_int_equal(session_append(s, ids + 400, 200, &err), MC_OK);
    assert_int_equal(session_rewind(s, 500, &err), MC_OK);
    assert_int_equal(allocations, 0);
    free(ids);
    session_destroy(s);
    engine_close(e);
    assert_true(allocations == 0);
    void *volatile p = malloc(1); /* the counter does count */
    assert_int_equal(allocations, 1);
    free(p);
}
#endif

static void a_full_context_is_said_and_nothing_is_lost(void **state)
{
    (void)state;
    struct engine *e = fixture_engine("tiny", ENGINE_FAST, "auto", 1);
    struct session *s = fixture_session(e, 20, 8, KERN_KV_F16);
    int32_t *ids = fixture_tokens(21, engine_shape(e)->n_vocab, 3);
    struct mc_err err = {0};
    assert_int_equal(session_append(s, ids, 21, &err), MC_EFULL);
    assert_non_null(strstr(err.msg, "20"));
    assert_int_equal(session_position(s), 0);
    fixture_append(s, ids, 20);
    assert_int_equal(session_append(s, ids, 1, &err), MC_EFULL);
    assert_int_equal(session_position(s), 20);
    assert_non_null(session_logits(s));
    fixture_rewind(s, 19);
    fixture_append(s, ids, 1);
    session_destroy(s);
    free(ids);
    engine_close(e);
}

static void ids_outside_the_vocabulary_are_refused(void **state)
{
    (void)state;
    struct engine *e = fixture_engine("tiny", ENGINE_FAST, "auto", 1);
    struct session *s = fixture_session(e, 20, 8, KERN_KV_F16);
    const int32_t bad[][2] = {{5, -1}, {5, 2048}, {INT32_MIN, 1}, {INT32_MAX, 1}};
    struct mc_err err = {0};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(session_append(s, bad[i], 2, &err), MC_EARG);
        assert_non_null(strstr(err.msg, "vocabulary"));
        assert_int_equal(session_position(s), 0);
    }
    session_destroy(s);
    engine_close(e);
}

static void options_out_of_range_are_refused(void **state)
{
    (void)state;
    struct engine *e = fixture_engine("tiny", ENGINE_FAST, "auto", 1);
    const struct session_options bad[] = {{.n_ctx = 0}, {.n_ctx = 4097}, {.n_ctx = 10, .n_batch = 100000}};
    struct session *s = NULL;
    struct session_memory m;
    struct mc_err err = {0};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(session_create(e, &bad[i], &s, &err), MC_EARG);
        assert_int_equal(session_memory_estimate(e, &bad[i], &m, &err), MC_EARG);
        assert_null(s);
    }
    engine_close(e);
}

static void memory_is_known_before_it_is_taken(void **state)
{
    (void)state;
    struct engine *e = fixture_engine("tiny", ENGINE_FAST, "auto", 1);
    struct session_memory small, large, q8;
    struct mc_err err = {0};
    assert_int_equal(session_memory_estimate(e, &(struct session_options){.n_ctx = 512, .kv = KERN_KV_F16}, &small, &err),
                     MC_OK);
    assert_int_equal(session_memory_estimate(e, &(struct session_options){.n_ctx = 4096, .kv = KERN_KV_F16}, &large, &err),
                     MC_OK);
    assert_int_equal(session_memory_estimate(e, &(struct session_options){.n_ctx = 4096, .kv = KERN_KV_Q8}, &q8, &err), MC_OK);
    assert_true(large.kv_bytes > small.kv_bytes && q8.kv_bytes < large.kv_bytes);
    assert_true(large.total_bytes >= large.kv_bytes + large.activation_bytes);
    engine_close(e);
}

static bool stop_after_64(void *user, uint64_t done, uint64_t total)
{
    (void)user;
    assert_int_equal(total, 200);
    return done < 64;
}

static void a_cancelled_append_keeps_whole_chunks(void **state)
{
    (void)state;
    struct engine *e = fixture_engine("tiny", ENGINE_FAST, "auto", 2);
    struct session *s = fixture_session(e, 400, 32, KERN_KV_F16), *whole = fixture_session(e, 400, 400, KERN_KV_F16);
    int32_t *ids = fixture_tokens(200, engine_shape(e)->n_vocab, 3);
    struct mc_err err = {0};
    session_set_progress(s, stop_after_64, NULL);
    assert_int_equal(session_append(s, ids, 200, &err), MC_ECANCELLED);
    assert_int_equal(session_position(s), 64);
    assert_null(session_logits(s));
    session_set_progress(s, NULL, NULL);
    fixture_append(s, ids + 64, 136);
    fixture_append(whole, ids, 200);
    assert_memory_equal(session_logits(s), session_logits(whole), engine_shape(e)->n_vocab * sizeof(float));
    session_destroy(whole);
    session_destroy(s);
    free(ids);
    engine_close(e);
}

static bool stop_inside_the_second_chunk(void *user, uint64_t done, uint64_t total)
{
    (void)total;
    *(uint64_t *)user = done;
    return done <= 100;
}

/* Layers that were done have overwritten rows which tokens before the chunk still need: those come back. */
static void an_append_stopped_between_layers_does_not_count(void **state)
{
    (void)state;
    for (unsigned n = 1; n <= 3; n++) {
        struct engine *e = fixture_engine("nano", ENGINE_FAST, "auto", n);
        const size_t bytes = engine_shape(e)->n_vocab * sizeof(float);
        struct session *s = fixture_session(e, 400, 200, KERN_KV_F16), *whole = fixture_session(e, 400, 400, KERN_KV_F16);
        int32_t *ids = fixture_tokens(330, engine_shape(e)->n_vocab, 3);
        struct mc_err err = {0};
        uint64_t done = 0;
        fixture_append(s, ids, 99);
        session_set_progress(s, stop_inside_the_second_chunk, &done);
        assert_int_equal(session_append(s, ids + 99, 231, &err), MC_ECANCELLED);
        assert_true(done > 100 && done < 200); /* between two layers of the first 200 */
        assert_int_equal(session_position(s), 99);
        assert_null(session_logits(s));
        session_set_progress(s, NULL, NULL);
        fixture_append(s, ids + 99, 1);
        assert_int_equal(session_rewind(s, 99, &err), MC_OK); /* one token back: as cheap as ever */
        fixture_append(s, ids + 99, 231);
        fixture_append(whole, ids, 330);
        assert_memory_equal(session_logits(s), session_logits(whole), bytes);
        assert_int_equal(session_rewind(s, 50, &err), MC_OK);
        fixture_append(s, ids + 50, 280);
        assert_memory_equal(session_logits(s), session_logits(whole), bytes);
        session_destroy(whole);
        session_destroy(s);
        free(ids);
        engine_close(e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef MC_TEST_WRAP_ALLOC
        cmocka_unit_test(decoding_allocates_nothing),
#endif
        cmocka_unit_test(a_full_context_is_said_and_nothing_is_lost),
        cmocka_unit_test(ids_outside_the_vocabulary_are_refused),
        cmocka_unit_test(options_out_of_range_are_refused),
        cmocka_unit_test(memory_is_known_before_it_is_taken),
        cmocka_unit_test(a_cancelled_append_keeps_whole_chunks),
        cmocka_unit_test(an_append_stopped_between_layers_does_not_count),
    };
#ifndef MC_TEST_WRAP_ALLOC
    printf("skipped: the allocation counter needs the GNU linker on Linux and no sanitizer\n");
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
