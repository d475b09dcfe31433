/* expert_rank.h - which experts are worth their memory: pure arithmetic, one thread at a time.
 *
 * The worth of an expert is the number of its uses, each counted half as much with every `half_life` tokens that have passed
 * since: frequency and recency in one number (the LRFU rule). All worths decay alike, so their order changes only at a use and
 * the least one can be kept in a heap. */
#ifndef IO_EXPERTS_EXPERT_RANK_H
#define IO_EXPERTS_EXPERT_RANK_H

#include "platform/base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* Worths as logarithms to the base 2, so that they neither overflow nor have to be scaled down as time passes. */
struct expert_rank {
    double *worth; /* [n]; -HUGE_VAL: never used */
    uint32_t n;
    double now; /* tokens / half_life */
    double step;
};

MC_MUST_CHECK enum mc_code expert_rank_init(struct expert_rank *r, uint32_t n, double half_life, struct mc_err *err);
void expert_rank_deinit(struct expert_rank *r);
/* n more tokens have passed. */
void expert_rank_pass(struct expert_rank *r, double tokens);
/* x was used; weight 1 is one token. */
void expert_rank_use(struct expert_rank *r, uint32_t x, double weight);

/* Some of the members, least worth first. A member's worth must not change while it is in: take it out, use it, put it back. */
struct expert_heap {
    const struct expert_rank *rank;
    uint32_t *at;    /* [cap] members, each above its two followers */
    uint32_t *place; /* [rank->n] where in `at`, UINT32_MAX: not in; shared by heaps without a member in common */
    uint32_t n;
};

void expert_heap_put(struct expert_heap *h, uint32_t x);
void expert_heap_remove(struct expert_heap *h, uint32_t x); /* must be in */
static inline bool expert_heap_has(const struct expert_heap *h, uint32_t x)
{
    return h->place[x] != UINT32_MAX;
}

#endif
