/* options.c - the table of options and the three places their values come from. See options.h.
 *
 * The line is read first (it names the config file), then the environment, then the file; a value never replaces one of a
 * higher source. Environment: MODCHIP_ and the long name in capitals, '-' as '_'; an empty variable counts as unset. Config
 * file: lines `name = value`, a line that starts with '#' is a comment, flags take on or off. A file may name options of any
 * command. */
#include "runtime/app/options.h"

#include "platform/base/bytes.h"
#include "platform/os.h"
#include "runtime/app/commands.h"
#include "runtime/app/numbers.h"
#include "runtime/control/settings.h"
#include "runtime/model/shape.h"
#include "topology/placement.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

enum opt_kind {
    KIND_FLAG,
    KIND_INT,
    KIND_SEED,
    KIND_NUM,
    KIND_TEXT,
    KIND_PATH /* not empty */,
    KIND_CHOICE,
    KIND_MAYBE /* a choice whose value may be left out: the first one then */,
    KIND_SIZE,
    KIND_JOIN /* repeats */
};

struct opt_row {
    const char *name;
    char letter;
    enum opt_kind kind;
    unsigned commands;
    const char *dflt;
    double min, max;     /* of integers and numbers */
    const char *choices; /* "a|b|c" */
};

#define INT_TOP 2147483647.0
#define LOADS   (CMD_ENGINE | CMD_DOCTOR)
#define PLACES  (LOADS | CMD_PLAN | CMD_TOPO)
#define SHAPES  (LOADS | CMD_PLAN)

