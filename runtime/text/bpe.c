/* bpe.c - see bpe.h
 *
 * Two ways, one result. Pieces of up to SHORT symbols (nearly all) keep the rank of every pair in a small array and look for
 * the lowest by walking over it. Longer ones keep a linked list of symbols and a binary heap of (rank, place): a heap entry is
 * stale, and skipped, when the pair at its place has another rank by now. A pair that comes back with the same rank is the
 * same merge again, so nothing else has to be remembered. */
#include "runtime/text/bpe.h"

#include <stdlib.h>
#include <string.h>

#define SHORT   32
#define NO_RANK UINT32_MAX
#define NOWHERE UINT32_MAX

/* Rank and result of a pair of neighbours; NO_RANK if they have no merge. */
struct bpe_pair {
    uint32_t rank;
    int32_t result;
};

/* A node of the linked list. */
struct bpe_symbol {
    int32_t id;
    uint32_t prev, next;  /* NOWHERE at the ends */
    struct bpe_pair pair; /* this symbol and the next */
};

static size_t slot_of(const struct bpe *b, int32_t left, int32_t right)
{
    const uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    return (size_t)((key * 0x9E3779B97F4A7C15u) >> 20) & b->mask;
}

enum mc_code bpe_init(struct bpe *b, size_t n_merges, struct mc_err *err)
{
    size_t n = 16;
    while (n < 2 * n_merges) n *= 2;
    b->mask = n - 1;
    b->slots = malloc(n * sizeof *b->slots);
    if (!b->slots) return mc_fail(err, MC_ENOMEM, 0, "no memory for %zu merges of the tokenizer", n_merges);
    for (size_t i = 0; i < n; i++) b->slots[i] = (struct bpe_merge){-1, -1, NO_RANK, -1};
    return MC_OK;
}

void bpe_deinit(struct bpe *b)
{
    free(b->slots);
    b->slots = NULL;
}

bool bpe_add(struct bpe *b, struct bpe_merge merge)
{
    size_t i = slot_of(b, merge.left, merge.right);
    for (; b->slots[i].left >= 0; i = (i + 1) & b->mask)
        if (b->slots[i].left == merge.left && b->slots[i].right == merge.right) return false;
    b->slots[i] = merge;
    return true;
}

const struct bpe_merge *bpe_find(const struct bpe *b, int32_t left, int32_t right)
{
    for (size_t i = slot_of(b, left, right); b->slots[i].left >= 0; i = (i + 1) & b->mask)
        if (b->slots[i].left == left && b->slots[i].right == right) return &b->slots[i];
    return NULL;
}

void bpe_scratch_init(struct bpe_scratch *s)
{
    memset(s, 0, sizeof *s);
}

void bpe_scratch_deinit(struct bpe_scratch *s)
{
    free(s->symbols);
    free(s->heap);
    bpe_scratch_init(s);
}

static bool must_stop(struct bpe_scratch *s)
{
    return (++s->steps & 0xFFFF) == 0 && s->stop && s->stop(s->stop_user);
}

static struct bpe_pair pair_of(const struct bpe *b, int32_t left, int32_t right)
{
    const struct bpe_merge *const m = bpe_find(b, left, right);
    return m ? (struct bpe_pair){m->rank, m->result} : (struct bpe_pair){NO_RANK, -1};
}

static size_t encode_short(const struct bpe *b, int32_t *ids, size_t n)
{
    struct bpe_pair pair[SHORT]; /* of ids[i], ids[i + 1] */
    for (size_t i = 0; i + 1 < n; i++) pair[i] = pair_of(b, ids[i], ids[i + 1]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (pair[i].rank < pair[best].rank) best = i;
        if (pair[best].rank == NO_RANK) break;
        ids[best] = pair[best].result;
        memmove(ids + best + 1, ids + best + 2, (n - best - 2) * sizeof *ids);
        memmove(pair + best, pair + best + 1, (n - best - 2) * sizeof *pair);
        n--;
        if (best > 0) pair[best - 1] = pair_of(b, ids[best - 1], ids[best]);
        if (best + 1 < n) pair[best] = pair_of(b, ids[best], ids[best + 1]);
    }
    return n;
}

