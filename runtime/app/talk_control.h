/* talk_control.h - steering `run` and `chat` from outside: the 32-byte file and the control socket, and the figures that the
 * socket tells. The thread that computes only adds to counters here. */
#ifndef RUNTIME_APP_TALK_CONTROL_H
#define RUNTIME_APP_TALK_CONTROL_H

#include "platform/base/err.h"

#include <stdint.h>

struct app_options;
struct engine;
struct session;
struct talk_control;

/* By --moe-cfg and --control; either may be off. A socket that was not asked for and cannot be had is a line in the log.
 * Errors: MC_ENOMEM, and those of the socket that was asked for. */
MC_MUST_CHECK enum mc_code talk_control_open(const struct app_options *o, struct engine *engine, const struct session *session,
                                             struct talk_control **out, struct mc_err *err);
void talk_control_close(struct talk_control *c); /* NULL does nothing */

/* Told by the thread that talks. */
void talk_control_prompt(struct talk_control *c, uint64_t n_prompt, uint64_t n_kept, uint32_t position);
void talk_control_token(struct talk_control *c, uint32_t position); /* after each session_decode */

#endif
