/* metadata.h - reads the `deepseek4.*` keys of a GGUF into struct model_shape (architecture.md section 1). */
#ifndef RUNTIME_MODEL_METADATA_H
#define RUNTIME_MODEL_METADATA_H

#include "platform/base/err.h"
#include "runtime/model/shape.h"

struct gguf;

/* Every number is checked against the others and against what the engine can do; tensor shapes are the business of bind.h.
 * Errors: MC_EFORMAT (missing or impossible key, named), MC_EUNSUPPORTED (valid, but not something this engine runs, named). */
MC_MUST_CHECK enum mc_code model_shape_read(const struct gguf *g, struct model_shape *out, struct mc_err *err);

#endif
