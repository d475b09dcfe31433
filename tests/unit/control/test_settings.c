/* The settings: every content of the 32-byte form in tests/data/control/cfg.json, each limit on both sides, profiles of other
 * models, and a box that is written and read at once. */
#include "platform/base/bytes.h"
#include "platform/base/json.h"
#include "platform/os.h"
#include "runtime/control/settings.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct settings_limits flash = {43, 3, 6};

static size_t hex_bytes(struct mc_span hex, uint8_t *out, size_t cap)
{
    size_t n = 0;
    for (; 2 * n + 1 < hex.size && n < cap; n++) {
        const char digits[] = {(char)hex.data[2 * n], (char)hex.data[2 * n + 1], '\0'};
        out[n] = (uint8_t)strtoul(digits, NULL, 16);
    }
    return n;
}

static void assert_settings(const struct moe_settings *s, const struct mc_json *want, const char *id)
{
    const struct mc_json *band = mc_json_get(want, "moe_band");
    const struct mc_span mode = mc_json_string(mc_json_get(want, "moe_rescale"));
    static const char *const modes[] = {"none", "l2", "l1"};
    if (s->top_k != mc_json_int(mc_json_get(want, "moe_top_k")) ||
        s->inner_k != mc_json_int(mc_json_get(want, "moe_inner_k")) || s->band_first != mc_json_int(mc_json_item(band, 0)) ||
        s->band_end != mc_json_int(mc_json_item(band, 1)) ||
        fabs((double)s->min_weight - mc_json_number(mc_json_get(want, "moe_min_weight"))) > 1e-7 ||
        memcmp(mode.data, modes[s->rescale], mode.size) != 0 || s->rows_exps != mc_json_int(mc_json_get(want, "swiglu_exps")) ||
        s->rows_shexp != mc_json_int(mc_json_get(want, "swiglu_shexp")))
        fail_msg("%s is not what it should be", id);
}

static void test_every_content_of_the_form(void **state)
{
    (void)state;
    struct mc_err err = {0};
    struct mc_json *root = NULL;
    char *text;
    size_t size, n_whole = 0;
    if (os_file_read_all(MC_TEST_DATA "/control/cfg.json", 1 << 20, &text, &size, &err)) fail_msg("%s", err.msg);
    if (mc_json_parse((struct mc_span){(const uint8_t *)text, size}, &root, &err)) fail_msg("%s", err.msg);
    for (size_t i = 0; i < mc_json_count(root); i++) {
        const struct mc_json *row = mc_json_item(root, i);
        const char *id = (const char *)mc_json_string(mc_json_get(row, "id")).data;
        uint8_t bytes[64], back[SETTINGS_WIRE_BYTES];
        if (hex_bytes(mc_json_string(mc_json_get(row, "hex")), bytes, sizeof bytes) < SETTINGS_WIRE_BYTES) continue;
        n_whole++;
        struct moe_settings s = {0}, again = {0};
        struct settings_fault fault = {0};
        const bool taken = settings_from_wire(bytes, &flash, MOE_SCOPE_ALL, &s, &fault);
        if (taken != mc_json_bool(mc_json_get(row, "accept"))) fail_msg("%s: taken %d", id, taken);
        if (!taken) {
            char why[16];
            snprintf(why, sizeof why, "field %d", fault.field);
            assert_string_equal(why, (const char *)mc_json_string(mc_json_get(row, "why")).data);
            continue;
        }
        assert_settings(&s, mc_json_get(row, "settings"), id);
        assert_int_equal(s.scope, MOE_SCOPE_ALL);
        assert_true(settings_valid(&s, &flash, &fault));
        settings_to_wire(&s, back); /* and what is written is read as the same */
        assert_true(settings_from_wire(back, &flash, MOE_SCOPE_ALL, &again, &fault));
        assert_true(settings_equal(&s, &again));
    }
    assert_true(n_whole >= 37);
    mc_json_destroy(root);
    free(text);
}

static void test_what_the_form_cannot_say(void **state)
{
    (void)state;
    uint8_t wire[SETTINGS_WIRE_BYTES];
    struct settings_fault fault;
    struct moe_settings s = settings_lossless(&flash), got;
    s.top_k = 4;
    s.rescale = MOE_RESCALE_RHO;
    s.rho = 0.5f;
    s.min_weight = 1e-6f;
    settings_to_wire(&s, wire);
    assert_true(settings_from_wire(wire, &flash, MOE_SCOPE_DECODE, &got, &fault));
    assert_int_equal(got.rescale, MOE_RESCALE_L2);
    assert_true(got.min_weight == 1e-4f && got.top_k == 4);
    for (float w = 1e-4f; w <= 1.5f; w *= 1.07f) { /* any weight comes back as the same float */
        s.min_weight = w;
        settings_to_wire(&s, wire);
        assert_true(settings_from_wire(wire, &flash, MOE_SCOPE_DECODE, &got, &fault));
        assert_true(got.min_weight == w);
    }
}

