/* text_buf.h - a growing run of bytes, and the small helpers every text module needs.
 *
 * Running out of memory is remembered, not reported at each call: after `failed` is set further additions do nothing,
 * and whoever asked for the text checks once with text_buf_check. Not zero-terminated. Threads: one owner. */
#ifndef RUNTIME_TEXT_TEXT_BUF_H
#define RUNTIME_TEXT_TEXT_BUF_H

#include "platform/base/bytes.h"
#include "platform/base/err.h"

struct text_buf {
    char *data;
    size_t size, capacity;
    bool failed;
};

/* A half-open run of bytes [from, to) of some text. */
struct text_range {
    size_t from, to;
};

void text_buf_init(struct text_buf *b);
void text_buf_deinit(struct text_buf *b);
/* Empties and keeps the memory (and `failed`). */
void text_buf_clear(struct text_buf *b);
void text_buf_add(struct text_buf *b, const void *bytes, size_t size);
void text_buf_add_str(struct text_buf *b, const char *s);
void text_buf_add_span(struct text_buf *b, struct mc_span s);
void text_buf_add_char(struct text_buf *b, char c);
/* Drops the first n bytes; n <= size. */
void text_buf_drop(struct text_buf *b, size_t n);
/* MC_ENOMEM with a sentence when an addition did not fit. */
MC_MUST_CHECK enum mc_code text_buf_check(const struct text_buf *b, struct mc_err *err);

static inline struct mc_span text_span(const void *p, size_t size)
{
    return (struct mc_span){(const uint8_t *)p, size};
}

static inline struct mc_span text_span_str(const char *s)
{
    return text_span(s, strlen(s));
}

static inline struct mc_span text_buf_span(const struct text_buf *b)
{
    return text_span(b->data, b->size);
}

static inline bool text_same(struct mc_span a, struct mc_span b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

static inline bool text_is(struct mc_span a, const char *s)
{
    return text_same(a, text_span_str(s));
}

#endif
