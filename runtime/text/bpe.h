/* bpe.h - byte pair encoding on ids: which two neighbours become one, in which order. */
#ifndef RUNTIME_TEXT_BPE_H
#define RUNTIME_TEXT_BPE_H

#include "platform/base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* One merge; left < 0 marks a free slot. */
struct bpe_merge {
    int32_t left, right;
    uint32_t rank; /* lower goes first */
    int32_t result;
};

/* Hash table of merges. Const after the last bpe_add. */
struct bpe {
    struct bpe_merge *slots;
    size_t mask; /* slots - 1; a power of two of slots, at most half full */
};

/* What bpe_encode works on for long pieces; grows, is reused from piece to piece. One a thread. stop, if not NULL after init,
 * is asked every 65536 pieces and merges. */
struct bpe_scratch {
    struct bpe_symbol *symbols;
    size_t symbols_capacity;
    uint64_t *heap;
    size_t heap_size, heap_capacity;
    bool (*stop)(void *user);
    void *stop_user;
    unsigned steps;
};

/* Room for n_merges. Errors: MC_ENOMEM. */
MC_MUST_CHECK enum mc_code bpe_init(struct bpe *b, size_t n_merges, struct mc_err *err);
void bpe_deinit(struct bpe *b);
/* Ids are >= 0. False if the pair has a merge already; the older one stays. */
bool bpe_add(struct bpe *b, struct bpe_merge merge);
const struct bpe_merge *bpe_find(const struct bpe *b, int32_t left, int32_t right); /* NULL if there is none */

void bpe_scratch_init(struct bpe_scratch *s);
void bpe_scratch_deinit(struct bpe_scratch *s);

/* Merges ids[0..*n) in place: again and again the neighbours of lowest rank, of equal ones the leftmost. O(n log n).
 * n < 2^31. Errors: MC_ENOMEM, MC_ECANCELLED (stop said so). */
MC_MUST_CHECK enum mc_code bpe_encode(const struct bpe *b, int32_t *ids, size_t *n, struct bpe_scratch *s, struct mc_err *err);

#endif