static void refuse(struct moe_settings s, const char *key)
{
    struct settings_fault fault = {0};
    assert_false(settings_valid(&s, &flash, &fault));
    assert_string_equal(fault.key, key);
    assert_true(strlen(fault.text) > 5);
}

static void test_limits(void **state)
{
    (void)state;
    struct settings_fault fault;
    const struct moe_settings ok = settings_lossless(&flash);
    assert_true(settings_valid(&ok, &flash, &fault));
    struct moe_settings s;
    s = ok, s.top_k = 0, refuse(s, "moe_top_k");
    s = ok, s.top_k = 7, refuse(s, "moe_top_k");
    s = ok, s.inner_k = 0, refuse(s, "moe_inner_k");
    s = ok, s.inner_k = 7, refuse(s, "moe_inner_k");
    s = ok, s.min_weight = -0.1f, refuse(s, "moe_min_weight");
    s = ok, s.min_weight = 1.6f, refuse(s, "moe_min_weight");
    s = ok, s.min_weight = (float)NAN, refuse(s, "moe_min_weight");
    s = ok, s.band_first = 44, s.band_end = 44, refuse(s, "moe_band");
    s = ok, s.band_end = 44, refuse(s, "moe_band");
    s = ok, s.band_first = 9, s.band_end = 8, refuse(s, "moe_band");
    s = ok, s.rescale = 4, refuse(s, "moe_rescale");
    s = ok, s.rescale = MOE_RESCALE_RHO, s.rho = 1, refuse(s, "moe_rescale");
    s = ok, s.rescale = MOE_RESCALE_RHO, s.rho = (float)NAN, refuse(s, "moe_rescale");
    s = ok, s.rows_exps = 129, refuse(s, "swiglu_exps");
    s = ok, s.rows_shexp = 129, refuse(s, "swiglu_shexp");
    s = ok, s.top_k = 1, s.inner_k = 1, s.min_weight = 1.5f, s.band_first = s.band_end = 43, s.rows_exps = 1,
    s.rows_shexp = 127;
    s.rescale = MOE_RESCALE_RHO, s.rho = 0;
    assert_true(settings_valid(&s, &flash, &fault));
}

static void test_what_is_lossy(void **state)
{
    (void)state;
    const struct moe_settings ok = settings_lossless(&flash);
    struct moe_settings s = ok;
    assert_false(settings_lossy(&ok, &flash));
    s = ok, s.rescale = MOE_RESCALE_L1, s.scope = MOE_SCOPE_ALL, assert_false(settings_lossy(&s, &flash));
    s = ok, s.rows_exps = 128, assert_false(settings_lossy(&s, &flash));
    s = ok, s.inner_k = 5, assert_true(settings_lossy(&s, &flash));
    s = ok, s.inner_k = 5, s.band_first = 43, assert_false(settings_lossy(&s, &flash)); /* an empty band */
    s = ok, s.inner_k = 5, s.band_first = 0, s.band_end = 3,
    assert_false(settings_lossy(&s, &flash));                      /* hash layers are whole */
    s = ok, s.top_k = 5, assert_false(settings_lossy(&s, &flash)); /* the band is everything */
    s = ok, s.top_k = 5, s.band_end = 42, assert_true(settings_lossy(&s, &flash));
    s = ok, s.min_weight = 0.01f, assert_true(settings_lossy(&s, &flash));
    s = ok, s.rows_exps = 127, assert_true(settings_lossy(&s, &flash));
    s = ok, s.rows_shexp = 1, assert_true(settings_lossy(&s, &flash));
    const struct settings_limits hash_only = {3, 3, 6};
    s = settings_lossless(&hash_only), s.top_k = s.inner_k = 1, assert_false(settings_lossy(&s, &hash_only));
    char text[160];
    settings_describe(&ok, &flash, text, sizeof text);
    assert_string_equal(text, "lossless");
    s = ok, s.top_k = 5, s.inner_k = 4, s.band_first = 12, s.rows_exps = 80;
    settings_describe(&s, &flash, text, sizeof text);
    assert_string_equal(text, "top-k 5, 4 in layers 12:43, rescale l2, rows 80/128 of 128, decoding only");
    s = ok, s.top_k = s.inner_k = 4, s.min_weight = 0.11f, s.rescale = MOE_RESCALE_RHO, s.rho = 0.5f, s.scope = MOE_SCOPE_ALL;
    settings_describe(&s, &flash, text, sizeof text);
    assert_string_equal(text, "top-k 4, minimum weight 0.11, rescale rho=0.5, prompts too");
}

