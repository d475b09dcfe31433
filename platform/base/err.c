/* err.c - see err.h */
#include "platform/base/err.h"

#include <stdarg.h>
#include <stdio.h>

void mc_err_set(struct mc_err *err, enum mc_code code, int os_code, const char *fmt, ...)
{
    if (!err) return;
    err->code = code;
    err->os_code = os_code;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
    for (char *p = err->msg; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?';
}
