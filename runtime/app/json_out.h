/* json_out.h - writes one JSON value in the order of the calls: `{"a": 1, "b": [true]}`.
 *
 * Text is collected in memory and printed at once, so that a command that fails half-way prints nothing. Running out of memory
 * is remembered and reported by json_out_print. In an object every call names its key; in an array and at the top the key is
 * NULL. */
#ifndef RUNTIME_APP_JSON_OUT_H
#define RUNTIME_APP_JSON_OUT_H

#include "platform/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_out {
    char *text;
    size_t size, cap;
    bool comma; /* the next value is not the first of its container */
    bool failed;
};

void json_out_init(struct json_out *j);
void json_out_deinit(struct json_out *j);

void json_out_object(struct json_out *j, const char *key);
void json_out_object_end(struct json_out *j);
void json_out_array(struct json_out *j, const char *key);
void json_out_array_end(struct json_out *j);
/* Any bytes; what is not UTF-8 comes out as U+FFFD. */
void json_out_bytes(struct json_out *j, const char *key, const void *text, size_t size);
void json_out_text(struct json_out *j, const char *key, const char *text); /* NULL prints null */
void json_out_int(struct json_out *j, const char *key, int64_t v);
void json_out_uint(struct json_out *j, const char *key, uint64_t v);
/* Shortest form that reads back as the same double; null for infinities and NaN. */
void json_out_num(struct json_out *j, const char *key, double v);
void json_out_float(struct json_out *j, const char *key, float v); /* the same for a float */
void json_out_bool(struct json_out *j, const char *key, bool v);
void json_out_null(struct json_out *j, const char *key);
/* A value that was written elsewhere. */
void json_out_splice(struct json_out *j, const char *key, const struct json_out *value);

/* Prints the value and a newline on stdout. Errors: MC_ENOMEM, MC_EIO. */
MC_MUST_CHECK enum mc_code json_out_print(const struct json_out *j, struct mc_err *err);

#endif
