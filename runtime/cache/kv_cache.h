/* kv_cache.h - what a session remembers of its tokens: raw window rows, compressed rows, half-filled blocks (architecture.md 5,
 * 6, 9).
 *
 * Per layer:
 *   raw    ring of window-1 + reach + n_batch rows, position p in slot p % rows         [d_head], cache format
 *   comp   append-only, row c of block c            (layers of ratio 4 and 128)          [d_head], cache format
 *   index  append-only, row c                       (ratio 4)                            [d_index], cache format
 *   half   ring of 2*ratio (ratio 4: 8) or ratio + reach rows: kv and score projections of the last tokens (float), for the
 * attention compressor and, in ratio-4 layers, for the index compressor
 *
 * Compressed rows depend only on tokens up to their block's end, so dropping tokens never touches them: rows c >= n/ratio are
 * garbage that nobody may see and that is overwritten. A row of a ring is lost when a later position takes its slot; `floor` of
 * each ring says from which position on its rows are intact.
 *
 * A chunk that is stopped half-way has overwritten rows of some layers: `held` has those that continuing needs.
 *
 * Written by the worker that owns the row, between two barriers; positions move only between forward passes. */
#ifndef RUNTIME_CACHE_KV_CACHE_H
#define RUNTIME_CACHE_KV_CACHE_H

#include "kernels/kernels.h"
#include "platform/base/err.h"
#include "runtime/model/shape.h"

#include <stdbool.h>

/* Tokens that can be dropped without running anything again. */
enum { KV_REWIND_REACH = 128 };

struct kv_ring {
    uint8_t *data;
    size_t row_bytes;
    uint32_t rows;
};

static inline void *kv_ring_row(const struct kv_ring *r, uint32_t position)
{
    return r->data + (size_t)(position % r->rows) * r->row_bytes;
}

struct kv_layer {
    struct kv_ring raw;
    uint8_t *comp, *index;           /* rows of comp_row_bytes, index_row_bytes */
    struct kv_ring half, index_half; /* a row: kv[w] then score[w] floats */
    uint32_t comp_rows;              /* capacity of comp and index: n_ctx / ratio */
    bool has_index;                  /* index rows are kept (they can matter within n_ctx) */
    bool has_comp;                   /* compressed rows are kept (at least one block fits n_ctx) */
};

struct kv_cache {
    const struct model_shape *shape;
    enum kern_kv kv;
    uint32_t n_ctx, n_batch;
    size_t raw_row_bytes, index_row_bytes;
    uint32_t n;                        /* tokens held */
    uint32_t high;                     /* highest token count since the last reset */
    uint32_t raw_floor, half_floor[2]; /* lowest intact positions; half: [0] ratio 4, [1] ratio 128 */
    struct kv_layer *layers;
    uint8_t *held; /* rows of `half` and `index_half` */
    void *memory;
    size_t memory_bytes;
};

/* Bytes that kv_cache_create takes; false when that overflows size_t. */
MC_MUST_CHECK bool kv_cache_bytes(const struct model_shape *s, enum kern_kv kv, uint32_t n_ctx, uint32_t n_batch,
                                  uint64_t *out);
/* The shape must outlive the cache. Zeroed. */
MC_MUST_CHECK enum mc_code kv_cache_init(struct kv_cache *c, const struct model_shape *s, enum kern_kv kv, uint32_t n_ctx,
                                         uint32_t n_batch, struct mc_err *err);
void kv_cache_deinit(struct kv_cache *c);

/* n tokens were written behind the held ones. */
void kv_cache_advance(struct kv_cache *c, uint32_t n);
/* kv_cache_hold keeps what a chunk of n <= n_batch tokens behind the held ones will overwrite of theirs; kv_cache_give_up,
 * after the chunk was written in part and is not to count, puts it back. */
void kv_cache_hold(struct kv_cache *c, uint32_t n);
void kv_cache_give_up(struct kv_cache *c, uint32_t n);
/* True when setting the token count to n needs nothing to be run again. */
bool kv_cache_can_rewind(const struct kv_cache *c, uint32_t n);
/* Sets the token count; kv_cache_can_rewind(c, n) must hold (n == 0 always does). */
void kv_cache_rewind(struct kv_cache *c, uint32_t n);

/* The state as one run of bytes, independent of n_batch. Same model, cache format and n_ctx only. */
uint64_t kv_cache_save_bytes(const struct kv_cache *c);
void kv_cache_save(const struct kv_cache *c, void *dst);
/* The saved state of n tokens. */
void kv_cache_load(struct kv_cache *c, const void *src, uint32_t n);

/* Cache bytes that the attention (and the indexer) of one token at `position` reads. */
uint64_t kv_cache_token_bytes(const struct kv_cache *c, uint32_t position);
/* True when at this position more compressed rows are visible than the indexer may choose. */
static inline bool kv_index_needed(const struct model_shape *s, uint32_t position)
{
    return (position + 1) / 4 > s->index_top_k;
}

#endif
