/* utf8_stream.h - bytes in, whole code points out.
 *
 * Tokens may end inside a code point. At most three bytes that are a valid beginning are kept back; bytes that can no longer
 * become valid come out as one U+FFFD per maximal invalid part, at once (the rule of the WHATWG encoding standard). */
#ifndef RUNTIME_TEXT_UTF8_STREAM_H
#define RUNTIME_TEXT_UTF8_STREAM_H

#include "runtime/text/text_buf.h"

struct utf8_stream {
    uint8_t held[4];
    size_t n_held;
};

void utf8_stream_init(struct utf8_stream *s);
/* Appends what is complete to *out. */
void utf8_stream_feed(struct utf8_stream *s, struct mc_span bytes, struct text_buf *out);
/* End of input: what is kept back can no longer be completed. */
void utf8_stream_flush(struct utf8_stream *s, struct text_buf *out);

#endif
