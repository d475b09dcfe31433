/* output.h - where results go: standard output, and the file of -o or --kl-save. */
#ifndef RUNTIME_APP_OUTPUT_H
#define RUNTIME_APP_OUTPUT_H

#include "platform/base/err.h"

struct engine;

/* Flushes standard output. MC_EIO when this or an earlier write there failed. */
MC_MUST_CHECK enum mc_code output_flush(struct mc_err *err);
/* The MC_EIO of a write to standard output that failed with errno `why`; 0: nobody knows any more. */
MC_MUST_CHECK enum mc_code output_failed(int why, struct mc_err *err);

/* Before work begins whose result goes to the file of `option`: "-" is refused (standard output has a result of its own), and
 * so is a file that this run reads: a part of the engine's model, or `input`. Engine and input may be NULL. MC_EARG. */
MC_MUST_CHECK enum mc_code output_check(const char *option, const char *path, const struct engine *engine, const char *input,
                                        struct mc_err *err);

#endif
