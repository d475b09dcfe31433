/* text_buf.c - see text_buf.h */
#include "runtime/text/text_buf.h"

#include <stdlib.h>

void text_buf_init(struct text_buf *b)
{
    *b = (struct text_buf){NULL, 0, 0, false};
}

void text_buf_deinit(struct text_buf *b)
{
    free(b->data);
    text_buf_init(b);
}

void text_buf_clear(struct text_buf *b)
{
    b->size = 0;
}

/* Room for `more` bytes at the end; false, and `failed`, if there is none. */
static bool reserve(struct text_buf *b, size_t more)
{
    if (b->failed) return false;
    if (more <= b->capacity - b->size) return true;
    size_t want = b->capacity < 64 ? 64 : b->capacity;
    while (want - b->size < more && want <= SIZE_MAX / 4) want *= 2;
    char *const data = want - b->size < more ? NULL : realloc(b->data, want);
    if (!data) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->capacity = want;
    return true;
}

void text_buf_add(struct text_buf *b, const void *bytes, size_t size)
{
    if (size == 0 || !reserve(b, size)) return;
    memcpy(b->data + b->size, bytes, size);
    b->size += size;
}

void text_buf_add_str(struct text_buf *b, const char *s)
{
    text_buf_add(b, s, strlen(s));
}

void text_buf_add_span(struct text_buf *b, struct mc_span s)
{
    text_buf_add(b, s.data, s.size);
}

void text_buf_add_char(struct text_buf *b, char c)
{
    text_buf_add(b, &c, 1);
}

void text_buf_drop(struct text_buf *b, size_t n)
{
    if (n == 0) return;
    memmove(b->data, b->data + n, b->size - n);
    b->size -= n;
}

enum mc_code text_buf_check(const struct text_buf *b, struct mc_err *err)
{
    if (!b->failed) return MC_OK;
    return mc_fail(err, MC_ENOMEM, 0, "no memory for more than %zu bytes of text", b->size);
}
