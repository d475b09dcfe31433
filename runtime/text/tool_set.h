/* tool_set.h - the tools a request declares: their names and what their schemas say about parameters. */
#ifndef RUNTIME_TEXT_TOOL_SET_H
#define RUNTIME_TEXT_TOOL_SET_H

#include "platform/base/bytes.h"
#include "platform/base/err.h"

struct mc_json;
struct tool_set;

/* tools: the request's array of {"type": "function", "function": {"name", "parameters"}}, or NULL for no tools; borrowed, must
 * outlive the set. Errors: MC_EARG naming the entry, MC_ENOMEM. */
MC_MUST_CHECK enum mc_code tool_set_create(const struct mc_json *tools, struct tool_set **out, struct mc_err *err);
void tool_set_destroy(struct tool_set *s);
bool tool_set_is_empty(const struct tool_set *s); /* s may be NULL: empty */

/* Index of the tool of this name, or SIZE_MAX. */
size_t tool_set_find(const struct tool_set *s, struct mc_span name);
/* For these `tool` may be SIZE_MAX (undeclared): nothing is known. */
bool tool_set_has_parameter(const struct tool_set *s, size_t tool, struct mc_span name);
/* The schema gives the parameter a type, and the type is not, or does not include, "string". */
bool tool_set_is_not_string(const struct tool_set *s, size_t tool, struct mc_span name);

#endif
