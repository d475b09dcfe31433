/* log.c - see log.h. The sink is the one mutable file-scope state of the project: set once in main, read-only after. */
#include "platform/base/log.h"

#include <stdarg.h>
#include <stdio.h>

static struct {
    mc_log_fn fn;
    void *user;
    enum mc_log_level max_level;
} sink;

void mc_log_set(mc_log_fn fn, void *user, enum mc_log_level max_level)
{
    sink.fn = fn;
    sink.user = user;
    sink.max_level = max_level;
}

void mc_log(enum mc_log_level level, const char *fmt, ...)
{
    if (!sink.fn || level > sink.max_level) return;
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    sink.fn(sink.user, level, line);
}
