/* test_streaming.c - routed experts read from the file while the model runs: the same bits as with all of them in memory.
 *
 * Method: the nano models and the bundled one, with every size of the expert cache from the least to nearly all, every way of
 * reading, threads, chunks and dials, against a resident engine. Bad disks must end one call with one line and leave the
 * session where it was; the next call works. The soak repeats this with random sizes and a disk that misbehaves at random. */
#include "tests/support/engine_fixture.h"

#include "io/experts/expert_cache.h"
#include "io/stream/stream.h"
#include "platform/os.h"
#include "runtime/control/settings.h"
#include "runtime/engine/engine_private.h"

#include <stdatomic.h>

enum { N_PROMPT = 40, N_DECODE = 12 };

static void model_file(const char *model, char path[512])
{
    if (!strcmp(model, "tiny"))
        snprintf(path, 512, "%s/tiny-dsv4.gguf", MC_MODELS);
    else
        snprintf(path, 512, "%s/golden/%s.gguf", MC_TEST_DATA, model);
}

/* share 0: the least cache, 1: all but one byte. fault: NULL or a disk. */
static struct engine *streaming_engine(const char *model, double share, unsigned threads, const char *io,
                                       enum engine_arith arith, const struct stream_fault *fault)
{
    char path[512];
    struct mc_err err = {0};
    struct engine *e = NULL;
    model_file(model, path);
    struct engine_options opt = {.model_path = path,
                                 .n_threads = threads,
                                 .pin = "off",
                                 .io = io,
                                 .arith = arith,
                                 .expert_cache_given = true,
                                 .expert_cache_bytes = 0,
                                 .disk_fault = fault};
    /* The refusal of nothing is the way to the sizes. */
    assert_int_equal(engine_open(&opt, &e, &err), MC_EARG);
    assert_non_null(strstr(err.msg, "--expert-cache"));
    struct engine *plain = fixture_engine(model, ENGINE_FAST, "scalar", 1);
    struct expert_layer *layers = calloc(plain->model.shape.n_layer, sizeof *layers);
    struct expert_cache_options eo = {0};
    uint64_t least, all;
    for (uint32_t il = 0; il < plain->model.shape.n_layer; il++) {
        const struct matrix *m[] = {&plain->model.layers[il].gate, &plain->model.layers[il].up, &plain->model.layers[il].down};
        for (unsigned p = 0; p < 3; p++) layers[il].bytes[p] = (size_t)(matrix_bytes(m[p]) / m[p]->count);
    }
    eo.layers = layers;
    eo.n_layers = plain->model.shape.n_layer;
    eo.n_expert = plain->model.shape.n_expert;
    eo.n_used = plain->model.shape.n_used;
    expert_cache_sizes(&eo, &least, &all);
    free(layers);
    engine_close(plain);
    opt.expert_cache_bytes = least + (uint64_t)(share * (double)(all - 1 - least));
    const enum mc_code code = engine_open(&opt, &e, &err);
    if (code == MC_EUNSUPPORTED && io && !strcmp(io, "uring")) return NULL; /* forbidden here */
    if (code) fail_msg("%s", err.msg);
    struct engine_facts f;
    engine_facts_get(e, &f);
    assert_true(f.streams);
    assert_true(f.expert_cache_bytes <= opt.expert_cache_bytes);
    return e;
}

/* Logits of every position of a prompt in chunks, then of decoded tokens. */
static float *run(struct engine *e, const int32_t *ids, uint32_t n_batch)
{
    const size_t v = engine_shape(e)->n_vocab;
    struct session *s = fixture_session(e, N_PROMPT + N_DECODE, n_batch, KERN_KV_F32);
    float *out = fixture_append_all(s, v, ids, N_PROMPT);
    out = realloc(out, (N_PROMPT + N_DECODE) * v * sizeof *out);
    for (unsigned i = 0; i < N_DECODE; i++) {
        struct mc_err err = {0};
        if (session_decode(s, ids[N_PROMPT + i], &err)) fail_msg("%s", err.msg);
        memcpy(out + (N_PROMPT + i) * v, session_logits(s), v * sizeof *out);
    }
    session_destroy(s);
    return out;
}