static const struct opt_row rows[OPT_COUNT] = {
    [OPT_MODEL] = {"model", 'm', KIND_PATH, SHAPES | CMD_TOKENS | CMD_INSPECT, NULL, 0, 0, NULL},
    [OPT_THREADS] = {"threads", 't', KIND_INT, PLACES, NULL, 1, PLACEMENT_MAX, NULL},
    [OPT_PIN] = {"pin", 0, KIND_PATH, PLACES, "auto", 0, 0, NULL},
    [OPT_CTX] = {"ctx", 0, KIND_INT, SHAPES, NULL, 1, INT_TOP, NULL},
    [OPT_BATCH] = {"batch", 0, KIND_INT, SHAPES, NULL, 1, 65536, NULL},
    [OPT_IO] = {"io", 0, KIND_CHOICE, SHAPES, "auto", 0, 0, "auto|mmap|uring|pread"},
    [OPT_ISA] = {"isa", 0, KIND_CHOICE, SHAPES | CMD_BENCH_KERNELS, "auto", 0, 0, "auto|scalar|avx2|avx512"},
    [OPT_KV] = {"kv", 0, KIND_CHOICE, SHAPES, "f16", 0, 0, "f32|f16|q8"},
    [OPT_ARITH] = {"arith", 0, KIND_CHOICE, SHAPES, "fast", 0, 0, "fast|exact"},
    [OPT_LAYOUT] = {"layout", 0, KIND_CHOICE, SHAPES, "auto", 0, 0, "auto|file|packed"},
    [OPT_HUGEPAGES] = {"hugepages", 0, KIND_CHOICE, SHAPES, "auto", 0, 0, "auto|off|thp|2m|1g"},
    [OPT_NUMA] = {"numa", 0, KIND_CHOICE, SHAPES, "auto", 0, 0, "auto|local|interleave|mirror"},
    [OPT_MOE_TOP_K] = {"moe-top-k", 0, KIND_INT, LOADS, NULL, 1, MODEL_USED_MAX, NULL},
    [OPT_MOE_INNER_K] = {"moe-inner-k", 0, KIND_INT, LOADS, NULL, 1, MODEL_USED_MAX, NULL},
    [OPT_MOE_BAND] = {"moe-band", 0, KIND_PATH, LOADS, NULL, 0, 0, NULL},
    [OPT_MOE_MIN_WEIGHT] = {"moe-min-weight", 0, KIND_NUM, LOADS, "0", 0, (double)SETTINGS_WEIGHT_MAX, NULL},
    [OPT_MOE_RESCALE] = {"moe-rescale", 0, KIND_PATH, LOADS, "l2", 0, 0, NULL},
    [OPT_SWIGLU_EXPS] = {"swiglu-exps", 0, KIND_INT, SHAPES, "0", 0, SETTINGS_STRATUM, NULL},
    [OPT_SWIGLU_SHEXP] = {"swiglu-shexp", 0, KIND_INT, SHAPES, "0", 0, SETTINGS_STRATUM, NULL},
    [OPT_MOE_SCOPE] = {"moe-scope", 0, KIND_CHOICE, LOADS, "decode", 0, 0, "decode|all"},
    [OPT_MOE_CFG] = {"moe-cfg", 0, KIND_PATH, CMD_TALK, NULL, 0, 0, NULL},
    [OPT_CONTROL] = {"control", 0, KIND_PATH, CMD_TALK | CMD_CTL, NULL, 0, 0, NULL},
    [OPT_QUIET] = {"quiet", 0, KIND_FLAG, CMD_ALL, "off", 0, 0, NULL},
    [OPT_JSON] = {"json", 0, KIND_FLAG, CMD_ALL & ~(unsigned)CMD_CHAT, "off", 0, 0, NULL},
    [OPT_CONFIG] = {"config", 0, KIND_PATH, CMD_ALL, NULL, 0, 0, NULL},
    [OPT_LOG] = {"log", 0, KIND_CHOICE, CMD_ALL, "warn", 0, 0, "error|warn|info|debug|trace"},
    [OPT_HELP] = {"help", 'h', KIND_FLAG, CMD_ALL, "off", 0, 0, NULL},
    [OPT_VERSION] = {"version", 0, KIND_FLAG, CMD_ALL, "off", 0, 0, NULL},
    [OPT_PROMPT] = {"prompt", 'p', KIND_TEXT, CMD_RUN | CMD_TOKENS, NULL, 0, 0, NULL},
    [OPT_FILE] = {"file", 'f', KIND_PATH, CMD_RUN | CMD_TOKENS | CMD_PPL | CMD_DIALS, NULL, 0, 0, NULL},
    [OPT_RAW] = {"raw", 0, KIND_FLAG, CMD_RUN, "off", 0, 0, NULL},
    [OPT_PREDICT] = {"predict", 'n', KIND_INT, CMD_TALK | CMD_MEASURE | CMD_DIALS, NULL, 0, INT_TOP, NULL},
    [OPT_TEMP] = {"temp", 0, KIND_NUM, CMD_TALK, "1.0", 0, 1e9, NULL},
    [OPT_TOP_K] = {"top-k", 0, KIND_INT, CMD_TALK, "0", 0, INT_TOP, NULL},
    [OPT_TOP_P] = {"top-p", 0, KIND_NUM, CMD_TALK, "1.0", 0, 1, NULL},
    [OPT_MIN_P] = {"min-p", 0, KIND_NUM, CMD_TALK, "0", 0, 1, NULL},
    [OPT_SEED] = {"seed", 0, KIND_SEED, CMD_TALK | CMD_MEASURE | CMD_SYNTH, NULL, 0, 0, NULL},
    [OPT_IGNORE_EOS] = {"ignore-eos", 0, KIND_FLAG, CMD_RUN, "off", 0, 0, NULL},
    [OPT_THINK] = {"think", 0, KIND_CHOICE, CMD_TALK, "on", 0, 0, "off|on|high|max"},
    [OPT_SYSTEM] = {"system", 0, KIND_TEXT, CMD_TALK, NULL, 0, 0, NULL},
    [OPT_CHAT_PROFILE] = {"chat-profile", 0, KIND_CHOICE, CMD_TALK, "auto", 0, 0, "auto|0731|preview"},
    [OPT_TOKENS] = {"tokens", 0, KIND_PATH, CMD_LOGITS | CMD_DETOKENIZE, NULL, 0, 0, NULL},
    [OPT_POSITIONS] = {"positions", 0, KIND_PATH, CMD_LOGITS, NULL, 0, 0, NULL},
    [OPT_OUTPUT] = {"output", 'o', KIND_PATH, CMD_LOGITS | CMD_SYNTH | CMD_TOPO, NULL, 0, 0, NULL},
    [OPT_CHUNK] = {"chunk", 0, KIND_INT, CMD_PPL | CMD_DIALS, "512", 4, 16777216, NULL},
    [OPT_STRIDE] = {"stride", 0, KIND_INT, CMD_PPL | CMD_DIALS, NULL, 1, 16777216, NULL},
    [OPT_CHUNKS] = {"chunks", 0, KIND_INT, CMD_PPL | CMD_DIALS, NULL, 1, INT_TOP, NULL},
    [OPT_KL_SAVE] = {"kl-save", 0, KIND_PATH, CMD_PPL, NULL, 0, 0, NULL},
    [OPT_KL] = {"kl", 0, KIND_PATH, CMD_PPL, NULL, 0, 0, NULL},
    [OPT_PREFILL] = {"prefill", 'p', KIND_INT, CMD_MEASURE, "512", 0, 16777216, NULL},
    [OPT_REPEATS] = {"repeats", 'r', KIND_INT, CMD_BENCH | CMD_DIALS, "5", 1, 1000, NULL},
    [OPT_DEPTH] = {"depth", 0, KIND_INT, CMD_MEASURE, "0", 0, 16777216, NULL},
    [OPT_LOAD] = {"load", 0, KIND_FLAG, CMD_BENCH, "off", 0, 0, NULL},
    [OPT_TENSORS] = {"tensors", 0, KIND_FLAG, CMD_INSPECT, "off", 0, 0, NULL},
    [OPT_CHECK] = {"check", 0, KIND_FLAG, CMD_INSPECT, "off", 0, 0, NULL},
    [OPT_TOPOLOGY] = {"topology", 0, KIND_PATH, CMD_TOPO, NULL, 0, 0, NULL},
    [OPT_DRAW] = {"draw", 0, KIND_MAYBE, CMD_TOPO, "text", 0, 0, "text|svg"},
    [OPT_MEMORY] = {"memory", 0, KIND_SIZE, SHAPES, NULL, 0, 0, NULL},
    [OPT_EXPERT_CACHE] = {"expert-cache", 0, KIND_SIZE, SHAPES, NULL, 0, 0, NULL},
    [OPT_QUICK] = {"quick", 0, KIND_FLAG, CMD_DOCTOR, "off", 0, 0, NULL},
    [OPT_PRESET] = {"preset", 0, KIND_CHOICE, CMD_SYNTH, "nano", 0, 0, "nano|nano-quant|truedims"},
    [OPT_LAYERS] = {"layers", 0, KIND_INT, CMD_SYNTH, NULL, 1, 256, NULL},
    [OPT_SET] = {"set", 0, KIND_JOIN, CMD_SYNTH, NULL, 0, 0, NULL},
    [OPT_RATIOS] = {"ratios", 0, KIND_PATH, CMD_SYNTH, NULL, 0, 0, NULL},
    [OPT_HASH_LAYERS] = {"hash-layers", 0, KIND_INT, CMD_SYNTH, NULL, 0, 256, NULL},
    [OPT_TYPE] = {"type", 0, KIND_JOIN, CMD_SYNTH, NULL, 0, 0, NULL},
    [OPT_EXPERTS] = {"experts", 0, KIND_PATH, CMD_SYNTH, NULL, 0, 0, NULL},
    [OPT_FLOAT] = {"float", 0, KIND_CHOICE, CMD_SYNTH, NULL, 0, 0, "f32|f16|bf16"},
    [OPT_ALIGNMENT] = {"alignment", 0, KIND_INT, CMD_SYNTH, "32", 8, 65536, NULL},
};

