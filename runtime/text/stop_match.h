/* stop_match.h - looks for stop strings in a stream of text and keeps back what may be the beginning of one.
 *
 * The string that is complete first wins, of several that end at one place the longest; so the result does not depend on how
 * the text is cut. */
#ifndef RUNTIME_TEXT_STOP_MATCH_H
#define RUNTIME_TEXT_STOP_MATCH_H

#include "runtime/text/text_buf.h"

struct stop_match; /* heap object; NULL: no stop strings, everything passes */

/* Strings are not empty, shorter than 64 KiB and valid UTF-8; copied. *out = NULL for n = 0. Errors: MC_ENOMEM. */
MC_MUST_CHECK enum mc_code stop_match_create(const struct mc_span *stops, size_t n, struct stop_match **out,
                                             struct mc_err *err);
void stop_match_destroy(struct stop_match *m);

/* Appends to *out what is safe to show. True when a stop string was seen: *out then ends right before it, and the rest of
 * `text` is dropped; do not feed again. */
bool stop_match_feed(struct stop_match *m, struct mc_span text, struct text_buf *out);
/* Appends what is held; nothing after this joins what came before. */
void stop_match_flush(struct stop_match *m, struct text_buf *out);
struct mc_span stop_match_found(const struct stop_match *m); /* empty: none yet */

#endif
