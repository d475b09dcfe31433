/* Lossy settings against double-precision golden logits (tests/data/golden/dials): fewer experts with each way of rescaling,
 * bands, minimum weights, kept rows, and all of it together; at every token, and from one token on as an answer is decoded.
 *
 * In exact arithmetic with a float cache every position must agree to 1e-4. The settings move the logits by far more, so a dial
 * that does nothing fails, and so does another way of rescaling. */
#include "platform/base/json.h"
#include "runtime/control/settings.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/gv.h"

static const char *const sets[] = {"nano", "nano-f16", "nano-strata", "tiny"};

static char *read_text(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("cannot open %s", path);
    char *text = malloc(1 << 20);
    *size = fread(text, 1, 1 << 20, f);
    fclose(f);
    return text;
}

static void set_dials(struct engine *e, const struct moe_settings *s)
{
    struct settings_fault fault;
    if (!settings_valid(s, settings_box_limits(engine_settings(e)), &fault)) fail_msg("%s %s", fault.key, fault.text);
    assert_true(settings_box_set(engine_settings(e), s, SETTINGS_SOCKET, 0) > 0);
}

static struct moe_settings settings_of(const struct mc_json *c)
{
    const struct mc_json *band = mc_json_get(c, "moe_band");
    const struct mc_span mode = mc_json_string(mc_json_get(c, "moe_rescale")),
                         scope = mc_json_string(mc_json_get(c, "moe_scope"));
    struct moe_settings s = {
        .top_k = (uint32_t)mc_json_int(mc_json_get(c, "moe_top_k")),
        .inner_k = (uint32_t)mc_json_int(mc_json_get(c, "moe_inner_k")),
        .min_weight = (float)mc_json_number(mc_json_get(c, "moe_min_weight")),
        .band_first = (uint32_t)mc_json_int(mc_json_item(band, 0)),
        .band_end = (uint32_t)mc_json_int(mc_json_item(band, 1)),
        .rows_exps = (uint32_t)mc_json_int(mc_json_get(c, "swiglu_exps")),
        .rows_shexp = (uint32_t)mc_json_int(mc_json_get(c, "swiglu_shexp")),
        .scope = scope.size == 3 ? MOE_SCOPE_ALL : MOE_SCOPE_DECODE,
    };
    if (mode.size > 4) { /* "rho=0.1" */
        s.rescale = MOE_RESCALE_RHO;
        s.rho = strtof((const char *)mode.data + 4, NULL);
    } else {
        s.rescale = mode.size == 4 ? MOE_RESCALE_NONE : mode.data[1] == '1' ? MOE_RESCALE_L1 : MOE_RESCALE_L2;
    }
    return s;
}

struct set {
    struct gv gv;
    struct gv_record tokens, positions, lossless;
    struct engine *engine;
    uint32_t n_vocab;
};

static void keep(float *rows, const struct set *t, uint32_t position, const float *logits)
{
    for (size_t i = 0; i < t->positions.count; i++)
        if ((uint32_t)t->positions.i[i] == position) memcpy(rows + i * t->n_vocab, logits, t->n_vocab * sizeof *logits);
}

/* Logits at the stored positions; the tokens from decode_from on are decoded one by one. */
static float *run(const struct set *t, uint32_t decode_from)
{
    const uint32_t n = (uint32_t)t->tokens.count, n_prompt = decode_from ? decode_from : n;
    struct session *s = fixture_session(t->engine, n, n, KERN_KV_F32);
    float *rows = calloc(t->positions.count * t->n_vocab, sizeof *rows);
    float *prompt = fixture_append_all(s, t->n_vocab, t->tokens.i, n_prompt);
    for (uint32_t p = 0; p < n_prompt; p++) keep(rows, t, p, prompt + (size_t)p * t->n_vocab);
    struct mc_err err = {0};
    for (uint32_t p = n_prompt; p < n; p++) {
        if (session_decode(s, t->tokens.i[p], &err)) fail_msg("%s", err.msg);
        keep(rows, t, p, session_logits(s));
    }
    free(prompt);
    session_destroy(s);
    return rows;
}

static double worst_of(const struct set *t, const float *got, const struct gv_record *want)
{
    double worst = 0;
    for (size_t i = 0; i < t->positions.count; i++) {
        const double d = gv_rel_l2(got + i * t->n_vocab, want->f + i * t->n_vocab, t->n_vocab);
        if (!(d <= worst)) worst = d;
    }
    return worst;
}

static void run_case(const struct set *t, const struct mc_json *c, const float *plain)
{
    char name[80];
    const struct mc_span base = mc_json_string(mc_json_get(c, "name"));
    const struct moe_settings s = settings_of(c);
    const uint32_t from = s.scope == MOE_SCOPE_DECODE ? (uint32_t)mc_json_int(mc_json_get(c, "decode_from")) : 0;
    snprintf(name, sizeof name, "%.*s.logits", (int)base.size, (const char *)base.data);
    const struct gv_record want = gv_need(&t->gv, name);
    set_dials(t->engine, &s);
    float *got = run(t, from);
    const double worst = worst_of(t, got, &want);
    printf("%-24s %.2e\n", name, worst);
    if (!(worst <= 1e-4)) fail_msg("%s: %.3g from the golden logits", name, worst);
    for (size_t i = 0; i < t->positions.count; i++)
        if ((uint32_t)t->positions.i[i] < from &&
            memcmp(got + i * t->n_vocab, plain + i * t->n_vocab, t->n_vocab * sizeof *got) != 0)
            fail_msg("%s: the prompt is not lossless at position %d", name, (int)t->positions.i[i]);
    free(got);
}

static void every_setting_reproduces_its_golden_logits(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
        char path[512], model[64];
        size_t size;
        struct set t = {0};
        struct mc_json *root = NULL;
        struct mc_err err = {0};
        snprintf(path, sizeof path, "%s/golden/dials/%s.gv", MC_TEST_DATA, sets[i]);
        t.gv = gv_load(path);
        t.tokens = gv_need(&t.gv, "tokens");
        t.positions = gv_need(&t.gv, "positions");
        t.lossless = gv_need(&t.gv, "lossless.logits");
        snprintf(path, sizeof path, "%s/golden/dials/%s.json", MC_TEST_DATA, sets[i]);
        char *text = read_text(path, &size);
        if (mc_json_parse((struct mc_span){(const uint8_t *)text, size}, &root, &err)) fail_msg("%s", err.msg);
        snprintf(model, sizeof model, "%s%s", strcmp(sets[i], "nano-strata") ? "" : "dials/", sets[i]);
        t.engine = fixture_engine(model, ENGINE_EXACT, "auto", 2);
        t.n_vocab = engine_shape(t.engine)->n_vocab;
        float *plain = run(&t, 0);
        assert_true(worst_of(&t, plain, &t.lossless) <= 1e-4);
        const struct mc_json *cases = mc_json_get(root, "cases");
        assert_true(mc_json_count(cases) >= 28);
        for (size_t c = 0; c < mc_json_count(cases); c++) run_case(&t, mc_json_item(cases, c), plain);
        free(plain);
        engine_close(t.engine);
        mc_json_destroy(root);
        free(text);
        free(t.gv.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_setting_reproduces_its_golden_logits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
