/* Whole-model logits of the three nano models against double-precision golden vectors.
 *
 * --arith exact must agree to 1e-4 (1e-5 expected) at every stored position with the same best token; the fast path is held to
 * the noise that 8-bit activations have on random weights (tests/data/golden/README.md, "How to compare"), on every instruction
 * set, which must give the same bits. */
#include "kernels/cpu_flags.h"
#include "runtime/engine/engine.h"
#include "tests/support/gv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const char *const models[] = {"nano-f16", "nano", "nano-quant"};
static const char *const cases[] = {"short", "mid", "long"};
static const char *const isas[] = {"scalar", "avx2", "avx512"};

static struct engine *open_model(const char *name, enum engine_arith arith, const char *isa)
{
    char path[512];
    struct engine *e = NULL;
    struct mc_err err = {0};
    snprintf(path, sizeof path, "%s/golden/%s.gguf", MC_TEST_DATA, name);
    const struct engine_options opt = {.model_path = path, .arith = arith, .isa = isa};
    if (engine_open(&opt, &e, &err)) fail_msg("%s", err.msg);
    return e;
}

static bool has_isa(const char *isa)
{
    uint32_t flags;
    return kern_isa_flags(isa, &flags) == 0;
}

struct keep {
    float *rows;
    size_t n, n_vocab;
};

static void keep_row(void *user, uint32_t position, const float *logits)
{
    struct keep *k = user;
    (void)position;
    memcpy(k->rows + k->n++ * k->n_vocab, logits, k->n_vocab * sizeof *logits);
}

/* Logits at the stored positions of a case; the caller frees. */
static float *logits_of(struct engine *e, const struct gv_record *tokens, const struct gv_record *positions, enum kern_kv kv)
{
    struct mc_err err = {0};
    struct session *s = NULL;
    const struct session_options opt = {.n_ctx = (uint32_t)tokens->count, .n_batch = 128, .kv = kv};
    if (session_create(e, &opt, &s, &err)) fail_msg("%s", err.msg);
    uint8_t *want = calloc(tokens->count, 1);
    for (size_t i = 0; i < positions->count; i++) want[positions->i[i]] = 1;
    struct keep k = {.n_vocab = engine_shape(e)->n_vocab};
    k.rows = malloc(positions->count * k.n_vocab * sizeof(float));
    if (session_append_all(s, tokens->i, tokens->count, want, keep_row, &k, &err)) fail_msg("%s", err.msg);
    assert_int_equal(k.n, positions->count);
    free(want);
    session_destroy(s);
    return k.rows;
}

struct score {
    double worst, sum;
    size_t n, same_best;
};

static struct score compare(const float *got, const struct gv_record *want)
{
    struct score s = {0};
    const size_t n_vocab = want->dims[1];
    for (size_t i = 0; i < want->dims[0]; i++) {
        const double d = gv_rel_l2(got + i * n_vocab, want->f + i * n_vocab, n_vocab);
        s.worst = d > s.worst ? d : s.worst;
        s.sum += d;
        s.n++;
        s.same_best += gv_argmax(got + i * n_vocab, n_vocab) == gv_argmax(want->f + i * n_vocab, n_vocab);
    }
    return s;
}

static struct gv load_vectors(const char *model)
{
    char path[512];
    snprintf(path, sizeof path, "%s/golden/%s.gv", MC_TEST_DATA, model);
    return gv_load(path);
}

static struct gv_record record_of(const struct gv *g, const char *c, const char *what)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%s", c, what);
    return gv_need(g, name);
}

static void exact_arithmetic_reproduces_the_golden_logits(void **state)
{
    (void)state;
    for (size_t m = 0; m < ARRAY_LEN(models); m++) {
        struct engine *e = open_model(models[m], ENGINE_EXACT, "auto");
        struct gv g = load_vectors(models[m]);
        for (size_t c = 0; c < ARRAY_LEN(cases); c++) {
            const struct gv_record tokens = record_of(&g, cases[c], "tokens"), positions = record_of(&g, cases[c], "positions");
            const struct gv_record want = record_of(&g, cases[c], "logits");
            float *got = logits_of(e, &tokens, &positions, KERN_KV_F32);
            const struct score s = compare(got, &want);
            printf("exact %-10s %-5s worst %.2e mean %.2e best equal %zu/%zu\n", models[m], cases[c], s.worst,
                   s.sum / (double)s.n, s.same_best, s.n);
            assert_true(s.worst <= 1e-4);
            assert_int_equal(s.same_best, s.n);
            free(got);
        }
        free(g.data);
        engine_close(e);
    }
}

static void fast_arithmetic_stays_within_its_noise_on_every_isa(void **state)
{
    (void)state;
    for (size_t m = 0; m < ARRAY_LEN(models); m++) {
        struct gv g = load_vectors(models[m]);
        for (size_t c = 0; c < ARRAY_LEN(cases); c++) {
            const struct gv_record tokens = record_of(&g, cases[c], "tokens"), positions = record_of(&g, cases[c], "positions");
            const struct gv_record want = record_of(&g, cases[c], "logits");
            float *first = NULL;
            for (size_t i = 0; i < ARRAY_LEN(isas); i++) {
                if (!has_isa(isas[i])) {
                    printf("skipped: this CPU has no %s\n", isas[i]);
                    continue;
                }
                struct engine *e = open_model(models[m], ENGINE_FAST, isas[i]);
                float *got = logits_of(e, &tokens, &positions, KERN_KV_F16);
                const struct score s = compare(got, &want);
                printf("fast  %-10s %-5s %-6s worst %.2e mean %.2e best equal %zu/%zu\n", models[m], cases[c], isas[i], s.worst,
                       s.sum / (double)s.n, s.same_best, s.n);
                assert_true(s.worst <= 0.25);
                assert_true(s.sum / (double)s.n <= 0.05);
                assert_true(s.same_best * 10 >= s.n * 8);
                if (first) {
                    assert_memory_equal(got, first, want.count * sizeof(float));
                    free(got);
                } else {
                    first = got;
                }
                engine_close(e);
            }
            free(first);
        }
        free(g.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_arithmetic_reproduces_the_golden_logits),
        cmocka_unit_test(fast_arithmetic_stays_within_its_noise_on_every_isa),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
