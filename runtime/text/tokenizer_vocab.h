/* tokenizer_vocab.h - what a tokenizer holds; for tokenizer*.c only. */
#ifndef RUNTIME_TEXT_TOKENIZER_VOCAB_H
#define RUNTIME_TEXT_TOKENIZER_VOCAB_H

#include "runtime/text/added_tokens.h"
#include "runtime/text/bpe.h"
#include "runtime/text/tokenizer.h"

struct tokenizer {
    size_t n_tokens;
    size_t longest;    /* bytes of the longest token */
    uint8_t *bytes;    /* the bytes of all tokens, one after the other */
    uint32_t *offsets; /* token i is bytes[offsets[i] .. offsets[i + 1]) */
    uint8_t *types;    /* enum tokenizer_type */
    int32_t byte_ids[256];
    struct bpe bpe;
    struct added_tokens added;
    struct tokenizer_special special;
    bool add_bos;
    bool (*stop)(void *user); /* asked while a text is encoded; or NULL */
    void *stop_user;
};

/* Fills *t (all zero before) from the metadata. On failure *t is partly filled; tokenizer_destroy frees it. */
MC_MUST_CHECK enum mc_code tokenizer_load(struct tokenizer *t, const struct gguf *g, struct mc_err *err);

#endif
