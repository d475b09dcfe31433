/* log.h - one callback, set once in main; without one nothing is printed.
 *
 * One line a call, no newline, `area: event key=value`. Used for load, mode choices (which fallback was taken and why),
 * state changes and errors; nothing per token below MC_LOG_TRACE. Prompt text and secrets are never logged. */
#ifndef PLATFORM_BASE_LOG_H
#define PLATFORM_BASE_LOG_H

#include "platform/base/compiler.h"

enum mc_log_level { MC_LOG_ERROR, MC_LOG_WARN, MC_LOG_INFO, MC_LOG_DEBUG, MC_LOG_TRACE };

typedef void (*mc_log_fn)(void *user, enum mc_log_level level, const char *line);

/* Before any thread is started. */
void mc_log_set(mc_log_fn fn, void *user, enum mc_log_level max_level);

/* Threads: any (the callback must be able to). */
void mc_log(enum mc_log_level level, const char *fmt, ...) MC_PRINTF(2, 3);

#endif
