/* json.c - see json.h. The only file that knows jansson.
 *
 * struct mc_json is never defined: a pointer to one is a json_t pointer under another name. jansson recurses once per nesting
 * level (its own limit is 2048), as do all who walk a tree; a scan of the brackets before parsing bounds that at
 * MC_JSON_DEPTH_MAX. */
#include "platform/base/json.h"

#include <jansson.h>

static const json_t *inside(const struct mc_json *v)
{
    return (const json_t *)(const void *)v;
}

static const struct mc_json *outside(const json_t *v)
{
    return (const struct mc_json *)(const void *)v;
}

/* Deepest nesting, counted without looking at anything but strings and brackets; wrong only for texts that do not parse. */
static size_t nesting(struct mc_span text)
{
    size_t depth = 0, deepest = 0;
    bool in_string = false;
    for (size_t i = 0; i < text.size; i++) {
        const uint8_t c = text.data[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            if (++depth > deepest) deepest = depth;
        } else if ((c == ']' || c == '}') && depth > 0) {
            depth--;
        }
    }
    return deepest;
}

enum mc_code mc_json_parse(struct mc_span text, struct mc_json **out, struct mc_err *err)
{
    return mc_json_parse_flat(text, MC_JSON_DEPTH_MAX, out, err);
}

enum mc_code mc_json_parse_flat(struct mc_span text, size_t depth_max, struct mc_json **out, struct mc_err *err)
{
    const size_t depth = nesting(text);
    if (depth > depth_max)
        return mc_fail(err, MC_EFORMAT, 0, "JSON: nested %zu deep, at most %zu is accepted", depth, depth_max);
    json_error_t why;
    json_t *root = json_loadb(text.size ? (const char *)text.data : "", text.size, JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
    if (!root && json_error_code(&why) == json_error_out_of_memory)
        return mc_fail(err, MC_ENOMEM, 0, "JSON: no memory for %zu bytes", text.size);
    if (!root) return mc_fail(err, MC_EFORMAT, 0, "JSON, line %d column %d: %s", why.line, why.column, why.text);
    *out = (struct mc_json *)(void *)root;
    return MC_OK;
}

void mc_json_destroy(struct mc_json *root)
{
    json_decref((json_t *)(void *)root);
}

enum mc_json_type mc_json_type(const struct mc_json *v)
{
    if (!v) return MC_JSON_NULL;
    switch (json_typeof(inside(v))) {
    case JSON_OBJECT:
        return MC_JSON_OBJECT;
    case JSON_ARRAY:
        return MC_JSON_ARRAY;
    case JSON_STRING:
        return MC_JSON_STRING;
    case JSON_INTEGER:
        return MC_JSON_INT;
    case JSON_REAL:
        return MC_JSON_REAL;
    case JSON_TRUE:
    case JSON_FALSE:
        return MC_JSON_BOOL;
    case JSON_NULL:
        break;
    }
    return MC_JSON_NULL;
}

bool mc_json_bool(const struct mc_json *v)
{
    return json_is_true(inside(v));
}

int64_t mc_json_int(const struct mc_json *v)
{
    return json_integer_value(inside(v)); /* 0 for other types, as all of jansson's readers */
}

double mc_json_number(const struct mc_json *v)
{
    return json_number_value(inside(v));
}

struct mc_span mc_json_string(const struct mc_json *v)
{
    return (struct mc_span){(const uint8_t *)json_string_value(inside(v)), json_string_length(inside(v))};
}

size_t mc_json_count(const struct mc_json *v)
{
    return json_is_array(inside(v)) ? json_array_size(inside(v)) : json_object_size(inside(v));
}

const struct mc_json *mc_json_item(const struct mc_json *array, size_t i)
{
    return outside(json_array_get(inside(array), i));
}

const struct mc_json *mc_json_get(const struct mc_json *object, const char *key)
{
    return outside(json_object_get(inside(object), key));
}

const struct mc_json *mc_json_get_span(const struct mc_json *object, struct mc_span key)
{
    return outside(json_object_getn(inside(object), key.size ? (const char *)key.data : "", key.size));
}

bool mc_json_next(const struct mc_json *object, void **it, struct mc_span *key, const struct mc_json **value)
{
    json_t *const o = (json_t *)(uintptr_t)object; /* jansson's iterators take a writable object and do not write */
    *it = *it ? json_object_iter_next(o, *it) : json_object_iter(o);
    if (!*it) return false;
    *key = (struct mc_span){(const uint8_t *)json_object_iter_key(*it), json_object_iter_key_len(*it)};
    *value = outside(json_object_iter_value(*it));
    return true;
}
