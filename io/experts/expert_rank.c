/* expert_rank.c - see expert_rank.h */
#include "io/experts/expert_rank.h"

#include <math.h>
#include <stdlib.h>

enum mc_code expert_rank_init(struct expert_rank *r, uint32_t n, double half_life, struct mc_err *err)
{
    *r = (struct expert_rank){.worth = malloc((n + 1) * sizeof *r->worth), .n = n, .step = 1 / half_life};
    if (!r->worth) return mc_fail(err, MC_ENOMEM, 0, "no memory for the ranks of %u experts", (unsigned)n);
    for (uint32_t i = 0; i < n; i++) r->worth[i] = -HUGE_VAL;
    return MC_OK;
}

void expert_rank_deinit(struct expert_rank *r)
{
    free(r->worth);
    *r = (struct expert_rank){0};
}

void expert_rank_pass(struct expert_rank *r, double tokens)
{
    r->now += tokens * r->step;
}

void expert_rank_use(struct expert_rank *r, uint32_t x, double weight)
{
    const double more = r->now + log2(weight), old = r->worth[x];
    const double larger = more > old ? more : old, less = more > old ? old : more;
    r->worth[x] = larger + log1p(exp2(less - larger)) * (1 / log(2.0));
}

static bool before(const struct expert_heap *h, uint32_t x, uint32_t y)
{
    return h->rank->worth[x] < h->rank->worth[y];
}

static void settle(struct expert_heap *h, uint32_t i, uint32_t x)
{
    h->at[i] = x;
    h->place[x] = i;
}

/* x goes to place i, or from there as far up or down as it has to. */
static void sift(struct expert_heap *h, uint32_t i, uint32_t x)
{
    for (; i > 0 && before(h, x, h->at[(i - 1) / 2]); i = (i - 1) / 2) settle(h, i, h->at[(i - 1) / 2]);
    for (;;) {
        uint32_t next = 2 * i + 1;
        if (next >= h->n) break;
        if (next + 1 < h->n && before(h, h->at[next + 1], h->at[next])) next++;
        if (!before(h, h->at[next], x)) break;
        settle(h, i, h->at[next]);
        i = next;
    }
    settle(h, i, x);
}

void expert_heap_put(struct expert_heap *h, uint32_t x)
{
    sift(h, h->n++, x);
}

void expert_heap_remove(struct expert_heap *h, uint32_t x)
{
    const uint32_t i = h->place[x], last = h->at[--h->n];
    h->place[x] = UINT32_MAX;
    if (last != x) sift(h, i, last);
}
