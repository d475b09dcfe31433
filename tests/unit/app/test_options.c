/* Options: what the line, the environment and the config file may say, which of them wins, and that every mistake is one
 * sentence. */
#include "runtime/app/commands.h"
#include "runtime/app/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define CONFIG "test_options.conf"

/* NAME=VALUE strings, NULL at the end. */
static const char *from_list(void *user, const char *name)
{
    const size_t n = strlen(name);
    for (const char *const *e = user; *e; e++)
        if (!strncmp(*e, name, n) && (*e)[n] == '=') return *e + n + 1;
    return NULL;
}

struct given {
    const char *env[4];
    const char *config; /* text of the file, or NULL */
    const char *argv[12];
};

static enum mc_code read_given(const struct given *g, unsigned command, struct app_options *o, struct mc_err *err)
{
    char *argv[16] = {(char[]){"modchip"}};
    int argc = 1;
    char copies[12][64];
    for (int i = 0; i < 12 && g->argv[i]; i++) {
        snprintf(copies[i], sizeof copies[i], "%s", g->argv[i]);
        argv[argc++] = copies[i];
    }
    const char *env[5] = {g->env[0], g->env[1], g->env[2], g->env[3], NULL};
    if (g->config) {
        FILE *f = fopen(CONFIG, "wb");
        fputs(g->config, f);
        fclose(f);
    }
    const struct opt_environment e = {from_list, env};
    const enum mc_code code = options_read(o, command, "run", command == CMD_INSPECT, argc, argv, &e, err);
    remove(CONFIG);
    return code;
}

/* The options must be wrong, and the sentence must hold `part`. */
static void refuse(const struct given *g, unsigned command, const char *part)
{
    struct app_options o;
    struct mc_err err = {0};
    assert_int_equal(read_given(g, command, &o, &err), MC_EARG);
    if (!strstr(err.msg, part)) fail_msg("'%s' does not say '%s'", err.msg, part);
    assert_null(strchr(err.msg, '\n'));
    options_free(&o);
}

static void test_defaults(void **state)
{
    (void)state;
    struct app_options o;
    assert_int_equal(read_given(&(struct given){.config = NULL}, CMD_RUN, &o, NULL), MC_OK);
    assert_true(opt_num(&o, OPT_TEMP) > 0.999 && opt_num(&o, OPT_TEMP) < 1.001);
    assert_string_equal(opt_text(&o, OPT_THINK), "on");
    assert_int_equal(opt_int(&o, OPT_KV), 1); /* f16 */
    assert_null(opt_text(&o, OPT_MODEL));
    assert_false(opt_is_set(&o, OPT_SEED));
    assert_false(opt_flag(&o, OPT_JSON));
    options_free(&o);
}

static void test_the_line(void **state)
{
    (void)state;
    struct app_options o;
    const struct given g = {
        .argv = {"-n", "5", "--temp=0.5", "-t2", "--json", "--kv", "q8", "--seed", "18446744073709551615", "-p", "--raw"}};
    assert_int_equal(read_given(&g, CMD_RUN, &o, NULL), MC_OK);
    assert_int_equal(opt_int(&o, OPT_PREDICT), 5);
    assert_int_equal(opt_int(&o, OPT_THREADS), 2);
    assert_true(opt_num(&o, OPT_TEMP) > 0.499 && opt_num(&o, OPT_TEMP) < 0.501);
    assert_true(opt_flag(&o, OPT_JSON));
    assert_int_equal(opt_int(&o, OPT_KV), 2);
    assert_true((uint64_t)opt_int(&o, OPT_SEED) == UINT64_MAX);
    assert_int_equal(o.value[OPT_PROMPT].source, OPT_FROM_LINE); /* its value is the text "--raw" */
    assert_false(opt_flag(&o, OPT_RAW));
    options_free(&o);
}

static void test_repeated_options_are_joined_or_the_last_wins(void **state)
{
    (void)state;
    struct app_options o;
    const struct given g = {.argv = {"--type", "attn=q4_K", "--type", "embd=f16", "--seed", "1", "--seed", "2"}};
    assert_int_equal(read_given(&g, CMD_SYNTH, &o, NULL), MC_OK);
    assert_string_equal(opt_text(&o, OPT_TYPE), "attn=q4_K,embd=f16");
    assert_int_equal(opt_int(&o, OPT_SEED), 2);
    options_free(&o);
}

