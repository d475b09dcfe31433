/* dial_options.h - the settings of the MoE options (--moe-*, --swiglu-*), and what is said about them. */
#ifndef RUNTIME_APP_DIAL_OPTIONS_H
#define RUNTIME_APP_DIAL_OPTIONS_H

#include "runtime/control/settings.h"

struct app_options;
struct engine;

/* Whether an option asks for up matrices of which rows can be skipped: fewer rows, or all 128 of 128, which leaves nothing out
 * but can be turned down while the model runs. (0 stands for all rows, in whatever layout is fastest.) */
bool dial_options_rows_exps(const struct app_options *o);
bool dial_options_rows_shexp(const struct app_options *o);

/* What can be said before a model is there. Errors: MC_EARG naming the option. */
MC_MUST_CHECK enum mc_code dial_options_check(const struct app_options *o, struct mc_err *err);

/* Checks the options against the model and puts them in force. Lossy settings are named on stderr, and so is a layout in which
 * the rows that are left out save nothing. Commands that evaluate whole texts apply them to every token. */
MC_MUST_CHECK enum mc_code dial_options_apply(const struct app_options *o, struct engine *engine, struct mc_err *err);

#endif
