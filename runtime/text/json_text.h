/* json_text.h - JSON as the model is used to reading it: the form of Python's json.dumps(x, ensure_ascii=False).
 *
 * Separators ", " and ": ", members in input order; strings escape only ", \ and U+0000..U+001F; a real is the shortest text
 * that reads back to the same double, always with a point or an exponent. Also used for every JSON text we write ourselves. */
#ifndef RUNTIME_TEXT_JSON_TEXT_H
#define RUNTIME_TEXT_JSON_TEXT_H

#include "runtime/text/text_buf.h"

struct mc_json;

/* Recurses to at most MC_JSON_DEPTH_MAX. */
void json_text_value(struct text_buf *out, const struct mc_json *v);
void json_text_string(struct text_buf *out, struct mc_span s); /* with its quotes */
void json_text_escape(struct text_buf *out, struct mc_span s); /* what goes between the quotes; s may be any part of a text */

#endif
