/* markers.h - the alphabet in which answers are parsed; for the answer stream and the call parser only.
 *
 * A marker token becomes one byte that UTF-8 never uses; everything else stays as it is. So a marker that the model wrote as a
 * token cannot be confused with one that it spelled, tags are short, and a byte decides where a comparison of strings would.
 * Text given without ids is folded into the same alphabet first. */
#ifndef RUNTIME_TEXT_MARKERS_H
#define RUNTIME_TEXT_MARKERS_H

#include "runtime/text/text_buf.h"

#define MARK_DSML  "\xF8" /* ｜DSML｜ */
#define MARK_OPEN  "\xF9" /* <think> */
#define MARK_CLOSE "\xFA" /* </think> */

/* Tags, as bits so that a state can say which it looks for. */
enum marker {
    MARKER_THINK_OPEN = 1 << 0,
    MARKER_THINK_CLOSE = 1 << 1,
    MARKER_BLOCK = 1 << 2, /* of either name */
    MARKER_BLOCK_END = 1 << 3,
    MARKER_INVOKE = 1 << 4, /* without its attributes */
    MARKER_INVOKE_END = 1 << 5,
    MARKER_PARAMETER = 1 << 6,      /* without its attributes */
    MARKER_PARAMETER_NAME = 1 << 7, /* with the beginning of the attribute `name` */
    MARKER_PARAMETER_END = 1 << 8
};

#define MARKER_BYTES_MAX 18

enum marker_match {
    MARKER_NO,   /* none of the wanted begins here */
    MARKER_PART, /* all of the text may be the beginning of one */
    MARKER_FOUND
};

/* Which of the `wanted` markers (bits) begins at the front of s; FOUND: *which and its *size. */
enum marker_match marker_match(struct mc_span s, unsigned wanted, enum marker *which, size_t *size);

/* The first place at or after `from` where a wanted marker, or the beginning of one at the end of s, stands. NO: *at = s.size.
 */
enum marker_match marker_find(struct mc_span s, size_t from, unsigned wanted, size_t *at, enum marker *which, size_t *size);

/* Up to two newlines directly before `at`. */
size_t marker_newlines_before(struct mc_span s, size_t at);
static inline bool marker_is_space(uint8_t b)
{
    return b == ' ' || (b >= '\t' && b <= '\r');
}
static inline size_t marker_skip_space(struct mc_span s, size_t at)
{
    while (at < s.size && marker_is_space(s.data[at])) at++;
    return at;
}

/* Text -> alphabet; keeps back a tail that may be the beginning of a marker token's text. */
struct marker_fold {
    uint8_t held[16];
    size_t n_held;
};
void marker_fold_feed(struct marker_fold *f, struct mc_span text, struct text_buf *out);
void marker_fold_flush(struct marker_fold *f, struct text_buf *out);
/* Alphabet -> text. Returns s itself if it holds no mark, else the text in *scratch (which is cleared first). */
struct mc_span marker_unfold(struct mc_span s, struct text_buf *scratch);

#endif