static void compare(const char *model, double share, unsigned threads, const char *io, uint32_t n_batch,
                    enum engine_arith arith, const struct moe_settings *dials)
{
    struct engine *plain = fixture_engine(model, arith, "auto", threads);
    struct engine *e = streaming_engine(model, share, threads, io, arith, NULL);
    if (!e) {
        engine_close(plain);
        return;
    }
    if (dials) {
        settings_box_set(engine_settings(plain), dials, SETTINGS_START, 0);
        settings_box_set(engine_settings(e), dials, SETTINGS_START, 0);
    }
    const size_t v = engine_shape(e)->n_vocab;
    int32_t *ids = fixture_tokens(N_PROMPT + N_DECODE, (uint32_t)v, 3);
    float *want = run(plain, ids, n_batch), *got = run(e, ids, n_batch);
    assert_memory_equal(got, want, (N_PROMPT + N_DECODE) * v * sizeof *got);
    struct engine_streaming n;
    engine_streaming_get(e, &n);
    assert_true(n.misses > 0 && n.bytes_read > 0);
    assert_int_equal(n.retries, 0);
    free(want);
    free(got);
    free(ids);
    engine_close(e);
    engine_close(plain);
}

static void test_bits_by_size_and_reader(void **state)
{
    (void)state;
    static const char *const ios[] = {"auto", "uring", "pread"};
    for (unsigned io = 0; io < ARRAY_LEN(ios); io++)
        for (unsigned part = 0; part <= 3; part++) {
            compare("nano-quant", part / 3.0, 2, ios[io], 16, ENGINE_FAST, NULL);
            compare("tiny", part / 3.0, 2, ios[io], 16, ENGINE_FAST, NULL);
        }
}

static void test_bits_by_threads_and_chunks(void **state)
{
    (void)state;
    static const uint32_t chunks[] = {1, 7, 64};
    for (unsigned threads = 1; threads <= 3; threads++)
        for (unsigned i = 0; i < ARRAY_LEN(chunks); i++)
            compare("nano-quant", 0.1, threads, "auto", chunks[i], ENGINE_FAST, NULL);
    compare("nano", 0.1, 2, "auto", 16, ENGINE_EXACT, NULL);
    compare("nano-f16", 0, 2, "auto", 16, ENGINE_FAST, NULL);
}

static void test_bits_with_dials(void **state)
{
    (void)state;
    struct engine *e = fixture_engine("tiny", ENGINE_FAST, "auto", 1);
    struct moe_settings d = settings_lossless(settings_box_limits(engine_settings(e)));
    engine_close(e);
    d.scope = MOE_SCOPE_ALL;
    d.rows_exps = 64;
    d.rows_shexp = 80;
    compare("tiny", 0, 2, "auto", 16, ENGINE_FAST, &d);
    compare("tiny", 0.5, 2, "auto", 1, ENGINE_FAST, &d);
    d.rows_shexp = 0;
    d.top_k = d.inner_k = 1;
    compare("tiny", 0.2, 2, "auto", 16, ENGINE_FAST, &d);
}

/* ---- bad disks ------------------------------------------------------------------------------------------------------- */

struct disk {
    _Atomic uint32_t seed;
    atomic_uint per_mille[4]; /* EIO, short, EAGAIN, slow */
};

static int64_t answer(void *user, uint64_t off, int64_t result)
{
    struct disk *d = user;
    (void)off;
    const uint32_t x = atomic_fetch_add(&d->seed, 0x9E3779B9u) * 0x85EBCA6Bu, dice = (x >> 8) % 1000;
    uint32_t at = 0;
    if (dice < (at += atomic_load(&d->per_mille[0]))) return -5;
    if (dice < (at += atomic_load(&d->per_mille[1]))) return result > 2 * OS_READ_ALIGN ? result / 2 : result;
    if (dice < (at += atomic_load(&d->per_mille[2]))) return -11;
    if (dice < (at += atomic_load(&d->per_mille[3]))) os_sleep_ms(1);
    return result;
}

static void test_a_dead_disk_ends_one_call(void **state)
{
    (void)state;
    struct disk disk = {.seed = 1};
    const struct stream_fault fault = {answer, &disk};
    struct engine *plain = fixture_engine("tiny", ENGINE_FAST, "auto", 2);
    struct engine *e = streaming_engine("tiny", 0, 2, "auto", ENGINE_FAST, &fault);
    const uint32_t v = engine_shape(e)->n_vocab;
    int32_t *ids = fixture_tokens(N_PROMPT + N_DECODE, v, 5);
    struct session *s = fixture_session(e, N_PROMPT + N_DECODE, 8, KERN_KV_F32),
                   *p = fixture_session(plain, N_PROMPT + N_DECODE, 8, KERN_KV_F32);
    fixture_append(s, ids, 16);
    fixture_append(p, ids, 16);
    atomic_store(&disk.per_mille[0], 1000);
    struct mc_err err = {0};
    enum mc_code code = MC_OK;
    uint32_t held = session_position(s);
    for (uint32_t i = 16; i < N_PROMPT && !code; i++) { /* until something has to be read */
        held = session_position(s);
        code = session_append(s, ids + i, 1, &err);
        if (!code) fixture_append(p, ids + i, 1);
    }
    assert_int_equal(code, MC_EIO);
    assert_non_null(strstr(err.msg, "tiny-dsv4.gguf"));
    assert_int_equal(session_position(s), held);
    assert_int_equal(session_append(s, ids + held, 4, &err), MC_EIO);
    atomic_store(&disk.per_mille[0], 0); /* mended */
    fixture_append(s, ids + held, 4);
    fixture_append(p, ids + held, 4);
    assert_memory_equal(session_logits(s), session_logits(p), v * sizeof(float));
    session_destroy(s);
    session_destroy(p);
    free(ids);
    engine_close(e);
    engine_close(plain);
}

