/* markers.c - see markers.h */
#include "runtime/text/markers.h"

static const struct {
    const char *text;
    char mark;
} token_texts[] = {{"｜DSML｜", MARK_DSML[0]}, {"<think>", MARK_OPEN[0]}, {"</think>", MARK_CLOSE[0]}};

static const struct {
    const char *text;
    enum marker marker;
} tags[] = {
    {MARK_OPEN, MARKER_THINK_OPEN},
    {MARK_CLOSE, MARKER_THINK_CLOSE},
    {"<" MARK_DSML "tool_calls>", MARKER_BLOCK},
    {"<" MARK_DSML "function_calls>", MARKER_BLOCK},
    {"</" MARK_DSML "tool_calls>", MARKER_BLOCK_END},
    {"</" MARK_DSML "function_calls>", MARKER_BLOCK_END},
    {"<" MARK_DSML "invoke", MARKER_INVOKE},
    {"</" MARK_DSML "invoke>", MARKER_INVOKE_END},
    {"<" MARK_DSML "parameter name=", MARKER_PARAMETER_NAME},
    {"<" MARK_DSML "parameter", MARKER_PARAMETER},
    {"</" MARK_DSML "parameter>", MARKER_PARAMETER_END},
};

/* How much of the front of s is the front of text. */
static size_t common_prefix(struct mc_span s, const char *text)
{
    size_t n = 0;
    while (n < s.size && text[n] && s.data[n] == (uint8_t)text[n]) n++;
    return n;
}

enum marker_match marker_match(struct mc_span s, unsigned wanted, enum marker *which, size_t *size)
{
    enum marker_match result = MARKER_NO;
    for (size_t i = 0; i < ARRAY_LEN(tags); i++) {
        if (!(wanted & tags[i].marker)) continue;
        const size_t n = common_prefix(s, tags[i].text);
        if (tags[i].text[n] == '\0') {
            *which = tags[i].marker;
            *size = n;
            return MARKER_FOUND;
        }
        if (n == s.size) result = MARKER_PART;
    }
    return result;
}

enum marker_match marker_find(struct mc_span s, size_t from, unsigned wanted, size_t *at, enum marker *which, size_t *size)
{
    for (size_t i = from; i < s.size; i++) {
        if (s.data[i] != '<' && s.data[i] < 0xF8) continue;
        const enum marker_match m = marker_match(text_span(s.data + i, s.size - i), wanted, which, size);
        if (m == MARKER_NO) continue;
        *at = i;
        return m;
    }
    *at = s.size;
    return MARKER_NO;
}

size_t marker_newlines_before(struct mc_span s, size_t at)
{
    size_t n = 0;
    while (n < 2 && n < at && s.data[at - 1 - n] == '\n') n++;
    return n;
}

/* Takes s whole, or up to a tail that may be the beginning of a token text; returns the size of that tail. */
static size_t fold(struct mc_span s, struct text_buf *out)
{
    size_t done = 0;
    for (size_t i = 0; i < s.size; i++) {
        if (s.data[i] != '<' && s.data[i] != 0xEF) continue;
        for (size_t k = 0; k < ARRAY_LEN(token_texts); k++) {
            const size_t n = common_prefix(text_span(s.data + i, s.size - i), token_texts[k].text);
            const bool whole = token_texts[k].text[n] == '\0';
            if (!whole && n < s.size - i) continue;
            if (i > done) text_buf_add(out, s.data + done, i - done);
            if (!whole) return s.size - i;
            text_buf_add_char(out, token_texts[k].mark);
            done = i + n;
            i = done - 1;
            break;
        }
    }
    if (s.size > done) text_buf_add(out, s.data + done, s.size - done);
    return 0;
}

void marker_fold_feed(struct marker_fold *f, struct mc_span text, struct text_buf *out)
{
    size_t used = 0;
    while (f->n_held > 0 && used < text.size) { /* byte by byte until the held tail is decided */
        f->held[f->n_held++] = text.data[used++];
        const size_t n = f->n_held, rest = fold(text_span(f->held, n), out);
        memmove(f->held, f->held + (n - rest), rest);
        f->n_held = rest;
    }
    if (used == text.size) return;
    f->n_held = fold(text_span(text.data + used, text.size - used), out);
    memcpy(f->held, text.data + text.size - f->n_held, f->n_held);
}

void marker_fold_flush(struct marker_fold *f, struct text_buf *out)
{
    text_buf_add(out, f->held, f->n_held);
    f->n_held = 0;
}

struct mc_span marker_unfold(struct mc_span s, struct text_buf *scratch)
{
    size_t done = 0;
    text_buf_clear(scratch);
    for (size_t i = 0; i < s.size; i++) {
        if (s.data[i] < 0xF8) continue;
        text_buf_add(scratch, s.data + done, i - done);
        for (size_t k = 0; k < ARRAY_LEN(token_texts); k++)
            if (s.data[i] == (uint8_t)token_texts[k].mark) text_buf_add_str(scratch, token_texts[k].text);
        done = i + 1;
    }
    if (done == 0) return s;
    text_buf_add(scratch, s.data + done, s.size - done);
    return text_buf_span(scratch);
}
