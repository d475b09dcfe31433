/* json.h - JSON from outside, parsed strictly into a read-only tree.
 *
 * Valid UTF-8 only, no lone surrogates, nothing after the value, nesting up to MC_JSON_DEPTH_MAX. Object members keep the order
 * they came in; of duplicate keys the last value stands at the first place. Integers are 64 bits (longer ones are an error), a
 * number with a point or an exponent is a real. The values are parts of the root and live as long as it does.
 * Threads: a tree may be read by several threads at once. */
#ifndef PLATFORM_BASE_JSON_H
#define PLATFORM_BASE_JSON_H

#include "platform/base/bytes.h"
#include "platform/base/err.h"

struct mc_json;

#define MC_JSON_DEPTH_MAX 128

enum mc_json_type { MC_JSON_NULL, MC_JSON_BOOL, MC_JSON_INT, MC_JSON_REAL, MC_JSON_STRING, MC_JSON_ARRAY, MC_JSON_OBJECT };

/* Any value may be the root. Errors: MC_EFORMAT (with line and column), MC_ENOMEM. */
MC_MUST_CHECK enum mc_code mc_json_parse(struct mc_span text, struct mc_json **out, struct mc_err *err);
/* The same with a lower limit of nesting. */
MC_MUST_CHECK enum mc_code mc_json_parse_flat(struct mc_span text, size_t depth_max, struct mc_json **out, struct mc_err *err);
void mc_json_destroy(struct mc_json *root);

/* Readers are total: NULL reads as null, a value of another type as false, 0, empty or NULL. */
enum mc_json_type mc_json_type(const struct mc_json *v);
bool mc_json_bool(const struct mc_json *v);
int64_t mc_json_int(const struct mc_json *v);                                     /* of an int */
double mc_json_number(const struct mc_json *v);                                   /* of an int or a real */
struct mc_span mc_json_string(const struct mc_json *v);                           /* may hold NUL */
size_t mc_json_count(const struct mc_json *v);                                    /* items of an array, members of an object */
const struct mc_json *mc_json_item(const struct mc_json *array, size_t i);        /* NULL beyond the end */
const struct mc_json *mc_json_get(const struct mc_json *object, const char *key); /* NULL if absent */
const struct mc_json *mc_json_get_span(const struct mc_json *object, struct mc_span key);

/* Walks an object in input order: for (void *it = NULL; mc_json_next(o, &it, &key, &value);) ... */
bool mc_json_next(const struct mc_json *object, void **it, struct mc_span *key, const struct mc_json **value);

#endif
