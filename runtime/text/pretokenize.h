/* pretokenize.h - cuts text into the pieces that BPE never crosses. */
#ifndef RUNTIME_TEXT_PRETOKENIZE_H
#define RUNTIME_TEXT_PRETOKENIZE_H

#include "platform/base/bytes.h"

/* Walks over one stretch of text between added tokens; memory of the caller, nothing to free. */
struct pretokenizer {
    struct mc_span text;
    size_t pos;     /* first byte not yet given out */
    size_t sub_end; /* end of the sub-stretch that pos is in; pos == sub_end: not looked for yet */
};

/* text must be valid UTF-8 and stay until the last piece. */
void pretokenize_begin(struct pretokenizer *p, struct mc_span text);
/* The next piece, never empty; false at the end. All pieces joined are the text. O(text) for all pieces together. */
bool pretokenize_next(struct pretokenizer *p, struct mc_span *piece);

#endif
