/* kv_cache.c - see kv_cache.h. One allocation; `layout` walks it once to count and once to place. */
#include "runtime/cache/kv_cache.h"

#include "platform/base/bytes.h"
#include "platform/os.h"

#include <stdlib.h>
#include <string.h>

struct place {
    uint8_t *base; /* NULL: only count */
    uint64_t at;
    bool overflow;
};

static uint8_t *take(struct place *p, uint64_t rows, uint64_t row_bytes)
{
    uint64_t bytes, end;
    if (!mc_mul_u64(rows, row_bytes, &bytes) || !mc_add_u64(bytes, KERN_ALIGN - 1, &bytes) ||
        !mc_add_u64(p->at, bytes & ~(uint64_t)(KERN_ALIGN - 1), &end) || end > SIZE_MAX / 2) {
        p->overflow = true;
        return NULL;
    }
    uint8_t *at = p->base ? p->base + p->at : NULL;
    p->at = end;
    return at;
}

static struct kv_ring take_ring(struct place *p, uint32_t rows, size_t row_bytes)
{
    return (struct kv_ring){take(p, rows, row_bytes), row_bytes, rows};
}

static uint32_t half_rows(uint32_t ratio)
{
    return (ratio == 4 ? 8 : ratio) + KV_REWIND_REACH;
}

static void layout(struct place *p, struct kv_layer *layers, uint8_t **held, const struct model_shape *s, enum kern_kv kv,
                   uint32_t n_ctx, uint32_t n_batch)
{
    uint64_t held_bytes = 0; /* of half_from(n) .. n - 1 at most, all layers */
    const size_t raw_bytes = kern_kv_row_bytes(kv, s->d_head), index_bytes = kern_kv_row_bytes(kv, s->d_index);
    const uint32_t raw_rows = s->window - 1 + KV_REWIND_REACH + n_batch;
    for (uint32_t il = 0; il < s->n_layer; il++) {
        struct kv_layer l = {0};
        const uint32_t ratio = s->ratio[il];
        l.raw = take_ring(p, raw_rows < n_ctx ? raw_rows : n_ctx, raw_bytes);
        l.has_comp = ratio && n_ctx >= ratio;
        if (l.has_comp) {
            l.comp_rows = n_ctx / ratio;
            l.comp = take(p, l.comp_rows, raw_bytes);
            const size_t width = (size_t)s->d_head * (ratio == 4 ? 2 : 1);
            l.half = take_ring(p, half_rows(ratio), 2 * width * sizeof(float));
        }
        /* Up to here every visible row is chosen anyway: no index row is ever read. */
        l.has_index = ratio == 4 && kv_index_needed(s, n_ctx - 1);
        if (l.has_index) {
            l.index = take(p, l.comp_rows, index_bytes);
            l.index_half = take_ring(p, half_rows(4), 2 * 2 * (size_t)s->d_index * sizeof(float));
        }
        if (ratio) held_bytes += (uint64_t)(ratio == 4 ? 7 : ratio - 1) * (l.half.row_bytes + l.index_half.row_bytes);
        if (layers) layers[il] = l;
    }
    *held = take(p, 1, held_bytes);
}

bool kv_cache_bytes(const struct model_shape *s, enum kern_kv kv, uint32_t n_ctx, uint32_t n_batch, uint64_t *out)
{
    struct place p = {0};
    uint8_t *held;
    layout(&p, NULL, &held, s, kv, n_ctx, n_batch);
    *out = p.at;
    return !p.overflow;
}

enum mc_code kv_cache_init(struct kv_cache *c, const struct model_shape *s, enum kern_kv kv, uint32_t n_ctx, uint32_t n_batch,
                           struct mc_err *err)
{
    uint64_t bytes;
    memset(c, 0, sizeof *c);
    if (!kv_cache_bytes(s, kv, n_ctx, n_batch, &bytes))
        return mc_fail(err, MC_ENOMEM, 0, "a context of %u tokens is larger than the address space", (unsigned)n_ctx);
    c->shape = s;
    c->kv = kv;
    c->n_ctx = n_ctx;
    c->n_batch = n_batch;
    c->raw_row_bytes = kern_kv_row_bytes(kv, s->d_head);
    c->index_row_bytes = kern_kv_row_bytes(kv, s->d_index);
    c->memory_bytes = (size_t)bytes;
    c->layers = calloc(s->n_layer, sizeof *c->layers);
    if (!c->layers) return mc_fail(err, MC_ENOMEM, 0, "out of memory for the cache of %u layers", (unsigned)s->n_layer);
    const enum mc_code code = os_mem_alloc(c->memory_bytes, OS_MEM_HUGE, "kv cache", &c->memory, err);
    if (code) {
        kv_cache_deinit(c);
        return code;
    }
    struct place p = {.base = c->memory};
    layout(&p, c->layers, &c->held, s, kv, n_ctx, n_batch);
    return MC_OK;
}

void kv_cache_deinit(struct kv_cache *c)
{
    free(c->layers);
    if (c->memory) os_mem_free(c->memory, c->memory_bytes);
    memset(c, 0, sizeof *c);
}

static uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static uint32_t sub_or_0(uint32_t a, uint32_t b)
{
    return a > b ? a - b : 0;
}

static uint32_t raw_rows(const struct kv_cache *c)
{
    return c->layers[0].raw.rows;
}

void kv_cache_advance(struct kv_cache *c, uint32_t n)
{
    c->n += n;
    c->high = max_u32(c->high, c->n);
    c->raw_floor = max_u32(c->raw_floor, sub_or_0(c->high, raw_rows(c)));
    c->half_floor[0] = max_u32(c->half_floor[0], sub_or_0(c->high, half_rows(4)));
    c->half_floor[1] = max_u32(c->half_floor[1], sub_or_0(c->high, half_rows(128)));
}