enum { LONG_BASE = 1000, CONFIG_BYTES_MAX = 1 << 20 };

const char *opt_name(enum opt_id id)
{
    return rows[id].name;
}

bool opt_taken_by(enum opt_id id, unsigned command)
{
    return (rows[id].commands & command) != 0;
}

/* ---- one value -------------------------------------------------------------------------------------------------------- */

/* Position of `text` in "a|b|c", or -1. */
static int choice_index(const char *choices, const char *text)
{
    const size_t n = strlen(text);
    const char *p = choices;
    for (int i = 0; n; i++) {
        const size_t len = strcspn(p, "|");
        if (len == n && !memcmp(p, text, n)) return i;
        if (!p[len]) break;
        p += len + 1;
    }
    return -1;
}

static enum mc_code keep_text(struct app_options *o, enum opt_id id, const char *text, bool append, struct mc_err *err)
{
    struct opt_value *v = &o->value[id];
    const char *before = append ? v->text : NULL;
    const size_t head = before ? strlen(before) + 1 : 0, size = strlen(text) + 1;
    char *copy = malloc(head + size);
    if (!copy) return mc_fail(err, MC_ENOMEM, 0, "no memory for the value of --%s", rows[id].name);
    if (before) {
        memcpy(copy, before, head - 1);
        copy[head - 1] = ',';
    }
    memcpy(copy + head, text, size);
    free(o->owned[id]);
    o->owned[id] = copy;
    v->text = copy;
    return MC_OK;
}