/* MC_SOAK_TOKENS tokens instead of a few. */
static void test_soak(void **state)
{
    (void)state;
    const char *wish = getenv("MC_SOAK_TOKENS");
    const unsigned n_all = wish ? (unsigned)strtoul(wish, NULL, 10) : 400;
    struct engine *plain = fixture_engine("tiny", ENGINE_FAST, "auto", 1);
    const uint32_t v = engine_shape(plain)->n_vocab;
    int32_t *ids = fixture_tokens(100, v, 11);
    float *want = run(plain, ids, 16);
    uint32_t x = 12345;
    uint64_t failed = 0, retries = 0;
    for (unsigned done = 0; done < n_all;) {
        struct disk disk = {.seed = x, .per_mille = {0, 100, 100, 2}};
        const struct stream_fault fault = {answer, &disk};
        x = x * 1664525u + 1013904223u;
        struct engine *e =
            streaming_engine("tiny", (x >> 8) % 100 / 100.0, 1 + x % 3, x & 4096 ? "pread" : "auto", ENGINE_FAST, &fault);
        struct session *s = fixture_session(e, N_PROMPT + N_DECODE, 1 + (x >> 20) % 16, KERN_KV_F32);
        for (unsigned round = 0; round < 4; round++, done += N_PROMPT + N_DECODE) {
            atomic_store(&disk.per_mille[0], (x >> 5) % 8 ? 60 : 0);
            fixture_rewind(s, 0);
            for (uint32_t at = 0; at < N_PROMPT + N_DECODE;) {
                x = x * 1664525u + 1013904223u;
                uint32_t n = 1 + (x >> 9) % 12;
                if (n > N_PROMPT + N_DECODE - at) n = N_PROMPT + N_DECODE - at;
                struct mc_err err = {0};
                const enum mc_code code = session_append(s, ids + at, n, &err);
                at = session_position(s); /* after a failure perhaps a chunk farther */
                if (code) {
                    assert_int_equal(code, MC_EIO);
                    failed++;
                    continue;
                }
                assert_memory_equal(session_logits(s), want + (size_t)(at - 1) * v, v * sizeof(float));
            }
        }
        struct engine_streaming n;
        engine_streaming_get(e, &n);
        retries += n.retries;
        session_destroy(s);
        engine_close(e);
    }
    printf("soak: %llu calls failed, %llu reads were repeated, rss peak %llu MiB\n", (unsigned long long)failed,
           (unsigned long long)retries, (unsigned long long)(os_rss_peak_bytes() >> 20));
    assert_true(retries > 0);
    free(want);
    free(ids);
    engine_close(plain);
}

static void test_ceilings(void **state)
{
    (void)state;
    char path[512];
    struct mc_err err = {0};
    struct engine *e = NULL;
    model_file("tiny", path);
    struct engine_options opt = {.model_path = path, .pin = "off", .n_threads = 1, .memory_bytes = 1 << 20};
    assert_int_equal(engine_open(&opt, &e, &err), MC_ENOMEM);
    assert_non_null(strstr(err.msg, "--memory: 1 MiB are too few"));
    opt.memory_bytes = (uint64_t)1 << 40; /* more than there is: all fits */
    if (engine_open(&opt, &e, &err)) fail_msg("%s", err.msg);
    struct engine_facts f;
    engine_facts_get(e, &f);
    assert_false(f.streams);
    engine_close(e);
    opt.io = "mmap";
    assert_int_equal(engine_open(&opt, &e, &err), MC_EARG);
    assert_non_null(strstr(err.msg, "--io mmap"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_by_size_and_reader),
        cmocka_unit_test(test_bits_by_threads_and_chunks),
        cmocka_unit_test(test_bits_with_dials),
        cmocka_unit_test(test_a_dead_disk_ends_one_call),
        cmocka_unit_test(test_soak),
        cmocka_unit_test(test_ceilings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
