/* The answers of expected.jsonl under every profile and way of rescaling: the prompt lossless, the dials on from the first
 * token of the answer on, each token compared with what the model would say next. Lossless must say all of them; the others are
 * reported, for what survives there are the easy texts. */
#include "platform/base/json.h"
#include "runtime/control/settings.h"
#include "tests/support/engine_fixture.h"

#include "platform/base/bytes.h"

enum { ANSWERS_MAX = 64, TOKENS_MAX = 2048 };

static const char *const modes[] = {"none", "l2", "l1"};

struct answer {
    int32_t *prompt, *output;
    size_t n_prompt, n_output;
    bool formal; /* a tool call or JSON */
};

struct score {
    unsigned exact, formal, tokens;
};

static int32_t *ids_of(const struct mc_json *list, size_t *n)
{
    *n = mc_json_count(list);
    int32_t *ids = malloc((*n + 1) * sizeof *ids);
    for (size_t i = 0; i < *n; i++) ids[i] = (int32_t)mc_json_int(mc_json_item(list, i));
    return ids;
}

static bool holds(struct mc_span text, const char *what)
{
    const size_t n = strlen(what);
    for (size_t i = 0; i + n <= text.size; i++)
        if (!memcmp(text.data + i, what, n)) return true;
    return false;
}

static size_t read_answers(struct answer *a)
{
    char *line = malloc(1 << 20);
    size_t n = 0;
    FILE *f = fopen(MC_TEST_DATA "/models/expected.jsonl", "rb");
    if (!f) fail_msg("no expected.jsonl");
    while (fgets(line, 1 << 20, f)) {
        struct mc_json *root = NULL;
        struct mc_err err = {0};
        if (mc_json_parse((struct mc_span){(const uint8_t *)line, strcspn(line, "\n")}, &root, &err)) fail_msg("%s", err.msg);
        const struct mc_span output = mc_json_string(mc_json_get(root, "output"));
        assert_true(n < ANSWERS_MAX);
        a[n].prompt = ids_of(mc_json_get(root, "prompt_tokens"), &a[n].n_prompt);
        a[n].output = ids_of(mc_json_get(root, "output_tokens"), &a[n].n_output);
        a[n++].formal = holds(output, "DSML") || (output.size && output.data[0] == '{');
        mc_json_destroy(root);
    }
    fclose(f);
    free(line);
    return n;
}

static int32_t best(const struct session *s, uint32_t n_vocab)
{
    const float *logits = session_logits(s);
    uint32_t at = 0;
    for (uint32_t i = 1; i < n_vocab; i++)
        if (logits[i] > logits[at]) at = i;
    return (int32_t)at;
}

/* Ways of rescaling can differ only where experts are dropped; with rows besides, L2 speaks for all. */
static bool is_tried(const struct moe_settings *d, const struct settings_limits *m)
{
    const bool drops = d->top_k < m->n_used || d->inner_k < m->n_used || d->min_weight > 0;
    return d->rescale == MOE_RESCALE_L2 || (drops && !d->rows_exps);
}

/* The answer from the end of the prompt on. */
static void try_answer(struct session *s, const struct session_snapshot *prompt, int32_t first, const struct answer *a,
                       uint32_t n_vocab, struct score *score)
{
    struct mc_err err = {0};
    unsigned equal = first == a->output[0];
    if (session_snapshot_restore(s, prompt, &err)) fail_msg("%s", err.msg);
    for (size_t i = 0; i + 1 < a->n_output; i++) {
        if (session_decode(s, a->output[i], &err)) fail_msg("%s", err.msg);
        equal += best(s, n_vocab) == a->output[i + 1];
    }
    score->tokens += equal;
    score->exact += equal == a->n_output;
    score->formal += a->formal && equal == a->n_output;
}

static void every_profile_is_reported(void **state)
{
    (void)state;
    struct answer answers[ANSWERS_MAX];
    struct score scores[32][3] = {0};
    struct engine *e = fixture_engine("tiny", ENGINE_FAST, "auto", 1);
    const struct settings_limits *limits = settings_box_limits(engine_settings(e));
    const uint32_t n_vocab = engine_shape(e)->n_vocab;
    const size_t n = read_answers(answers);
    struct session *s = fixture_session(e, TOKENS_MAX, 512, KERN_KV_F16);
    unsigned n_tokens = 0, n_formal = 0;
    const char *name;
    for (size_t i = 0; i < n; i++) {
        const struct answer *a = &answers[i];
        struct session_snapshot *prompt = NULL;
        struct mc_err err = {0};
        n_tokens += (unsigned)a->n_output;
        n_formal += a->formal;
        fixture_rewind(s, 0);
        fixture_append(s, a->prompt, a->n_prompt);
        const int32_t first = best(s, n_vocab);
        if (session_snapshot_take(s, &prompt, &err)) fail_msg("%s", err.msg);
        for (size_t p = 0; (name = settings_profile_name(p)) != NULL; p++)
            for (uint32_t mode = 0; mode < 3; mode++) {
                struct moe_settings d = settings_lossless(limits);
                assert_true(settings_profile(name, limits, &d));
                d.rescale = mode;
                if (!is_tried(&d, limits)) continue;
                (void)settings_box_set(engine_settings(e), &d, SETTINGS_START, 0);
                try_answer(s, prompt, first, a, n_vocab, &scores[p][mode]);
            }
        session_snapshot_destroy(prompt);
        free(a->prompt);
        free(a->output);
    }
    assert_true(n >= 35 && n_formal >= 9);
    unsigned least = n_tokens;
    for (size_t p = 0; (name = settings_profile_name(p)) != NULL; p++)
        for (uint32_t mode = 0; mode < 3; mode++) {
            const struct score *c = &scores[p][mode];
            if (!c->tokens) continue;
            printf("%-10s %-4s  answers %2u/%zu  tool calls and JSON %u/%u  tokens %u/%u\n", name, modes[mode], c->exact, n,
                   c->formal, n_formal, c->tokens, n_tokens);
            if (c->tokens < least) least = c->tokens;
        }
    assert_true(scores[0][MOE_RESCALE_L2].exact == n && scores[0][MOE_RESCALE_L2].tokens == n_tokens); /* lossless */
    assert_true(least < n_tokens); /* the dials do something */
    session_destroy(s);
    engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_profile_is_reported)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
