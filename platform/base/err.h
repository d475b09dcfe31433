/* err.h - every failure is a value with a sentence.
 *
 * A fallible function returns enum mc_code and takes struct mc_err *err last (may be NULL). The sentence is made
 * where the fault is seen and names the thing, what was expected and what would help; callers pass it up unchanged. */
#ifndef PLATFORM_BASE_ERR_H
#define PLATFORM_BASE_ERR_H

#include "platform/base/compiler.h"

enum mc_code {
    MC_OK = 0,
    MC_EARG,         /* the caller or the command line is wrong */
    MC_ENOMEM,       /* memory could not be had */
    MC_EIO,          /* the operating system said no; os_code holds its number */
    MC_EFORMAT,      /* a file or message is not what it claims to be */
    MC_EUNSUPPORTED, /* valid, but not something this program does */
    MC_EBUSY,        /* try again later */
    MC_ECANCELLED,   /* interrupted by the user or by shutdown */
    MC_EFULL         /* the context holds no further token */
};

struct mc_err {
    enum mc_code code;
    int os_code;
    char msg[488];
};

/* enum mc_code mc_fail(struct mc_err *err, enum mc_code code, int os_code, const char *fmt, ...)
 *
 * Fills *err (if not NULL) and is `code`. Longer sentences are cut, bytes that are no printable text (from file names or
 * metadata) come out as '?'. Threads: any. A macro, so that analysers see the value. */
#define mc_fail(err, code, os_code, ...) (mc_err_set((err), (code), (os_code), __VA_ARGS__), (code))
void mc_err_set(struct mc_err *err, enum mc_code code, int os_code, const char *fmt, ...) MC_PRINTF(4, 5);

#endif
