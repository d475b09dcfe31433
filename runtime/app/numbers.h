/* numbers.h - numbers and lists as people type them, read strictly: the whole text must be the number, and it must be in range.
 */
#ifndef RUNTIME_APP_NUMBERS_H
#define RUNTIME_APP_NUMBERS_H

#include "platform/base/bytes.h"
#include "platform/base/err.h"

/* Decimal digits, with a sign where min is negative. False when the text is anything else or out of [min, max]. */
MC_MUST_CHECK bool number_i64(const char *text, int64_t min, int64_t max, int64_t *out);
MC_MUST_CHECK bool number_u64(const char *text, uint64_t *out);
/* Decimal notation with an optional exponent; no hexadecimal, no infinity. */
MC_MUST_CHECK bool number_f64(const char *text, double min, double max, double *out);

/* Bytes: "512M", "12G", "1.5GiB", "4096". K M G T, alone or with iB, are powers of 1024; KB MB GB TB powers of 1000. At most
 * 2^62. */
MC_MUST_CHECK bool number_size(const char *text, uint64_t *out);

/* "1,2,3", "[1, 2, 3]" or white space between the numbers; an empty text is an empty list. *out is malloc'ed and the caller's
 * (NULL of an empty list). `what` names the list in errors: MC_EARG saying which entry is wrong and why, MC_ENOMEM. */
MC_MUST_CHECK enum mc_code number_list(struct mc_span text, const char *what, int32_t min, int32_t max, int32_t **out,
                                       size_t *n, struct mc_err *err);
/* The same for an option's value, which may also be @FILE. */
MC_MUST_CHECK enum mc_code number_list_arg(const char *value, const char *what, int32_t min, int32_t max, int32_t **out,
                                           size_t *n, struct mc_err *err);

#endif
