/* json_out.h - the ordered JSON writer, on standard output: a command that fails half-way prints nothing. */
#ifndef RUNTIME_APP_JSON_OUT_H
#define RUNTIME_APP_JSON_OUT_H

#include "platform/base/err.h"
#include "platform/base/json_out.h"

/* Prints the value and a newline on stdout, and frees the writer. Errors: MC_ENOMEM, MC_EIO. */
MC_MUST_CHECK enum mc_code json_out_finish(struct json_out *j, struct mc_err *err);

#endif
