/* utf8_stream.c - see utf8_stream.h */
#include "runtime/text/utf8_stream.h"

#include "runtime/text/utf8.h"

void utf8_stream_init(struct utf8_stream *s)
{
    s->n_held = 0;
}

/* Emits whole code points of p[0..n); returns how many bytes at the end are the beginning of one. */
static size_t emit_whole(const uint8_t *p, size_t n, struct text_buf *out)
{
    size_t done = 0; /* everything before it is in *out */
    for (size_t i = 0, size; i < n; i += size) {
        uint32_t cp;
        const enum utf8_status status = utf8_read(p + i, n - i, &cp, &size);
        if (status == UTF8_VALID) continue;
        text_buf_add(out, p + done, i - done);
        if (status == UTF8_CUT) return n - i;
        text_buf_add_str(out, UTF8_REPLACEMENT_BYTES);
        done = i + size;
    }
    text_buf_add(out, p + done, n - done);
    return 0;
}

void utf8_stream_feed(struct utf8_stream *s, struct mc_span bytes, struct text_buf *out)
{
    size_t used = 0;
    while (s->n_held > 0 && used < bytes.size) {
        /* One byte at a time until the held beginning is decided: at most three rounds. */
        s->held[s->n_held++] = bytes.data[used++];
        const size_t n = s->n_held, rest = emit_whole(s->held, n, out);
        memmove(s->held, s->held + (n - rest), rest);
        s->n_held = rest;
    }
    if (used == bytes.size) return;
    s->n_held = emit_whole(bytes.data + used, bytes.size - used, out);
    memcpy(s->held, bytes.data + bytes.size - s->n_held, s->n_held);
}

void utf8_stream_flush(struct utf8_stream *s, struct text_buf *out)
{
    if (s->n_held > 0) text_buf_add_str(out, UTF8_REPLACEMENT_BYTES);
    s->n_held = 0;
}
