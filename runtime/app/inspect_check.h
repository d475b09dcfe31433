/* inspect_check.h - reads every byte of a model and every weight in it. */
#ifndef RUNTIME_APP_INSPECT_CHECK_H
#define RUNTIME_APP_INSPECT_CHECK_H

#include "platform/base/err.h"

#include <stdbool.h>

struct gguf;

/* Errors: MC_EIO (a part cannot be read), MC_EFORMAT naming the first tensor and row with a weight that is no finite number,
 * MC_ECANCELLED. */
MC_MUST_CHECK enum mc_code inspect_check(const struct gguf *g, bool quiet, struct mc_err *err);

#endif
