/* engine_fixture.h - opens test models and sessions for the engine's tests; any fault fails the test. */
#ifndef TESTS_SUPPORT_ENGINE_FIXTURE_H
#define TESTS_SUPPORT_ENGINE_FIXTURE_H

#include "runtime/engine/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* "nano", "nano-f16", "nano-quant", or "tiny": the bundled model. */
/* NULL where `layout` is "packed" and these kernels have no packed form. */
static inline struct engine *fixture_engine_layout(const char *model, enum engine_arith arith, const char *isa,
                                                   unsigned n_threads, const char *layout)
{
    char path[512];
    struct engine *e = NULL;
    struct mc_err err = {0};
    if (!strcmp(model, "tiny"))
        snprintf(path, sizeof path, "%s/tiny-dsv4.gguf", MC_MODELS);
    else
        snprintf(path, sizeof path, "%s/golden/%s.gguf", MC_TEST_DATA, model);
    const struct engine_options opt = {
        .model_path = path, .arith = arith, .isa = isa, .n_threads = n_threads, .pin = "off", .layout = layout};
    const enum mc_code code = engine_open(&opt, &e, &err);
    if (code && !(code == MC_EARG && !strcmp(layout, "packed"))) fail_msg("%s", err.msg);
    return e;
}

static inline struct engine *fixture_engine(const char *model, enum engine_arith arith, const char *isa, unsigned n_threads)
{
    return fixture_engine_layout(model, arith, isa, n_threads, "auto");
}

static inline struct session *fixture_session(struct engine *e, uint32_t n_ctx, uint32_t n_batch, enum kern_kv kv)
{
    struct session *s = NULL;
    struct mc_err err = {0};
    const struct session_options opt = {.n_ctx = n_ctx, .n_batch = n_batch, .kv = kv};
    if (session_create(e, &opt, &s, &err)) fail_msg("%s", err.msg);
    return s;
}

static inline void fixture_append(struct session *s, const int32_t *ids, size_t n)
{
    struct mc_err err = {0};
    if (session_append(s, ids, n, &err)) fail_msg("%s", err.msg);
}

static inline void fixture_rewind(struct session *s, uint32_t n)
{
    struct mc_err err = {0};
    if (session_rewind(s, n, &err)) fail_msg("%s", err.msg);
}

/* n ids below n_vocab from a fixed sequence. */
static inline int32_t *fixture_tokens(size_t n, uint32_t n_vocab, uint64_t seed)
{
    int32_t *ids = malloc(n * sizeof *ids);
    uint64_t x = seed * 0x9E3779B97F4A7C15u + 1;
    for (size_t i = 0; i < n; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        ids[i] = (int32_t)((x >> 16) % n_vocab);
    }
    return ids;
}

struct fixture_rows {
    float *rows;
    size_t n, n_vocab;
};

static inline void fixture_keep_row(void *user, uint32_t position, const float *logits)
{
    struct fixture_rows *k = user;
    (void)position;
    memcpy(k->rows + k->n++ * k->n_vocab, logits, k->n_vocab * sizeof *logits);
}

/* Appends n ids and returns the logits of all of them; the caller frees. */
static inline float *fixture_append_all(struct session *s, uint32_t n_vocab, const int32_t *ids, size_t n)
{
    struct fixture_rows k = {malloc(n * n_vocab * sizeof(float)), 0, n_vocab};
    struct mc_err err = {0};
    if (session_append_all(s, ids, n, NULL, fixture_keep_row, &k, &err)) fail_msg("%s", err.msg);
    assert_int_equal(k.n, n);
    return k.rows;
}

#endif