static void test_precedence(void **state)
{
    (void)state;
    struct app_options o;
    const struct given g = {.env = {"MODCHIP_TOP_K=2", "MODCHIP_CTX=20", "MODCHIP_JSON="},
                            .config = "# settings\n\ntop-k = 1\r\n  ctx=10\nbatch = 7\njson = on\nalignment = 64\n",
                            .argv = {"--config", CONFIG, "--top-k", "3"}};
    assert_int_equal(read_given(&g, CMD_RUN, &o, NULL), MC_OK);
    assert_int_equal(opt_int(&o, OPT_TOP_K), 3);
    assert_int_equal(opt_int(&o, OPT_CTX), 20);
    assert_int_equal(opt_int(&o, OPT_BATCH), 7);
    assert_true(opt_flag(&o, OPT_JSON)); /* an empty variable is unset */
    assert_int_equal(o.value[OPT_CTX].source, OPT_FROM_ENV);
    assert_int_equal(o.value[OPT_BATCH].source, OPT_FROM_FILE);
    options_free(&o);
}

static void test_a_config_with_a_byte_order_mark(void **state)
{
    (void)state;
    struct app_options o;
    const struct given g = {.config = "\xEF\xBB\xBF"
                                      "ctx = 10\nsystem = no # comment\n",
                            .argv = {"--config", CONFIG}};
    assert_int_equal(read_given(&g, CMD_RUN, &o, NULL), MC_OK);
    assert_int_equal(opt_int(&o, OPT_CTX), 10);
    assert_string_equal(opt_text(&o, OPT_SYSTEM), "no # comment"); /* a text may hold anything */
    options_free(&o);
}

static void test_wrong_lines(void **state)
{
    (void)state;
    refuse(&(struct given){.argv = {"--foo"}}, CMD_RUN, "--foo");
    refuse(&(struct given){.argv = {"-x"}}, CMD_RUN, "-x");
    refuse(&(struct given){.argv = {"--ctx"}}, CMD_RUN, "--ctx needs a value");
    refuse(&(struct given){.argv = {"-n"}}, CMD_RUN, "-n needs a value");
    refuse(&(struct given){.argv = {"--json=1"}}, CMD_RUN, "--json takes no value");
    refuse(&(struct given){.argv = {"--ctx", "0"}}, CMD_RUN, "--ctx: '0'");
    refuse(&(struct given){.argv = {"--ctx", "12x"}}, CMD_RUN, "'12x'");
    refuse(&(struct given){.argv = {"-n", "-1"}}, CMD_RUN, "-n: '-1'");
    refuse(&(struct given){.argv = {"--temp", "nan"}}, CMD_RUN, "--temp");
    refuse(&(struct given){.argv = {"--top-p", "1.5"}}, CMD_RUN, "from 0 to 1");
    refuse(&(struct given){.argv = {"--kv", "f8"}}, CMD_RUN, "f32|f16|q8");
    refuse(&(struct given){.argv = {"--kv", ""}}, CMD_RUN, "f32|f16|q8");
    refuse(&(struct given){.argv = {"--kv", "f"}}, CMD_RUN, "f32|f16|q8");
    refuse(&(struct given){.argv = {"-m", ""}}, CMD_RUN, "empty");
    refuse(&(struct given){.argv = {"--moe-top-k", "0"}}, CMD_RUN, "from 1 to 32");
    refuse(&(struct given){.argv = {"--moe-min-weight", "1.6"}}, CMD_PPL, "from 0 to 1.5");
    refuse(&(struct given){.argv = {"--swiglu-exps", "129"}}, CMD_BENCH, "from 0 to 128");
    refuse(&(struct given){.argv = {"--swiglu-shexp", "-1"}}, CMD_RUN, "from 0 to 128");
    refuse(&(struct given){.argv = {"--moe-scope", "prompt"}}, CMD_RUN, "decode|all");
    refuse(&(struct given){.argv = {"more"}}, CMD_RUN, "unexpected argument 'more'");
    refuse(&(struct given){.argv = {"a", "b"}}, CMD_INSPECT, "unexpected argument 'b'");
    refuse(&(struct given){.argv = {"--temp", "1"}}, CMD_TOKENIZE, "--temp");
    refuse(&(struct given){.argv = {"%s%n"}}, CMD_RUN, "%s%n");
}

