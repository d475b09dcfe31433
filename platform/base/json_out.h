/* json_out.h - writes one JSON value in the order of the calls: `{"a": 1, "b": [true]}`.
 *
 * Text is collected in memory, so that who fails half-way has said nothing. Running out of memory is remembered in `failed`. In
 * an object every call names its key; in an array and at the top the key is NULL. Threads: one owner. */
#ifndef PLATFORM_BASE_JSON_OUT_H
#define PLATFORM_BASE_JSON_OUT_H

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

#endif
