/* commands.h - the sub-commands: names, help texts, functions. One row in commands.c and one file cmd_<name>.c each. */
#ifndef RUNTIME_APP_COMMANDS_H
#define RUNTIME_APP_COMMANDS_H

#include "platform/base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct app_options;

enum {
    CMD_RUN = 1u << 0,
    CMD_CHAT = 1u << 1,
    CMD_LOGITS = 1u << 2,
    CMD_TOKENIZE = 1u << 3,
    CMD_DETOKENIZE = 1u << 4,
    CMD_INSPECT = 1u << 5,
    CMD_PPL = 1u << 6,
    CMD_BENCH = 1u << 7,
    CMD_BENCH_KERNELS = 1u << 8,
    CMD_SYNTH = 1u << 9,
    CMD_PROFILE = 1u << 10,
    CMD_TOPO = 1u << 11,
    CMD_PLAN = 1u << 12,
    CMD_DOCTOR = 1u << 13,
    CMD_DIALS = 1u << 14,
    CMD_CTL = 1u << 15,
    CMD_ALL = (1u << 16) - 1,
    /* groups that share options */
    CMD_ENGINE = CMD_RUN | CMD_CHAT | CMD_LOGITS | CMD_PPL | CMD_BENCH | CMD_PROFILE | CMD_DIALS,
    CMD_MEASURE = CMD_BENCH | CMD_PROFILE,
    CMD_TALK = CMD_RUN | CMD_CHAT,
    CMD_TOKENS = CMD_TOKENIZE | CMD_DETOKENIZE
};

/* Prints its result on stdout. MC_EARG ends the program with code 2, MC_ECANCELLED with 130, others with 1. */
typedef enum mc_code (*command_fn)(const struct app_options *o, struct mc_err *err);

struct app_command {
    const char *name; /* "bench kernels" is two words */
    unsigned bit;
    size_t args_max; /* arguments without an option */
    command_fn run;
    const char *help; /* fits a screen of 80 x 24 */
};

size_t command_count(void);
const struct app_command *command_at(size_t i);
/* The command that argv[1..argc) names and how many words that took; NULL if there is none of this name. */
const struct app_command *command_find(int argc, char **argv, int *n_words);
/* A command of a later version. */
bool command_is_planned(const char *name);
extern const char command_overview[]; /* modchip --help */

enum mc_code cmd_run(const struct app_options *o, struct mc_err *err);
enum mc_code cmd_chat(const struct app_options *o, struct mc_err *err);
enum mc_code cmd_ctl(const struct app_options *o, struct mc_err *err);
enum mc_code cmd_logits(const struct app_options *o, struct mc_err *err);
enum mc_code cmd_tokenize(const struct app_options *o, struct mc_err *err);
enum mc_code cmd_detokenize(const struct app_options *o, struct mc_err *err);
enum mc_code cmd_inspect(const struct app_options *o, struct mc_err *err);
enum mc_code cmd_ppl(const struct app_options *o, struct mc_err *err);
enum mc_code cmd_bench(const struct app_options *o, struct mc_err *err);
enum mc_code cmd_bench_kernels(const struct app_options *o, struct mc_err *err);
enum mc_code cmd_profile(const struct app_options *o, struct mc_err *err);
enum mc_code cmd_topo(const struct app_options *o, struct mc_err *err);
enum mc_code cmd_plan(const struct app_options *o, struct mc_err *err);
enum mc_code cmd_doctor(const struct app_options *o, struct mc_err *err);
enum mc_code cmd_dials(const struct app_options *o, struct mc_err *err);
enum mc_code cmd_synth(const struct app_options *o, struct mc_err *err);

#endif