static void test_what_is_not_in_this_version_is_said_so(void **state)
{
    (void)state;
    static const char *const later[] = {"--memory", "--expert-cache", "--control"};
    for (size_t i = 0; i < sizeof later / sizeof later[0]; i++) {
        refuse(&(struct given){.argv = {later[i], "5"}}, CMD_RUN, later[i]);
        refuse(&(struct given){.argv = {later[i]}}, CMD_PPL, "not in this version");
    }
    refuse(&(struct given){.argv = {"--io", "tape"}}, CMD_RUN, "none of auto|mmap|uring|pread");
    refuse(&(struct given){.env = {"MODCHIP_CONTROL=x"}}, CMD_RUN, "MODCHIP_CONTROL");
    refuse(&(struct given){.config = "control = x\n", .argv = {"--config", CONFIG}}, CMD_RUN,
           ":1: control is not in this version");
}

static void test_wrong_environment_and_config(void **state)
{
    (void)state;
    refuse(&(struct given){.env = {"MODCHIP_TOP_P=2"}}, CMD_RUN, "MODCHIP_TOP_P: '2'");
    refuse(&(struct given){.env = {"MODCHIP_JSON=maybe"}}, CMD_RUN, "neither on nor off");
    refuse(&(struct given){.config = "ctx = 5\nctxx = 6\n", .argv = {"--config", CONFIG}}, CMD_RUN,
           CONFIG ":2: there is no option 'ctxx'");
    refuse(&(struct given){.config = "ctx\n", .argv = {"--config", CONFIG}}, CMD_RUN, "name = value");
    refuse(&(struct given){.config = "ctx = many\n", .argv = {"--config", CONFIG}}, CMD_RUN, ":1: ctx: 'many'");
    refuse(&(struct given){.config = "ctx = 5 # small\n", .argv = {"--config", CONFIG}}, CMD_RUN, "a line of its own");
    refuse(&(struct given){.config = "help = on\n", .argv = {"--config", CONFIG}}, CMD_RUN, "no option 'help'");
    struct app_options o;
    struct mc_err err = {0};
    assert_int_not_equal(read_given(&(struct given){.argv = {"--config", "no-such.conf"}}, CMD_RUN, &o, &err), MC_OK);
    assert_non_null(strstr(err.msg, "no-such.conf"));
    options_free(&o);
}

/* Every help text fits a screen of 80 x 24 and names every option that its command takes. */
static void test_help_texts(void **state)
{
    (void)state;
    for (size_t i = 0; i < command_count(); i++) {
        const struct app_command *c = command_at(i);
        int lines = 0;
        for (const char *p = c->help; *p; lines++) {
            const size_t len = strcspn(p, "\n");
            if (len > 82) fail_msg("%s: line %d has %zu columns", c->name, lines + 1, len);
            p += len + 1;
        }
        if (lines > 24) fail_msg("%s: %d lines", c->name, lines);
        for (int id = 0; id < OPT_COUNT; id++) {
            char dashed[40], letter[4];
            snprintf(dashed, sizeof dashed, "--%s", opt_name((enum opt_id)id));
            snprintf(letter, sizeof letter, "-%c ", id == OPT_MODEL ? 'm' : id == OPT_THREADS ? 't' : '?');
            if (id == OPT_HELP || id == OPT_VERSION || !opt_taken_by((enum opt_id)id, c->bit)) continue;
            if (!strstr(c->help, dashed) && !strstr(c->help, letter)) fail_msg("%s --help does not name %s", c->name, dashed);
        }
    }
    int lines = 0;
    for (const char *p = command_overview; (p = strchr(p, '\n')); p++) lines++;
    assert_true(lines <= 24);
}

static void test_commands_are_found(void **state)
{
    (void)state;
    int words;
    char bench[] = "bench", kernels[] = "kernels", serve[] = "serve", program[] = "modchip";
    char *two[] = {program, bench, kernels, NULL}, *one[] = {program, bench, NULL}, *later[] = {program, serve, NULL};
    assert_int_equal(command_find(3, two, &words)->bit, CMD_BENCH_KERNELS);
    assert_int_equal(words, 2);
    assert_int_equal(command_find(2, one, &words)->bit, CMD_BENCH);
    assert_int_equal(words, 1);
    assert_null(command_find(2, later, &words));
    assert_true(command_is_planned("serve"));
    assert_false(command_is_planned("server"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_the_line),
        cmocka_unit_test(test_repeated_options_are_joined_or_the_last_wins),
        cmocka_unit_test(test_precedence),
        cmocka_unit_test(test_a_config_with_a_byte_order_mark),
        cmocka_unit_test(test_wrong_lines),
        cmocka_unit_test(test_what_is_not_in_this_version_is_said_so),
        cmocka_unit_test(test_wrong_environment_and_config),
        cmocka_unit_test(test_help_texts),
        cmocka_unit_test(test_commands_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
