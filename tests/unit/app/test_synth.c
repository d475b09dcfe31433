/* Synthetic models: random blocks of every type have the spread that was asked for, and the file is what the reader and the
 * tokenizer expect, deterministic, and gone when it could not be finished. */
#include "io/gguf/gguf.h"
#include "runtime/app/commands.h"
#include "runtime/app/options.h"
#include "runtime/app/synth.h"
#include "runtime/model/metadata.h"
#include "runtime/text/tokenizer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FILE_NAME "test_synth.gguf"

static void test_blocks_of_every_type(void **state)
{
    (void)state;
    enum { WEIGHTS = 65536 };
    struct kern_table k;
    kern_table_init(&k, 0);
    float *w = malloc(WEIGHTS * sizeof *w);
    for (unsigned type = 0; type < QUANT_TYPE_COUNT; type++) {
        const struct quant_info *q = quant_info(type);
        if (!q || type == QUANT_I32) continue;
        uint8_t *blocks = malloc(WEIGHTS / q->block_len * q->block_bytes + 64);
        struct synth_filler f;
        struct synth_random r;
        assert_int_equal(synth_filler_init(&f, &k, (enum quant_type)type, 0.02f, 0, NULL), MC_OK);
        synth_random_init(&r, 1, "blocks");
        synth_fill(&f, &r, blocks, WEIGHTS / q->block_len);
        k.dequantize[type](w, blocks, WEIGHTS);
        double sum = 0, squares = 0;
        for (int i = 0; i < WEIGHTS; i++) sum += (double)w[i], squares += (double)w[i] * (double)w[i];
        const double mean = sum / WEIGHTS, std = sqrt(squares / WEIGHTS - mean * mean);
        /* A power of two, and small eighths, cannot meet every scale. */
        const double bound = type == QUANT_MXFP4 ? 0.42 : type == QUANT_NVFP4 ? 0.15 : 0.05;
        if (!(fabs(std / 0.02 - 1) < bound) || !(fabs(mean) < 0.0015)) fail_msg("%s: mean %g, spread %g", q->name, mean, std);
        free(blocks);
    }
    free(w);
}

static const char *no_environment(void *user, const char *name)
{
    (void)user, (void)name;
    return NULL;
}

/* Up to 8 words behind `synth`. */
static enum mc_code configure(const char *const *words, struct synth_config *c, struct mc_err *err)
{
    char copies[9][64] = {"synth"};
    char *argv[10] = {copies[0]};
    int argc = 1;
    for (; words[argc - 1]; argc++) {
        snprintf(copies[argc], sizeof copies[argc], "%s", words[argc - 1]);
        argv[argc] = copies[argc];
    }
    struct app_options o;
    const struct opt_environment env = {no_environment, NULL};
    enum mc_code code = options_read(&o, CMD_SYNTH, "synth", 1, argc, argv, &env, err);
    if (!code) code = synth_config(&o, c, err);
    options_free(&o);
    return code;
}