/* Fills i and f of *v from text. `where` says who wrote it: "--ctx", "MODCHIP_CTX", "config:3: ctx". */
static enum mc_code read_value(const struct opt_row *row, const char *text, const char *where, struct opt_value *v,
                               struct mc_err *err)
{
    static const char flags[] = "off|no|false|0|on|yes|true|1";
    int at;
    switch (row->kind) {
    case KIND_FLAG:
        at = choice_index(flags, text);
        if (at < 0) return mc_fail(err, MC_EARG, 0, "%s: '%s' is neither on nor off", where, text);
        v->i = at >= 4;
        return MC_OK;
    case KIND_INT:
        if (!number_i64(text, (int64_t)row->min, (int64_t)row->max, &v->i))
            return mc_fail(err, MC_EARG, 0, "%s: '%s' is not an integer from %.0f to %.0f", where, text, row->min, row->max);
        return MC_OK;
    case KIND_SEED: {
        uint64_t seed;
        if (!number_u64(text, &seed))
            return mc_fail(err, MC_EARG, 0, "%s: '%s' is not an integer from 0 to 2^64-1", where, text);
        v->i = (int64_t)seed;
        return MC_OK;
    }
    case KIND_NUM:
        if (!number_f64(text, row->min, row->max, &v->f))
            return mc_fail(err, MC_EARG, 0, "%s: '%s' is not a number from %g to %g", where, text, row->min, row->max);
        return MC_OK;
    case KIND_SIZE: {
        uint64_t bytes;
        if (!number_size(text, &bytes))
            return mc_fail(err, MC_EARG, 0, "%s: '%s' is not a size like 512M, 12G or 1.5GiB", where, text);
        v->i = (int64_t)bytes;
        return MC_OK;
    }
    case KIND_CHOICE:
    case KIND_MAYBE:
        at = choice_index(row->choices, text);
        if (at < 0) return mc_fail(err, MC_EARG, 0, "%s: '%s' is none of %s", where, text, row->choices);
        v->i = at;
        return MC_OK;
    case KIND_PATH:
    case KIND_JOIN:
        if (!*text) return mc_fail(err, MC_EARG, 0, "%s: the value is empty", where);
        return MC_OK;
    case KIND_TEXT:
        return MC_OK;
    }
    return MC_OK;
}

/* text lives as long as *o when it comes from the line; it is copied otherwise. */
static enum mc_code set_value(struct app_options *o, enum opt_id id, const char *text, enum opt_source source,
                              const char *where, struct mc_err *err)
{
    struct opt_value *v = &o->value[id], got = {text, source, 0, 0};
    enum mc_code code = read_value(&rows[id], text, where, &got, err);
    if (code || v->source > source) return code;
    const bool append = rows[id].kind == KIND_JOIN && v->text && v->source == source;
    if (append || source != OPT_FROM_LINE) {
        code = keep_text(o, id, text, append, err);
        if (code) return code;
        got.text = v->text;
    }
    *v = got;
    return MC_OK;
}

/* ---- the line --------------------------------------------------------------------------------------------------------- */

struct line_table {
    struct option longs[OPT_COUNT + 1];
    char shorts[2 * OPT_COUNT + 2];
};

static void make_line_table(struct line_table *t, unsigned command)
{
    size_t n = 0, s = 0;
    memset(t, 0, sizeof *t);
    t->shorts[s++] = ':'; /* a missing value is told apart from an unknown option */
    for (int id = 0; id < OPT_COUNT; id++) {
        if (!(rows[id].commands & command)) continue;
        const bool flag = rows[id].kind == KIND_FLAG;
        const int has_value = flag ? no_argument : rows[id].kind == KIND_MAYBE ? optional_argument : required_argument;
        t->longs[n++] = (struct option){rows[id].name, has_value, NULL, LONG_BASE + id};
        if (!rows[id].letter) continue;
        t->shorts[s++] = rows[id].letter;
        if (!flag) t->shorts[s++] = ':';
    }
}

