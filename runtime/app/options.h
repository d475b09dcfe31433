/* options.h - what the user asked for: command line, environment, config file and defaults, in this order of precedence.
 *
 * One table (options.c) names every option, its kind, its limits and the commands that take it. A value is checked where it is
 * set, whatever it comes from; whoever reads it gets a number in range. */
#ifndef RUNTIME_APP_OPTIONS_H
#define RUNTIME_APP_OPTIONS_H

#include "platform/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum opt_id {
    /* commands that load a model */
    OPT_MODEL,
    OPT_THREADS,
    OPT_PIN,
    OPT_CTX,
    OPT_BATCH,
    OPT_IO,
    OPT_ISA,
    OPT_KV,
    OPT_ARITH,
    OPT_LAYOUT,
    OPT_HUGEPAGES,
    OPT_NUMA,
    OPT_MOE_TOP_K,
    OPT_MOE_INNER_K,
    OPT_MOE_BAND,
    OPT_MOE_MIN_WEIGHT,
    OPT_MOE_RESCALE,
    OPT_SWIGLU_EXPS,
    OPT_SWIGLU_SHEXP,
    OPT_MOE_SCOPE,
    OPT_MOE_CFG,
    OPT_CONTROL,
    /* all commands */
    OPT_QUIET,
    OPT_JSON,
    OPT_CONFIG,
    OPT_LOG,
    OPT_HELP,
    OPT_VERSION,
    /* text in, tokens out */
    OPT_PROMPT,
    OPT_FILE,
    OPT_RAW,
    OPT_PREDICT,
    OPT_TEMP,
    OPT_TOP_K,
    OPT_TOP_P,
    OPT_MIN_P,
    OPT_SEED,
    OPT_IGNORE_EOS,
    OPT_THINK,
    OPT_SYSTEM,
    OPT_CHAT_PROFILE,
    OPT_TOKENS,
    OPT_POSITIONS,
    OPT_OUTPUT,
    /* ppl */
    OPT_CHUNK,
    OPT_STRIDE,
    OPT_CHUNKS,
    OPT_KL_SAVE,
    OPT_KL,
    /* bench, inspect */
    OPT_PREFILL,
    OPT_REPEATS,
    OPT_DEPTH,
    OPT_LOAD,
    OPT_TENSORS,
    OPT_CHECK,
    /* topo, plan */
    OPT_TOPOLOGY,
    OPT_DRAW,
    OPT_MEMORY,
    OPT_EXPERT_CACHE,
    OPT_QUICK, /* doctor */
    /* synth */
    OPT_PRESET,
    OPT_LAYERS,
    OPT_SET,
    OPT_RATIOS,
    OPT_HASH_LAYERS,
    OPT_TYPE,
    OPT_EXPERTS,
    OPT_FLOAT,
    OPT_ALIGNMENT,
    OPT_COUNT
};

enum { OPT_ARGS_MAX = 24 };

enum opt_source { OPT_FROM_DEFAULT, OPT_FROM_FILE, OPT_FROM_ENV, OPT_FROM_LINE };

struct opt_value {
    const char *text; /* NULL: not set and no default */
    enum opt_source source;
    int64_t i; /* flags, integers, sizes in bytes, the index of a choice; seeds as their 64 bits */
    double f;
};

struct app_options {
    unsigned command;         /* one CMD_ bit of commands.h */
    const char *command_name; /* for messages */
    struct opt_value value[OPT_COUNT];
    char *owned[OPT_COUNT];         /* texts that came from the environment, a file or several uses of one option */
    const char *args[OPT_ARGS_MAX]; /* what stands on the line without an option */
    size_t n_args;
};

/* Where values come from besides the line; tests put their own in. get returns NULL when unset; the text lives until the next
 * call. */
struct opt_environment {
    const char *(*get)(void *user, const char *name);
    void *user;
};

/* Reads argv[1..argc) (argv[0] is ignored), the environment and the config file. args_max: how many arguments without an option
 * the command takes (at most OPT_ARGS_MAX). --help and --version end the reading early, as set values. Errors: MC_EARG with one
 * line, MC_EIO, MC_ENOMEM. */
MC_MUST_CHECK enum mc_code options_read(struct app_options *o, unsigned command, const char *command_name, size_t args_max,
                                        int argc, char **argv, const struct opt_environment *env, struct mc_err *err);
void options_free(struct app_options *o);

/* Set by someone, i.e. not the default. */
bool opt_is_set(const struct app_options *o, enum opt_id id);
const char *opt_text(const struct app_options *o, enum opt_id id); /* NULL: not set and no default */
int64_t opt_int(const struct app_options *o, enum opt_id id);
double opt_num(const struct app_options *o, enum opt_id id);
bool opt_flag(const struct app_options *o, enum opt_id id);

/* For the test of the help texts: the long name of an option, and whether a command takes it. */
const char *opt_name(enum opt_id id);
bool opt_taken_by(enum opt_id id, unsigned command);

#endif
