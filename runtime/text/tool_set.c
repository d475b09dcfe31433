/* tool_set.c - see tool_set.h. Tools are sorted by name for looking them up; of equal names the first declared counts. */
#include "runtime/text/tool_set.h"

#include "platform/base/json.h"
#include "runtime/text/text_buf.h"

#include <stdlib.h>

struct tool {
    struct mc_span name;
    const struct mc_json *properties; /* of its parameters; NULL if the schema has none */
    size_t declared;                  /* its place in the request */
};

struct tool_set {
    size_t n;
    struct tool tools[];
};

static int compare_names(const void *pa, const void *pb)
{
    const struct tool *const a = pa, *const b = pb;
    const size_t n = a->name.size < b->name.size ? a->name.size : b->name.size;
    const int d = n ? memcmp(a->name.data, b->name.data, n) : 0;
    if (d) return d;
    return a->name.size < b->name.size ? -1 : a->name.size > b->name.size;
}

static int compare_places(const void *pa, const void *pb)
{
    const struct tool *const a = pa, *const b = pb;
    const int d = compare_names(a, b);
    return d ? d : a->declared < b->declared ? -1 : a->declared > b->declared;
}

enum mc_code tool_set_create(const struct mc_json *tools, struct tool_set **out, struct mc_err *err)
{
    const enum mc_json_type type = mc_json_type(tools);
    const size_t n = mc_json_count(tools);
    if (type != MC_JSON_NULL && type != MC_JSON_ARRAY) return mc_fail(err, MC_EARG, 0, "tools: expected an array");
    struct tool_set *const s = malloc(sizeof *s + n * sizeof s->tools[0]);
    if (!s) return mc_fail(err, MC_ENOMEM, 0, "no memory for %zu tools", n);
    s->n = n;
    for (size_t i = 0; i < n; i++) {
        const struct mc_json *const f = mc_json_get(mc_json_item(tools, i), "function");
        const struct mc_span name = mc_json_string(mc_json_get(f, "name"));
        if (name.size == 0) {
            free(s);
            return mc_fail(err, MC_EARG, 0, "tools[%zu].function.name: expected a string", i);
        }
        s->tools[i] = (struct tool){name, mc_json_get(mc_json_get(f, "parameters"), "properties"), i};
    }
    if (n > 0) qsort(s->tools, n, sizeof s->tools[0], compare_places);
    *out = s;
    return MC_OK;
}

void tool_set_destroy(struct tool_set *s)
{
    free(s);
}

bool tool_set_is_empty(const struct tool_set *s)
{
    return !s || s->n == 0;
}

size_t tool_set_find(const struct tool_set *s, struct mc_span name)
{
    const struct tool key = {.name = name};
    if (tool_set_is_empty(s)) return SIZE_MAX;
    const struct tool *t = bsearch(&key, s->tools, s->n, sizeof s->tools[0], compare_names);
    if (!t) return SIZE_MAX;
    while (t > s->tools && compare_names(t - 1, &key) == 0) t--;
    return (size_t)(t - s->tools);
}

/* The schema of a parameter, or NULL. */
static const struct mc_json *parameter(const struct tool_set *s, size_t tool, struct mc_span name)
{
    return s && tool < s->n ? mc_json_get_span(s->tools[tool].properties, name) : NULL;
}

bool tool_set_has_parameter(const struct tool_set *s, size_t tool, struct mc_span name)
{
    return parameter(s, tool, name) != NULL;
}

bool tool_set_is_not_string(const struct tool_set *s, size_t tool, struct mc_span name)
{
    const struct mc_json *const type = mc_json_get(parameter(s, tool, name), "type");
    if (mc_json_type(type) == MC_JSON_STRING) return !text_is(mc_json_string(type), "string");
    for (size_t i = 0; i < mc_json_count(type); i++)
        if (text_is(mc_json_string(mc_json_item(type, i)), "string")) return false;
    return mc_json_type(type) == MC_JSON_ARRAY && mc_json_count(type) > 0;
}