static int id_of_letter(int letter, unsigned command)
{
    for (int id = 0; id < OPT_COUNT; id++)
        if (rows[id].letter == letter && (rows[id].commands & command)) return id;
    return -1;
}

static enum mc_code line_error(const struct app_options *o, int c, char **argv, struct mc_err *err)
{
    const char *const cmd = o->command_name;
    if (optopt >= LONG_BASE) { /* whether the value is missing or too much: not every getopt_long tells */
        const struct opt_row *row = &rows[optopt - LONG_BASE];
        return mc_fail(err, MC_EARG, 0, "--%s %s value (see modchip %s --help)", row->name,
                       row->kind == KIND_FLAG ? "takes no" : "needs a", cmd);
    }
    if (c == ':') return mc_fail(err, MC_EARG, 0, "-%c needs a value (see modchip %s --help)", optopt, cmd);
    if (optopt) return mc_fail(err, MC_EARG, 0, "unknown option -%c (see modchip %s --help)", optopt, cmd);
    return mc_fail(err, MC_EARG, 0, "unknown option %s (see modchip %s --help)", argv[optind - 1], cmd);
}

static enum mc_code read_line(struct app_options *o, size_t args_max, int argc, char **argv, struct mc_err *err)
{
    struct line_table t;
    make_line_table(&t, o->command);
    opterr = 0;
    optind = 0; /* start anew: tests parse more than one line */
    for (;;) {
        optopt = 0;
        const int c = getopt_long(argc, argv, t.shorts, t.longs, NULL);
        if (c == -1) break;
        if (c == '?' || c == ':') return line_error(o, c, argv, err);
        const int id = c >= LONG_BASE ? c - LONG_BASE : id_of_letter(c, o->command);
        char where[40];
        if (c >= LONG_BASE)
            snprintf(where, sizeof where, "--%s", rows[id].name);
        else
            snprintf(where, sizeof where, "-%c", c);
        const char *value = optarg ? optarg : "on";
        if (rows[id].kind == KIND_MAYBE && !optarg) /* `--draw svg` is a value as well as `--draw=svg` */
            value = optind < argc && choice_index(rows[id].choices, argv[optind]) >= 0 ? argv[optind++] : rows[id].dflt;
        const enum mc_code code = set_value(o, (enum opt_id)id, value, OPT_FROM_LINE, where, err);
        if (code) return code;
        if (id == OPT_HELP || id == OPT_VERSION) return MC_OK;
    }
    for (; optind < argc; optind++) {
        if (o->n_args == args_max)
            return mc_fail(err, MC_EARG, 0, "unexpected argument '%s' (see modchip %s --help)", argv[optind], o->command_name);
        o->args[o->n_args++] = argv[optind];
    }
    return MC_OK;
}

/* ---- the environment -------------------------------------------------------------------------------------------------- */

static void env_name(char out[48], const char *name)
{
    size_t n = 8;
    memcpy(out, "MODCHIP_", 8);
    for (; *name && n < 47; name++) out[n++] = *name == '-' ? '_' : (char)(*name >= 'a' && *name <= 'z' ? *name - 32 : *name);
    out[n] = '\0';
}

static enum mc_code read_environment(struct app_options *o, const struct opt_environment *env, struct mc_err *err)
{
    char name[48];
    for (int id = 0; id < OPT_COUNT; id++) {
        if (!(rows[id].commands & o->command) || id == OPT_HELP || id == OPT_VERSION) continue;
        env_name(name, rows[id].name);
        const char *text = env->get(env->user, name);
        if (!text || !*text) continue;
        const enum mc_code code = set_value(o, (enum opt_id)id, text, OPT_FROM_ENV, name, err);
        if (code) return code;
    }
    return MC_OK;
}

/* ---- the config file -------------------------------------------------------------------------------------------------- */

static char *trim(char *s)
{
    while (*s == ' ' || *s == '\t') s++;
    size_t n = strlen(s);
    while (n && (s[n - 1] == ' ' || s[n - 1] == '\t' || s[n - 1] == '\r')) s[--n] = '\0';
    return s;
}

