/* dial_options.h - the settings of the MoE options (--moe-*, --swiglu-*), and what is said about them. */
#ifndef RUNTIME_APP_DIAL_OPTIONS_H
#define RUNTIME_APP_DIAL_OPTIONS_H

#include "runtime/control/settings.h"

struct app_options;
struct engine;

/* Whether an option asks for less than all rows of up: its matrices are then loaded so that rows can be skipped. */
bool dial_options_rows_exps(const struct app_options *o);
bool dial_options_rows_shexp(const struct app_options *o);

/* What can be said before a model is there. Errors: MC_EARG naming the option. */
MC_MUST_CHECK enum mc_code dial_options_check(const struct app_options *o, struct mc_err *err);

/* Checks the options against the model and puts them in force. Lossy settings are named on stderr, and so is a layout in which
 * the rows that are left out save nothing. Commands that evaluate whole texts apply them to every token. */
MC_MUST_CHECK enum mc_code dial_options_apply(const struct app_options *o, struct engine *engine, struct mc_err *err);

#endif