static void test_profiles(void **state)
{
    (void)state;
    static const struct settings_limits small = {4, 2, 6}, three = {5, 2, 3};
    struct moe_settings s = {.scope = MOE_SCOPE_ALL};
    struct settings_fault fault;
    size_t n = 0;
    for (; settings_profile_name(n); n++)
        for (unsigned i = 0; i < 3; i++) {
            const struct settings_limits *m = i == 0 ? &flash : i == 1 ? &small : &three;
            assert_true(settings_profile(settings_profile_name(n), m, &s));
            assert_true(settings_valid(&s, m, &fault));
            assert_int_equal(s.scope, MOE_SCOPE_ALL);
            assert_true(s.band_first >= m->n_hash_layer);
            if (n == 0) assert_false(settings_lossy(&s, m));
            if (n > 0 && i < 2) assert_true(settings_lossy(&s, m));
        }
    assert_true(n >= 6);
    assert_false(settings_profile("top9", &flash, &s));
    assert_true(settings_profile("hybrid545", &flash, &s));
    assert_true(s.top_k == 5 && s.inner_k == 4 && s.band_first == 12 && s.band_end == 41);
    assert_true(settings_profile("hybrid646", &small, &s)); /* 16..40 of 43 is 1.5..3.7 of 4, hash layers are 0 and 1 */
    assert_true(s.top_k == 6 && s.inner_k == 4 && s.band_first == 2 && s.band_end == 4);
    assert_true(settings_profile("top5", &three, &s));
    assert_int_equal(s.top_k, 3);
}

/* ---- the box ---- */

static struct settings_box *box;
static _Atomic uint32_t stop;

/* Settings whose every number follows from one. */
static struct moe_settings numbered(uint32_t i)
{
    return (struct moe_settings){i, i, (float)(i % 8) / 8, i, i, i, (float)(i % 8) / 8, i, i, i};
}

static void write_settings(void *arg)
{
    (void)arg;
    for (uint32_t i = 1; !atomic_load(&stop); i++) {
        const struct moe_settings s = numbered(i);
        (void)settings_box_set(box, &s, SETTINGS_SOCKET, 0);
    }
}

static void test_a_reader_never_sees_a_mixture(void **state)
{
    (void)state;
    struct os_thread *writers[2];
    struct mc_err err = {0};
    assert_int_equal(settings_box_create(&flash, &box, &err), MC_OK);
    const struct moe_settings first = numbered(7);
    (void)settings_box_set(box, &first, SETTINGS_START, 0);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(os_thread_start(write_settings, NULL, "writer", &writers[i], &err), MC_OK);
    uint32_t newest = 0;
    for (uint32_t i = 0; i < 200000; i++) {
        struct moe_settings s;
        struct settings_state now;
        settings_box_begin(box, &s);
        const struct moe_settings want = numbered(s.top_k);
        if (!settings_equal(&s, &want)) fail_msg("a mixture");
        settings_box_end(box);
        settings_box_get(box, &now);
        if (now.generation < newest) fail_msg("older settings than before");
        newest = now.generation;
    }
    atomic_store(&stop, 1);
    for (unsigned i = 0; i < 2; i++) os_thread_join(writers[i]);
    settings_box_destroy(box);
}

static void test_generations(void **state)
{
    (void)state;
    struct mc_err err = {0};
    struct settings_state now;
    struct moe_settings s, step;
    assert_int_equal(settings_box_create(&flash, &box, &err), MC_OK);
    settings_box_get(box, &now);
    assert_true(now.generation == 1 && now.applied_generation == 1 && now.source == SETTINGS_START);
    assert_false(settings_lossy(&now.settings, &flash));
    settings_box_begin(box, &step);
    s = settings_lossless(&flash), s.top_k = 4;
    assert_int_equal(settings_box_set(box, &s, SETTINGS_FILE, 0), 2);
    settings_box_get(box, &now);
    assert_true(now.generation == 2 && now.applied_generation == 1 &&
                now.source == SETTINGS_FILE); /* the step runs with the old */
    settings_box_end(box);
    settings_box_get(box, &now);
    assert_int_equal(now.applied_generation, 2); /* idle: at once */
    assert_int_equal(settings_box_set(box, &s, SETTINGS_SOCKET, 1), 0);
    assert_int_equal(settings_box_set(box, &s, SETTINGS_SOCKET, 2), 3);
    settings_box_begin(box, &step);
    assert_int_equal(step.top_k, 4);
    settings_box_get(box, &now);
    assert_int_equal(now.applied_generation, 3);
    settings_box_end(box);
    settings_box_destroy(box);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_content_of_the_form),
        cmocka_unit_test(test_what_the_form_cannot_say),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_what_is_lossy),
        cmocka_unit_test(test_profiles),
        cmocka_unit_test(test_generations),
        cmocka_unit_test(test_a_reader_never_sees_a_mixture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
