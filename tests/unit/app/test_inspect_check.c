/* The check of a model's bytes: a sound file passes, and one damaged scale is found in every weight format.
 * Method: a synthetic model whose experts have the type, with the scale of one block in one expert replaced by infinity or NaN.
 */
#include "io/gguf/gguf.h"
#include "runtime/app/block_scale.h"
#include "runtime/app/commands.h"
#include "runtime/app/inspect_check.h"
#include "runtime/app/options.h"
#include "runtime/app/synth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define FILE_NAME "test_inspect_check.gguf"
#define TENSOR    "blk.1.ffn_up_exps.weight"

static const char *no_environment(void *user, const char *name)
{
    (void)user, (void)name;
    return NULL;
}

static void write_model(const char *type)
{
    char experts[64], program[] = "synth", preset[] = "--preset=nano-quant";
    snprintf(experts, sizeof experts, "--experts=1:%s", type);
    char *argv[] = {program, preset, experts, NULL};
    const struct opt_environment env = {no_environment, NULL};
    struct app_options o;
    struct synth_config c;
    struct synth_report r;
    assert_int_equal(options_read(&o, CMD_SYNTH, "synth", 1, 3, argv, &env, NULL), MC_OK);
    assert_int_equal(synth_config(&o, &c, NULL), MC_OK);
    assert_int_equal(synth_write(&c, FILE_NAME, true, &r, NULL), MC_OK);
    options_free(&o);
}

static enum mc_code check(struct mc_err *err, uint64_t *off, uint64_t *row_bytes)
{
    struct gguf *g;
    assert_int_equal(gguf_open(FILE_NAME, &g, err), MC_OK);
    const struct gguf_tensor *t = gguf_tensor_find(g, TENSOR);
    *off = t->file_off;
    *row_bytes = t->size_bytes / (t->ne[1] * t->ne[2]);
    const enum mc_code code = inspect_check(g, true, err);
    gguf_close(g);
    return code;
}

/* Makes the scale (or the weight) at `off` infinite or NaN. */
static void damage(enum quant_type type, uint64_t off)
{
    static const uint8_t nan16[2] = {0x01, 0x7C}, nan32[4] = {0, 0, 0xC0, 0x7F}, ones[4] = {0xFF, 0xFF, 0xFF, 0xFF};
    const struct block_scale s = block_scale_of(type);
    FILE *f = fopen(FILE_NAME, "r+b");
    assert_int_equal(fseek(f, (long)(off + s.at), SEEK_SET), 0);
    switch (s.form) {
    case SCALE_NONE:
        fwrite(type == QUANT_F32 ? nan32 : type == QUANT_F16 ? nan16 : nan32 + 2, type == QUANT_F32 ? 4 : 2, 1, f);
        break;
    case SCALE_F16:
        fwrite(nan16, 2, 1, f);
        break;
    case SCALE_F16_MIN:
        fseek(f, 2, SEEK_CUR);
        fwrite(nan16, 2, 1, f);
        break;
    case SCALE_IQ1_M:
        fwrite((const uint8_t[8]){0, 0x10, 0, 0, 0, 0xC0, 0, 0x70}, 8, 1, f);
        break;
    case SCALE_E8M0:
        fwrite(ones, 1, 1, f);
        break;
    case SCALE_E4M3:
        fail();
        break;
    }
    fclose(f);
}

static void test_every_format(void **state)
{
    (void)state;
    for (unsigned type = 0; type < QUANT_TYPE_COUNT; type++) {
        const struct quant_info *q = quant_info(type);
        if (!q || type == QUANT_I32 || type == QUANT_NVFP4 /* has no pattern that is no number */) continue;
        struct mc_err err = {0};
        uint64_t off, row_bytes;
        write_model(q->name);
        if (check(&err, &off, &row_bytes) != MC_OK) fail_msg("%s: %s", q->name, err.msg);
        damage((enum quant_type)type, off + 300 * row_bytes);
        const enum mc_code code = check(&err, &off, &row_bytes);
        if (code != MC_EFORMAT || !strstr(err.msg, TENSOR) || !strstr(err.msg, "row 300 "))
            fail_msg("%s: %d %s", q->name, code, err.msg);
    }
    remove(FILE_NAME);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_format)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