static char *read_file(size_t *size)
{
    FILE *f = fopen(FILE_NAME, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(*size);
    assert_int_equal(fread(data, 1, *size, f), *size);
    fclose(f);
    return data;
}

static char *make(const char *const *words, size_t *size)
{
    struct synth_config c;
    struct synth_report r;
    assert_int_equal(configure(words, &c, NULL), MC_OK);
    assert_int_equal(synth_write(&c, FILE_NAME, true, &r, NULL), MC_OK);
    char *data = read_file(size);
    assert_int_equal(r.bytes, *size);
    return data;
}

static void test_a_seed_is_a_file(void **state)
{
    (void)state;
    size_t na, nb, nc;
    char *a = make((const char *const[]){"--preset", "nano-quant", NULL}, &na);
    char *b = make((const char *const[]){"--preset", "nano-quant", "--seed", "1", NULL}, &nb);
    char *c = make((const char *const[]){"--preset", "nano-quant", "--seed", "2", NULL}, &nc);
    assert_int_equal(na, nb);
    assert_memory_equal(a, b, na);
    assert_int_equal(na, nc);
    assert_memory_not_equal(a, c, na);
    free(a);
    free(b);
    free(c);
    remove(FILE_NAME);
}

static void test_the_file_says_what_was_asked(void **state)
{
    (void)state;
    size_t size;
    free(make((const char *const[]){"--layers=3", "--ratios=0,128,4", "--set=vocab=1000,experts=12", "--type=attn=bf16",
                                    "--experts=1:q8_0/f32", "--alignment=64", "--hash-layers=1", NULL},
              &size));
    struct gguf *g;
    struct mc_err err = {0};
    assert_int_equal(gguf_open(FILE_NAME, &g, &err), MC_OK);
    assert_int_equal(gguf_alignment(g), 64);
    uint64_t v;
    assert_int_equal(gguf_get_u64(g, "deepseek4.block_count", &v, &err), MC_OK);
    assert_int_equal(v, 3);
    assert_int_equal(gguf_get_u64(g, "deepseek4.expert_count", &v, &err), MC_OK);
    assert_int_equal(v, 12);
    assert_int_equal(gguf_tensor_find(g, "blk.2.attn_kv.weight")->type, QUANT_BF16);
    assert_int_equal(gguf_tensor_find(g, "blk.1.ffn_up_exps.weight")->type, QUANT_Q8_0);
    assert_int_equal(gguf_tensor_find(g, "blk.1.ffn_down_exps.weight")->type, QUANT_F32);
    assert_non_null(gguf_tensor_find(g, "blk.0.ffn_gate_tid2eid.weight"));
    assert_null(gguf_tensor_find(g, "blk.1.ffn_gate_tid2eid.weight"));
    assert_non_null(gguf_tensor_find(g, "blk.2.indexer.proj.weight"));
    assert_null(gguf_tensor_find(g, "blk.1.indexer.proj.weight"));
    assert_int_equal(gguf_tensor_find(g, "output.weight")->ne[1], 1000);

    struct tokenizer *t;
    assert_int_equal(tokenizer_create(g, &t, &err), MC_OK);
    assert_int_equal(tokenizer_n_tokens(t), 1000);
    assert_int_equal(tokenizer_require_chat(t, &err), MC_OK);
    tokenizer_destroy(t);
    gguf_close(g);
    remove(FILE_NAME);
}

/* The routing table of a hash layer: distinct experts in every row, for crowded and for roomy dimensions. */
static void test_routes_are_distinct(void **state)
{
    (void)state;
    static const char *const dims[] = {"--set=experts=6,used=6", "--set=experts=7,used=4", "--set=experts=256,used=6",
                                       "--set=experts=1,used=1"};
    for (size_t d = 0; d < 4; d++) {
        size_t size;
        char *data = make((const char *const[]){dims[d], NULL}, &size);
        struct gguf *g;
        assert_int_equal(gguf_open(FILE_NAME, &g, NULL), MC_OK);
        const struct gguf_tensor *t = gguf_tensor_find(g, "blk.0.ffn_gate_tid2eid.weight");
        uint64_t experts;
        assert_int_equal(gguf_get_u64(g, "deepseek4.expert_count", &experts, NULL), MC_OK);
        for (uint64_t row = 0; row < t->ne[1]; row++) {
            const char *ids = data + t->file_off + 4 * row * t->ne[0];
            for (uint64_t i = 0; i < t->ne[0]; i++) {
                assert_true(mc_load_u32(ids + 4 * i) < experts);
                for (uint64_t k = 0; k < i; k++) assert_int_not_equal(mc_load_u32(ids + 4 * i), mc_load_u32(ids + 4 * k));
            }
        }
        gguf_close(g);
        free(data);
    }
    remove(FILE_NAME);
}

static void test_wrong_options(void **state)
{
    (void)state;
    static const struct {
        const char *word, *says;
    } bad[] = {{"--type=attn=q9_9", "q9_9"},        {"--type=attention=q4_K", "CLASS=TYPE"},
               {"--type=attn", "CLASS=TYPE"},       {"--type=attn=i32", "i32"},
               {"--set=colour=3", "NAME=VALUE"},    {"--set=embd=0", "embd"},
               {"--set=embd=1e3", "embd"},          {"--set=heads=3", "groups"},
               {"--set=used=9", "experts"},         {"--set=vocab=100", "vocab"},
               {"--ratios=0,4", "5 layers"},        {"--ratios=0,1,2,3,4", "0, 4, 128"},
               {"--experts=9:f16", "layer 9"},      {"--experts=0", "LAYER:TYPE"},
               {"--experts=2-1:f16", "LAYER:TYPE"}, {"--alignment=48", "power of two"},
               {"--hash-layers=99", "5 layers"},    {"--set=head_dim=40", "multiple of 16"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct synth_config c;
        struct mc_err err = {0};
        assert_int_equal(configure((const char *const[]){bad[i].word, NULL}, &c, &err), MC_EARG);
        if (!strstr(err.msg, bad[i].says)) fail_msg("%s: '%s' does not say '%s'", bad[i].word, err.msg, bad[i].says);
    }
    assert_int_equal(configure((const char *const[]){"--layers=2", NULL}, &(struct synth_config){0}, NULL), MC_OK);
    /* Found only when the tensors are laid out; no file is left. */
    struct synth_config c;
    struct synth_report r;
    struct mc_err err = {0};
    assert_int_equal(configure((const char *const[]){"--type=attn=q4_K", NULL}, &c, &err), MC_OK); /* rows of 128 */
    assert_int_equal(synth_write(&c, FILE_NAME, true, &r, &err), MC_EARG);
    assert_non_null(strstr(err.msg, "attn_q_a.weight"));
    assert_null(fopen(FILE_NAME, "rb"));
}

/* What synth takes, the model's own check takes; what it would refuse, synth refuses by name with the range. */
static void test_limits_are_those_of_the_model(void **state)
{
    (void)state;
    static const struct {
        const char *name, *min, *max, *below, *above, *range;
    } limits[] = {
        {"rope_base", "1", "1e12", "0", "2e12", "from 1 to 1e+12"},
        {"comp_base", "1", "1e12", "0", "2e12", "from 1 to 1e+12"},
        {"yarn", "1", "1e6", "0", "1e9", "from 1 to 1e+06"},
        {"beta_fast", "1e-3", "1e6", "0", "1e9", "from 0.001 to 1e+06"},
        {"beta_slow", "1e-3", "1e6", "0", "1e9", "from 0.001 to 1e+06"},
        {"eps", "0", "1", "-1", "1e9", "from 0 to 1"},
        {"hc_eps", "0", "1", "-1", "3", "from 0 to 1"},
        {"w_scale", "1e-6", "1e6", "0", "1e9", "from 1e-06 to 1e+06"},
        {"clamp", "0", "1e30", "-1", "1e31", "from 0 to 1e+30"},
        {"clamp_sh", "0", "1e30", "-1", "1e31", "from 0 to 1e+30"},
        {"used", "1", "8", "0", "33", "from 1 to 32"},
        {"head_dim", "32", "64", "8", "8192", "from 16 to 4096"},
        {"idx_dim", "32", "64", "1", "8192", "from 2 to 4096"},
        {"sinkhorn", "1", "1000", "0", "1001", "from 1 to 1000"},
        {"hc", "1", "8", "0", "9", "from 1 to 8"},
    };
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        const char *const values[] = {limits[i].min, limits[i].max, limits[i].below, limits[i].above};
        for (size_t k = 0; k < 4; k++) {
            char word[64];
            struct synth_config c;
            struct synth_report r;
            struct gguf *g;
            struct model_shape shape;
            struct mc_err err = {0};
            snprintf(word, sizeof word, "--set=%s=%s", limits[i].name, values[k]);
            const enum mc_code code = configure((const char *const[]){word, NULL}, &c, &err);
            if (code != (k < 2 ? MC_OK : MC_EARG) || (code && !strstr(err.msg, limits[i].range)))
                fail_msg("%s: %s", word, err.msg);
            if (code) continue;
            assert_int_equal(synth_write(&c, FILE_NAME, true, &r, &err), MC_OK);
            assert_int_equal(gguf_open(FILE_NAME, &g, &err), MC_OK);
            if (model_shape_read(g, &shape, &err)) fail_msg("%s: %s", word, err.msg);
            gguf_close(g);
        }
    }
    remove(FILE_NAME);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_of_every_type),
        cmocka_unit_test(test_a_seed_is_a_file),
        cmocka_unit_test(test_the_file_says_what_was_asked),
        cmocka_unit_test(test_routes_are_distinct),
        cmocka_unit_test(test_wrong_options),
        cmocka_unit_test(test_limits_are_those_of_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