/* First position of the half-filled state that continuing at n needs. */
static uint32_t half_from(uint32_t n, unsigned kind)
{
    return kind == 0 ? sub_or_0(n / 4 * 4, 4) : n / 128 * 128;
}

bool kv_cache_can_rewind(const struct kv_cache *c, uint32_t n)
{
    if (n == 0 || n == c->n) return true;
    return n <= c->n && sub_or_0(n, c->shape->window - 1) >= c->raw_floor && half_from(n, 0) >= c->half_floor[0] &&
           half_from(n, 1) >= c->half_floor[1];
}

void kv_cache_rewind(struct kv_cache *c, uint32_t n)
{
    c->n = n;
    if (n == 0) c->high = c->raw_floor = c->half_floor[0] = c->half_floor[1] = 0;
}

/* ---- saving: the rows that are intact and can matter, layer by layer ---- */

struct walk {
    uint8_t *mem; /* saved bytes; NULL: only count */
    uint64_t at;
    bool load;
};

static void pass(struct walk *w, void *live, size_t bytes)
{
    if (w->mem && w->load) memcpy(live, w->mem + w->at, bytes);
    if (w->mem && !w->load) memcpy(w->mem + w->at, live, bytes);
    w->at += bytes;
}

static void pass_ring(struct walk *w, const struct kv_ring *r, uint32_t from, uint32_t to)
{
    for (uint32_t p = from; p < to; p++) pass(w, kv_ring_row(r, p), r->row_bytes);
}

/* What continuing at n needs, in front of position to[kind]. */
static void pass_halves(struct walk *w, const struct kv_cache *c, uint32_t n, const uint32_t to[2])
{
    for (uint32_t il = 0; il < c->shape->n_layer; il++) {
        const struct kv_layer *l = &c->layers[il];
        const unsigned kind = c->shape->ratio[il] == 128;
        if (l->has_comp) pass_ring(w, &l->half, half_from(n, kind), to[kind]);
        if (l->has_index) pass_ring(w, &l->index_half, half_from(n, kind), to[kind]);
    }
}

static void pass_state(struct walk *w, const struct kv_cache *c, uint32_t n)
{
    const uint32_t raw_from = max_u32(c->raw_floor, sub_or_0(n, c->shape->window - 1));
    for (uint32_t il = 0; il < c->shape->n_layer; il++) {
        const struct kv_layer *l = &c->layers[il];
        const uint32_t ratio = c->shape->ratio[il];
        pass_ring(w, &l->raw, raw_from, n);
        if (!l->has_comp) continue;
        pass(w, l->comp, (size_t)(n / ratio) * c->raw_row_bytes);
        if (l->has_index) pass(w, l->index, (size_t)(n / ratio) * c->index_row_bytes);
    }
    pass_halves(w, c, n, (const uint32_t[2]){n, n});
}

uint64_t kv_cache_save_bytes(const struct kv_cache *c)
{
    struct walk w = {0};
    pass_state(&w, c, c->n);
    return w.at;
}

void kv_cache_save(const struct kv_cache *c, void *dst)
{
    struct walk w = {.mem = dst};
    pass_state(&w, c, c->n);
}

void kv_cache_load(struct kv_cache *c, const void *src, uint32_t n)
{
    struct walk w = {.mem = (uint8_t *)(uintptr_t)src, .load = true};
    kv_cache_rewind(c, 0);
    pass_state(&w, c, n);
    c->n = c->high = n;
    c->raw_floor = sub_or_0(n, c->shape->window - 1);
    c->half_floor[0] = half_from(n, 0);
    c->half_floor[1] = half_from(n, 1);
}

/* Halves in front of to[kind] are those whose rows a chunk of n tokens overwrites: none for a short one, such as every token of
 * an answer. */
static void overwritten(const struct kv_cache *c, uint32_t n, uint32_t to[2])
{
    for (unsigned kind = 0; kind < 2; kind++) {
        to[kind] = sub_or_0(c->n + n, half_rows(kind ? 128 : 4));
        if (to[kind] > c->n) to[kind] = c->n;
    }
}

void kv_cache_hold(struct kv_cache *c, uint32_t n)
{
    struct walk w = {.mem = c->held};
    uint32_t to[2];
    overwritten(c, n, to);
    pass_halves(&w, c, c->n, to);
}

/* The rings of raw rows have room for a whole chunk beside the window; those of halves were held. */
void kv_cache_give_up(struct kv_cache *c, uint32_t n)
{
    struct walk w = {.mem = c->held, .load = true};
    uint32_t to[2];
    overwritten(c, n, to);
    pass_halves(&w, c, c->n, to);
    c->raw_floor = max_u32(c->raw_floor, sub_or_0(c->n + n, raw_rows(c)));
    for (unsigned kind = 0; kind < 2; kind++) { /* from half_from on they were put back */
        const uint32_t from = half_from(c->n, kind);
        c->half_floor[kind] = max_u32(c->half_floor[kind], to[kind] < from ? to[kind] : from);
    }
}

uint64_t kv_cache_token_bytes(const struct kv_cache *c, uint32_t position)
{
    const struct model_shape *s = c->shape;
    const uint64_t raw = position + 1 < s->window ? position + 1 : s->window;
    uint64_t rows = 0, index_rows = 0;
    for (uint32_t il = 0; il < s->n_layer; il++) {
        const uint32_t ratio = s->ratio[il];
        const uint64_t visible = ratio ? (position + 1) / ratio : 0;
        const bool chosen = ratio == 4 && visible > s->index_top_k;
        rows += raw + (chosen ? s->index_top_k : visible);
        index_rows += chosen ? visible : 0;
    }
    return rows * c->raw_row_bytes + index_rows * c->index_row_bytes;
}