static bool heap_push(struct bpe_scratch *s, uint64_t entry)
{
    if (s->heap_size == s->heap_capacity) {
        const size_t capacity = s->heap_capacity ? 2 * s->heap_capacity : 1024;
        uint64_t *const heap = capacity > SIZE_MAX / sizeof *heap ? NULL : realloc(s->heap, capacity * sizeof *heap);
        if (!heap) return false;
        s->heap = heap;
        s->heap_capacity = capacity;
    }
    size_t i = s->heap_size++;
    for (; i > 0 && s->heap[(i - 1) / 2] > entry; i = (i - 1) / 2) s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = entry;
    return true;
}

static uint64_t heap_pop(struct bpe_scratch *s)
{
    uint64_t *const h = s->heap;
    const uint64_t top = h[0], last = h[--s->heap_size];
    size_t i = 0;
    for (size_t child = 1; child < s->heap_size; child = 2 * i + 1) {
        if (child + 1 < s->heap_size && h[child + 1] < h[child]) child++;
        if (h[child] >= last) break;
        h[i] = h[child];
        i = child;
    }
    h[i] = last;
    return top;
}

/* Looks the pair that begins at `at` up again and puts it on the heap. */
static bool renew_pair(const struct bpe *b, struct bpe_scratch *s, uint32_t at)
{
    struct bpe_symbol *const y = &s->symbols[at];
    y->pair = y->next == NOWHERE ? (struct bpe_pair){NO_RANK, -1} : pair_of(b, y->id, s->symbols[y->next].id);
    return y->pair.rank == NO_RANK || heap_push(s, (uint64_t)y->pair.rank << 32 | at);
}

static enum mc_code encode_long(const struct bpe *b, int32_t *ids, size_t *n, struct bpe_scratch *s)
{
    if (s->symbols_capacity < *n) {
        struct bpe_symbol *const y = *n > SIZE_MAX / sizeof *y ? NULL : realloc(s->symbols, *n * sizeof *y);
        if (!y) return MC_ENOMEM;
        s->symbols = y;
        s->symbols_capacity = *n;
    }
    s->heap_size = 0;
    const uint32_t count = (uint32_t)*n;
    for (uint32_t i = 0; i < count; i++)
        s->symbols[i] = (struct bpe_symbol){ids[i], i ? i - 1 : NOWHERE, i + 1 < count ? i + 1 : NOWHERE, {NO_RANK, -1}};
    for (uint32_t i = 0; i < count; i++)
        if (!renew_pair(b, s, i)) return MC_ENOMEM;
    while (s->heap_size > 0) {
        if (must_stop(s)) return MC_ECANCELLED;
        const uint64_t entry = heap_pop(s);
        const uint32_t at = (uint32_t)entry;
        struct bpe_symbol *const y = &s->symbols[at];
        if (y->pair.rank == NO_RANK || y->pair.rank != (uint32_t)(entry >> 32)) continue;
        struct bpe_symbol *const gone = &s->symbols[y->next];
        y->id = y->pair.result;
        y->next = gone->next;
        gone->pair.rank = NO_RANK; /* its entries are stale from now on */
        if (y->next != NOWHERE) s->symbols[y->next].prev = at;
        if (!renew_pair(b, s, at) || (y->prev != NOWHERE && !renew_pair(b, s, y->prev))) return MC_ENOMEM;
    }
    size_t kept = 0;
    for (uint32_t i = 0; i != NOWHERE; i = s->symbols[i].next) ids[kept++] = s->symbols[i].id;
    *n = kept;
    return MC_OK;
}

enum mc_code bpe_encode(const struct bpe *b, int32_t *ids, size_t *n, struct bpe_scratch *s, struct mc_err *err)
{
    enum mc_code code = must_stop(s) ? MC_ECANCELLED : MC_OK;
    if (!code && *n <= SHORT)
        *n = encode_short(b, ids, *n);
    else if (!code)
        code = encode_long(b, ids, n, s);
    if (code == MC_ENOMEM) return mc_fail(err, MC_ENOMEM, 0, "tokenizer: no memory for a piece of %zu bytes", *n);
    return code ? mc_fail(err, code, 0, "interrupted") : MC_OK;
}