static enum mc_code read_config_line(struct app_options *o, char *line, const char *path, unsigned number, struct mc_err *err)
{
    line = trim(line);
    if (!*line || *line == '#') return MC_OK;
    char *eq = strchr(line, '=');
    if (!eq) return mc_fail(err, MC_EARG, 0, "%s:%u: expected 'name = value', found '%.60s'", path, number, line);
    *eq = '\0';
    const char *name = trim(line), *value = trim(eq + 1);
    for (int id = 0; id < OPT_COUNT; id++) {
        if (strcmp(rows[id].name, name) || id == OPT_CONFIG || id == OPT_HELP || id == OPT_VERSION) continue;
        char where[300];
        snprintf(where, sizeof where, "%.200s:%u: %s", path, number, name);
        /* Checked even when this command has no use for it; two rows may share a meaning, never a name. */
        struct mc_err why = {.code = MC_OK};
        const enum mc_code code = set_value(o, (enum opt_id)id, value, OPT_FROM_FILE, where, &why);
        if (code == MC_EARG && strchr(value, '#'))
            return mc_fail(err, code, 0, "%s (a comment needs a line of its own)", why.msg);
        if (code && err) *err = why;
        return code;
    }
    return mc_fail(err, MC_EARG, 0, "%s:%u: there is no option '%.60s'", path, number, name);
}

/* The file of --config, or the one in the user's config folder if it is there; an empty path: none. */
static void config_path(const struct app_options *o, const struct opt_environment *env, char *buf, size_t cap)
{
    static const struct {
        const char *variable, *below;
    } places[] = {{"XDG_CONFIG_HOME", "modchip/config"}, {"APPDATA", "modchip/config"}, {"HOME", ".config/modchip/config"}};
    buf[0] = '\0';
    if (o->value[OPT_CONFIG].text) {
        snprintf(buf, cap, "%s", o->value[OPT_CONFIG].text);
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        const char *folder = env->get(env->user, places[i].variable);
        if (!folder || !*folder) continue;
        const int n = snprintf(buf, cap, "%s/%s", folder, places[i].below);
        if (n > 0 && (size_t)n < cap && os_file_exists(buf)) return;
        buf[0] = '\0';
        return; /* the first variable that is set names the folder */
    }
}

static enum mc_code read_config(struct app_options *o, const struct opt_environment *env, struct mc_err *err)
{
    char path[4096];
    config_path(o, env, path, sizeof path);
    if (!path[0]) return MC_OK;
    char *text;
    size_t size;
    enum mc_code code = os_file_read_all(path, CONFIG_BYTES_MAX, &text, &size, err);
    if (code) return code;
    if (memchr(text, '\0', size)) {
        free(text);
        return mc_fail(err, MC_EARG, 0, "%s: not a text file", path);
    }
    char *line = text;
    if (size >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3)) line += 3; /* a byte order mark: some editors of Windows write one */
    for (unsigned number = 1; line && !code; number++) {
        char *end = strchr(line, '\n');
        if (end) *end++ = '\0';
        code = read_config_line(o, line, path, number, err);
        line = end;
    }
    free(text);
    return code;
}

/* ---- public ----------------------------------------------------------------------------------------------------------- */

enum mc_code options_read(struct app_options *o, unsigned command, const char *command_name, size_t args_max, int argc,
                          char **argv, const struct opt_environment *env, struct mc_err *err)
{
    memset(o, 0, sizeof *o);
    o->command = command;
    o->command_name = command_name;
    enum mc_code code = MC_OK;
    for (int id = 0; id < OPT_COUNT && !code; id++)
        if (rows[id].dflt) {
            o->value[id].text = rows[id].dflt;
            code = read_value(&rows[id], rows[id].dflt, rows[id].name, &o->value[id], err);
        }
    if (!code) code = read_line(o, args_max, argc, argv, err);
    if (code || opt_flag(o, OPT_HELP) || opt_flag(o, OPT_VERSION)) return code;
    code = read_environment(o, env, err);
    return code ? code : read_config(o, env, err);
}

void options_free(struct app_options *o)
{
    for (int id = 0; id < OPT_COUNT; id++) free(o->owned[id]);
}

bool opt_is_set(const struct app_options *o, enum opt_id id)
{
    return o->value[id].source != OPT_FROM_DEFAULT;
}

const char *opt_text(const struct app_options *o, enum opt_id id)
{
    return o->value[id].text;
}

int64_t opt_int(const struct app_options *o, enum opt_id id)
{
    return o->value[id].i;
}

double opt_num(const struct app_options *o, enum opt_id id)
{
    return o->value[id].f;
}

bool opt_flag(const struct app_options *o, enum opt_id id)
{
    return o->value[id].i != 0;
}
