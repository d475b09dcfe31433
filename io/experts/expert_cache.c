/* expert_cache.c - see expert_cache.h
 *
 *   region:  | shelf 0: slot slot slot ... | shelf 1: slot ... |      one shelf for each size of experts
 *   slot:    |gate window ....|up window ....|down window ....|       multiples of OS_READ_ALIGN around each slice
 *
 *   expert   ABSENT -> COMING -> READY -> ABSENT        only the owner moves it; the reader thread only tells what has landed
 *
 * READY experts that nobody has borrowed are in their shelf's heap, least worth first; so what is borrowed or on its way cannot
 * be found when a slot is wanted. Every step is O(log experts). */
#include "io/experts/expert_cache.h"

#include "io/experts/expert_rank.h"
#include "platform/os.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum {
    IN_FLIGHT_SLOTS = 2, /* beside those in use: the least that lets the disk work while the others are borrowed */
    SHELVES_MAX = 16,    /* more sizes share the next larger slots */
};
#define NONE UINT32_MAX
/* A wrong guess makes demands wait for its bytes, a right one saves the time that the disk would have been idle, which is
 * shorter: most must be right. Looked at every so many guesses; if they do not pay, nobody guesses for so many tokens. */
enum { GUESS_WINDOW = 64, GUESS_PAUSE = 1024 };
static const double guesses_right = 0.6;
enum { PINNED_PART = 4, PINNED_USES = 8 }; /* at most every fourth slot, and at least so many uses in the run before */

enum { ABSENT, COMING, READY };

struct expert {
    uint32_t slot; /* of its shelf; NONE: absent */
    uint8_t state, reads_left;
    bool borrowed, failed;
    bool guessed; /* read for an uncertain wish, not demanded yet */
    bool kept;    /* read for a certain one, likewise */
    bool pinned;  /* much used in earlier runs: never evicted */
    bool again;   /* demanded when a part of it had failed for somebody else already: to be read once more */
};

struct layer {
    struct expert_layer files;
    size_t piece_off[EXPERT_PIECES];
    unsigned shelf;
    uint64_t hits, misses;
};

struct shelf {
    size_t slot_bytes;
    uint64_t off; /* in the region */
    uint32_t n_experts, n_slots, n_free;
    uint32_t *free;
    struct expert_heap heap;
};

struct expert_cache {
    const struct gguf *g;
    struct expert_cache_options opt;
    struct layer *layers;
    struct expert *experts; /* [layer][expert] */
    struct shelf shelf[SHELVES_MAX];
    unsigned n_shelves;
    struct expert_rank rank;
    uint32_t *heap_place, *heap_at, *free;
    struct os_region *region;
    struct expert_reads *reads;
    struct expert_counts counts;
    struct mc_err error; /* code MC_OK: none */
    unsigned coming_demands;
    unsigned n_kept; /* by certain wishes */
    unsigned n_pinned;
    void (*told)(void *user, unsigned layer, uint32_t expert);
    void *told_user;
    struct {
        uint64_t wishes, used; /* when the window began */
        double pause;          /* tokens to go */
    } guess;
};

/* ---- sizes ----------------------------------------------------------------------------------------------------------- */

/* Of a window around a slice of any place in a file. */
static size_t window_bytes(size_t slice)
{
    return mc_round_up(slice + WEIGHTS_OVERREAD_BYTES, OS_READ_ALIGN) + OS_READ_ALIGN;
}

static size_t slot_bytes_of(const struct expert_layer *l)
{
    size_t sum = 0;
    for (unsigned p = 0; p < EXPERT_PIECES; p++) sum += window_bytes(l->bytes[p]);
    return sum;
}

static int larger_first(const void *a, const void *b)
{
    const size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x < y) - (x > y);
}

/* Sizes of slots, largest first; returns how many. A layer uses the smallest that holds its experts. */
static unsigned shelf_sizes(const struct expert_cache_options *opt, size_t sizes[SHELVES_MAX])
{
    size_t *const all = malloc((opt->n_layers + 1) * sizeof *all);
    unsigned n = 0;
    if (!all) { /* one size for all is right as well */
        sizes[0] = 0;
        for (unsigned il = 0; il < opt->n_layers; il++)
            if (slot_bytes_of(&opt->layers[il]) > sizes[0]) sizes[0] = slot_bytes_of(&opt->layers[il]);
        return 1;
    }
    for (unsigned il = 0; il < opt->n_layers; il++) all[il] = slot_bytes_of(&opt->layers[il]);
    qsort(all, opt->n_layers, sizeof *all, larger_first);
    for (unsigned i = 0; i < opt->n_layers; i++) {
        if (n && (all[i] == sizes[n - 1] || n == SHELVES_MAX)) continue;
        if (n && all[i] > sizes[n - 1] / 32 * 31) continue; /* hardly smaller */
        sizes[n++] = all[i];
    }
    free(all);
    return n;
}

static unsigned shelf_of(const size_t *sizes, unsigned n, size_t bytes)
{
    unsigned s = n - 1;
    while (sizes[s] < bytes) s--;
    return s;
}

static uint32_t least_slots(const struct expert_cache_options *opt)
{
    return opt->n_used + IN_FLIGHT_SLOTS;
}

/* Experts that use each size. */
static unsigned shelf_plan(const struct expert_cache_options *opt, size_t sizes[SHELVES_MAX], uint64_t experts[SHELVES_MAX])
{
    const unsigned n = shelf_sizes(opt, sizes);
    memset(experts, 0, SHELVES_MAX * sizeof *experts);
    for (unsigned il = 0; il < opt->n_layers; il++)
        experts[shelf_of(sizes, n, slot_bytes_of(&opt->layers[il]))] += opt->n_expert;
    return n;
}

static uint64_t least_of(const struct expert_cache_options *opt, uint64_t experts)
{
    return experts < least_slots(opt) ? experts : least_slots(opt);
}

void expert_cache_sizes(const struct expert_cache_options *opt, uint64_t *least, uint64_t *all)
{
    size_t sizes[SHELVES_MAX];
    uint64_t experts[SHELVES_MAX];
    const unsigned n = shelf_plan(opt, sizes, experts);
    *least = *all = 0;
    for (unsigned s = 0; s < n; s++) {
        *least += least_of(opt, experts[s]) * sizes[s];
        *all += experts[s] * sizes[s];
    }
}

/* ---- making ---------------------------------------------------------------------------------------------------------- */

static struct expert *expert_at(const struct expert_cache *c, unsigned layer, uint32_t expert)
{
    return &c->experts[(size_t)layer * c->opt.n_expert + expert];
}

static uint32_t id_of(const struct expert_cache *c, unsigned layer, uint32_t expert)
{
    return layer * c->opt.n_expert + expert;
}

static struct shelf *shelf_at(struct expert_cache *c, unsigned layer)
{
    return &c->shelf[c->layers[layer].shelf];
}

/* Every layer gets the same share of its experts; what rounding leaves goes to nobody. */
static void cut_shelves(struct expert_cache *c)
{
    size_t sizes[SHELVES_MAX];
    uint64_t experts[SHELVES_MAX], least, all, off = 0;
    c->n_shelves = shelf_plan(&c->opt, sizes, experts);
    expert_cache_sizes(&c->opt, &least, &all);
    const double share = all > least ? (double)(c->opt.bytes - least) / (double)(all - least) : 0;
    for (unsigned s = 0; s < c->n_shelves; s++) {
        struct shelf *const x = &c->shelf[s];
        const uint64_t min = least_of(&c->opt, experts[s]);
        x->slot_bytes = sizes[s];
        x->n_experts = (uint32_t)experts[s];
        x->n_slots = (uint32_t)(min + (uint64_t)((double)(experts[s] - min) * (share < 1 ? share : 1)));
        x->off = off;
        off += (uint64_t)x->n_slots * x->slot_bytes;
    }
    for (unsigned il = 0; il < c->opt.n_layers; il++) {
        struct layer *const l = &c->layers[il];
        size_t at = 0;
        l->files = c->opt.layers[il];
        l->shelf = shelf_of(sizes, c->n_shelves, slot_bytes_of(&l->files));
        for (unsigned p = 0; p < EXPERT_PIECES; p++) {
            l->piece_off[p] = at;
            at += window_bytes(l->files.bytes[p]);
        }
    }
}

static uint64_t n_slots(const struct expert_cache *c)
{
    uint64_t n = 0;
    for (unsigned s = 0; s < c->n_shelves; s++) n += c->shelf[s].n_slots;
    return n;
}

static uint64_t slots_bytes(const struct expert_cache *c)
{
    const struct shelf *const last = &c->shelf[c->n_shelves - 1];
    return last->off + (uint64_t)last->n_slots * last->slot_bytes;
}

static void empty_shelves(struct expert_cache *c)
{
    uint32_t at = 0;
    for (unsigned s = 0; s < c->n_shelves; s++) {
        struct shelf *const x = &c->shelf[s];
        x->free = c->free + at;
        x->heap = (struct expert_heap){.rank = &c->rank, .at = c->heap_at + at, .place = c->heap_place};
        for (x->n_free = 0; x->n_free < x->n_slots; x->n_free++) x->free[x->n_free] = x->n_slots - 1 - x->n_free;
        at += x->n_slots;
    }
    for (uint32_t i = 0; i < c->rank.n; i++) {
        c->experts[i] = (struct expert){.slot = NONE, .pinned = c->experts[i].pinned};
        c->heap_place[i] = UINT32_MAX;
    }
    c->n_kept = c->coming_demands = 0;
}

enum mc_code expert_cache_create(const struct gguf *g, const struct expert_cache_options *opt, struct expert_cache **out,
                                 struct mc_err *err)
{
    uint64_t least, all;
    expert_cache_sizes(opt, &least, &all);
    if (opt->bytes < least)
        return mc_fail(err, MC_ENOMEM, 0,
                       "%" PRIu64 " MiB are too few for routed experts that are read from the file; %" PRIu64
                       " MiB is the least for this model",
                       opt->bytes >> 20, (least >> 20) + 1);
    struct expert_cache *c = calloc(1, sizeof *c);
    if (!c) return mc_fail(err, MC_ENOMEM, 0, "no memory for the cache of experts");
    const uint32_t n = opt->n_layers * opt->n_expert;
    c->g = g;
    c->opt = *opt;
    c->layers = calloc(opt->n_layers, sizeof *c->layers);
    c->experts = calloc(n, sizeof *c->experts);
    c->heap_place = malloc(n * sizeof *c->heap_place);
    enum mc_code code = expert_rank_init(&c->rank, n, EXPERT_HALF_LIFE, err);
    if (!code && (!c->layers || !c->experts || !c->heap_place))
        code = mc_fail(err, MC_ENOMEM, 0, "no memory for the list of experts");
    if (!code) {
        cut_shelves(c);
        c->heap_at = malloc(n_slots(c) * sizeof *c->heap_at);
        c->free = malloc(n_slots(c) * sizeof *c->free);
        if (!c->heap_at || !c->free) code = mc_fail(err, MC_ENOMEM, 0, "no memory for the list of slots");
    }
    if (!code) {
        empty_shelves(c);
        code = os_region_create((size_t)slots_bytes(c) + WEIGHTS_OVERREAD_BYTES, opt->huge, "expert cache", &c->region, err);
    }
    c->opt.layers = NULL; /* the caller's */
    if (code)
        expert_cache_destroy(c);
    else
        *out = c;
    return code;
}

struct os_region *expert_cache_region(struct expert_cache *c)
{
    return c->region;
}

static size_t average_slice(const struct expert_cache *c)
{
    uint64_t sum = 0;
    for (unsigned il = 0; il < c->opt.n_layers; il++)
        for (unsigned p = 0; p < EXPERT_PIECES; p++) sum += c->layers[il].files.bytes[p];
    const uint64_t n = (uint64_t)c->opt.n_layers * EXPERT_PIECES;
    return mc_round_up((size_t)(sum / (n ? n : 1)), OS_READ_ALIGN);
}

enum mc_code expert_cache_start(struct expert_cache *c, const struct weights *w, struct mc_err *err)
{
    return expert_reads_open(c->g, w, c->opt.io, os_region_data(c->region), (size_t)slots_bytes(c), average_slice(c),
                             c->opt.fault, &c->reads, err);
}

void expert_cache_destroy(struct expert_cache *c)
{
    if (!c) return;
    expert_reads_close(c->reads);
    os_region_destroy(c->region);
    expert_rank_deinit(&c->rank);
    free(c->layers);
    free(c->experts);
    free(c->heap_place);
    free(c->heap_at);
    free(c->free);
    free(c);
}

/* ---- slots ----------------------------------------------------------------------------------------------------------- */

static uint8_t *slot_of(const struct expert_cache *c, unsigned layer, const struct expert *x)
{
    const struct shelf *const s = &c->shelf[c->layers[layer].shelf];
    return os_region_data(c->region) + s->off + (size_t)x->slot * s->slot_bytes;
}

static void vacate(struct shelf *s, struct expert *x)
{
    s->free[s->n_free++] = x->slot;
    x->slot = NONE;
    x->state = ABSENT;
    x->guessed = false;
}

/* A slot that is free or becomes it; NONE if all are borrowed or coming. below: only at the cost of experts worth less. */
static uint32_t take_slot(struct expert_cache *c, unsigned layer, double below)
{
    struct shelf *const s = shelf_at(c, layer);
    if (!s->n_free) {
        if (!s->heap.n || c->rank.worth[s->heap.at[0]] >= below) return NONE;
        const uint32_t victim = s->heap.at[0];
        expert_heap_remove(&s->heap, victim);
        vacate(s, &c->experts[victim]);
    }
    return s->free[--s->n_free];
}

/* Idle experts are in the heap, others are not. */
static void shelve(struct expert_cache *c, unsigned layer, uint32_t id)
{
    struct shelf *const s = shelf_at(c, layer);
    const struct expert *const x = &c->experts[id];
    const bool idle = x->state == READY && !x->borrowed && !x->kept && !x->pinned, in = expert_heap_has(&s->heap, id);
    if (idle && !in) expert_heap_put(&s->heap, id);
    if (!idle && in) expert_heap_remove(&s->heap, id);
}

/* ---- the disk -------------------------------------------------------------------------------------------------------- */

static void keep_error(struct expert_cache *c, const struct mc_err *err)
{
    if (!c->error.code) c->error = *err;
}

static void unkeep(struct expert_cache *c, struct expert *x)
{
    if (x->kept) c->n_kept--;
    x->kept = false;
}

static void fetch(struct expert_cache *c, unsigned layer, uint32_t id, uint32_t slot);

static void land(struct expert_cache *c, uint32_t id, bool failed)
{
    struct expert *const x = &c->experts[id];
    const unsigned layer = id / c->opt.n_expert;
    if (failed) x->failed = true;
    if (--x->reads_left > 0) return;
    if (x->borrowed) c->coming_demands--;
    if (x->failed && x->again) {
        fetch(c, layer, id, x->slot);
        return;
    }
    if (x->failed && x->kept) unkeep(c, x);
    if (x->failed)
        vacate(shelf_at(c, layer), x);
    else
        x->state = READY;
    shelve(c, layer, id);
}

static void take_landed(struct expert_cache *c)
{
    struct expert_landed l;
    struct mc_err err;
    while (expert_reads_landed(c->reads, &l, &err)) {
        if (l.code && c->experts[l.tag].borrowed) keep_error(c, &err); /* a wish that fails is a demand that tries again */
        land(c, l.tag, l.code != MC_OK);
    }
}

/* Starts reading an absent expert into a slot that was taken for it. */
static void fetch(struct expert_cache *c, unsigned layer, uint32_t id, uint32_t slot)
{
    struct expert *const x = &c->experts[id];
    const struct layer *const l = &c->layers[layer];
    struct mc_err err;
    x->slot = slot;
    x->state = COMING;
    x->failed = x->again = false;
    x->reads_left = EXPERT_PIECES;
    if (x->borrowed) c->coming_demands++;
    uint8_t *const memory = slot_of(c, layer, x);
    for (unsigned p = 0; p < EXPERT_PIECES; p++) {
        const struct gguf_tensor *const t = gguf_tensor_at(c->g, l->files.tensor_idx[p]);
        const uint64_t at = t->file_off + (uint64_t)(id % c->opt.n_expert) * l->files.bytes[p];
        const uint64_t begin = at / OS_READ_ALIGN * OS_READ_ALIGN;
        const size_t need = (size_t)(at - begin) + l->files.bytes[p];
        const struct expert_read r = {t->part, begin, mc_round_up(need, OS_READ_ALIGN), need, memory + l->piece_off[p], id};
        if (!expert_reads_start(c->reads, &r, &err)) continue;
        if (x->borrowed) keep_error(c, &err);
        land(c, id, true);
    }
}

static bool disk_has_room(const struct expert_cache *c)
{
    return expert_reads_free(c->reads) >= EXPERT_PIECES;
}

/* ---- demands --------------------------------------------------------------------------------------------------------- */

static enum expert_state state_of(const struct expert *x)
{
    return x->state == READY ? EXPERT_READY : x->state == COMING ? EXPERT_COMING : EXPERT_FAILED;
}

enum expert_state expert_borrow(struct expert_cache *c, unsigned layer, uint32_t expert, double weight)
{
    struct expert *const x = expert_at(c, layer, expert);
    const uint32_t id = id_of(c, layer, expert);
    take_landed(c);
    const bool was_absent = x->state == ABSENT, was_ready = x->state == READY;
    if (was_absent) {
        if (!disk_has_room(c) && expert_reads_in_flight(c->reads)) return EXPERT_NO_ROOM;
        uint32_t slot = take_slot(c, layer, HUGE_VAL);
        if (slot == NONE && c->n_kept) { /* demands come first */
            expert_forget_wishes(c);
            slot = take_slot(c, layer, HUGE_VAL);
        }
        if (slot == NONE) return EXPERT_NO_ROOM;
        x->borrowed = true;
        fetch(c, layer, id, slot);
    } else {
        x->borrowed = true;
        unkeep(c, x);
        if (!was_ready) c->coming_demands++;
        x->again = x->failed;
        shelve(c, layer, id);
    }
    expert_rank_use(&c->rank, id, weight);
    if (c->told) c->told(c->told_user, layer, expert);
    *(was_ready ? &c->counts.hits : &c->counts.misses) += 1;
    *(was_ready ? &c->layers[layer].hits : &c->layers[layer].misses) += 1;
    if (x->guessed) c->counts.guesses_used++;
    x->guessed = false;
    if (x->state == ABSENT) x->borrowed = false; /* it could not even be asked for */
    return state_of(x);
}

enum expert_state expert_look(struct expert_cache *c, unsigned layer, uint32_t expert)
{
    struct expert *const x = expert_at(c, layer, expert);
    take_landed(c);
    if (x->state == ABSENT) x->borrowed = false;
    return state_of(x);
}

const uint8_t *expert_piece(const struct expert_cache *c, unsigned layer, uint32_t expert, unsigned piece)
{
    const struct layer *const l = &c->layers[layer];
    const struct gguf_tensor *const t = gguf_tensor_at(c->g, l->files.tensor_idx[piece]);
    const uint64_t at = t->file_off + (uint64_t)expert * l->files.bytes[piece];
    return slot_of(c, layer, expert_at(c, layer, expert)) + l->piece_off[piece] + at % OS_READ_ALIGN;
}

void expert_return(struct expert_cache *c, unsigned layer, uint32_t expert)
{
    struct expert *const x = expert_at(c, layer, expert);
    if (x->borrowed && x->state == COMING) c->coming_demands--;
    x->borrowed = false;
    shelve(c, layer, id_of(c, layer, expert));
}

void expert_wait(struct expert_cache *c)
{
    const uint64_t start = os_clock_ns();
    expert_reads_wait(c->reads);
    take_landed(c);
    c->counts.stall_ns += os_clock_ns() - start;
}

enum mc_code expert_cache_error(struct expert_cache *c, struct mc_err *err)
{
    const enum mc_code code = c->error.code;
    if (code && err) *err = c->error;
    c->error.code = MC_OK;
    return code;
}

void expert_wish(struct expert_cache *c, unsigned layer, uint32_t expert, bool certain)
{
    struct expert *const x = expert_at(c, layer, expert);
    const struct shelf *const s = shelf_at(c, layer);
    const uint32_t id = id_of(c, layer, expert);
    take_landed(c);
    if (certain && x->state != ABSENT && !x->borrowed && !x->kept && c->n_kept < s->n_slots / 2) {
        x->kept = true;
        c->n_kept++;
        shelve(c, layer, id);
    }
    if (x->state != ABSENT || !disk_has_room(c)) return;
    if (certain ? c->n_kept >= s->n_slots / 2 : c->coming_demands > 0) return;
    const uint32_t slot = take_slot(c, layer, certain ? HUGE_VAL : c->rank.now);
    if (slot == NONE) return;
    x->kept = certain;
    x->guessed = !certain;
    c->n_kept += certain;
    c->counts.guesses += !certain;
    fetch(c, layer, id, slot);
}

void expert_forget_wishes(struct expert_cache *c)
{
    for (uint32_t id = 0; id < c->rank.n && c->n_kept; id++) {
        if (!c->experts[id].kept) continue;
        unkeep(c, &c->experts[id]);
        shelve(c, id / c->opt.n_expert, id);
    }
}

bool expert_guesses_pay(struct expert_cache *c)
{
    const uint64_t n = c->counts.guesses - c->guess.wishes;
    if (c->guess.pause > 0) return false;
    if (n < GUESS_WINDOW) return true;
    const bool pay = (double)(c->counts.guesses_used - c->guess.used) >= guesses_right * (double)n;
    c->guess.wishes = c->counts.guesses;
    c->guess.used = c->counts.guesses_used;
    if (!pay) c->guess.pause = GUESS_PAUSE;
    return pay;
}

/* ---- from one run to the next ---------------------------------------------------------------------------------------- */

/* Experts of a shelf, most worth first, into order (c->rank.n entries suffice); returns how many were ever used. */
static uint32_t by_worth(const struct expert_cache *c, unsigned shelf, uint32_t *order)
{
    struct expert_heap h = {.rank = &c->rank, .at = order, .place = malloc((c->rank.n + 1) * sizeof *h.place)};
    if (!h.place) return 0;
    for (uint32_t id = 0; id < c->rank.n; id++)
        if (c->layers[id / c->opt.n_expert].shelf == shelf && c->rank.worth[id] > -HUGE_VAL) expert_heap_put(&h, id);
    const uint32_t n = h.n;
    while (h.n) { /* the least one goes behind the heap that is left */
        const uint32_t least = h.at[0];
        expert_heap_remove(&h, least);
        order[h.n] = least;
    }
    free(h.place);
    return n;
}

void expert_cache_remember(struct expert_cache *c, const float *use)
{
    for (uint32_t id = 0; id < c->rank.n; id++)
        if (use[id] > 0) expert_rank_use(&c->rank, id, (double)use[id] / 2); /* as if a half-life had passed since */
    uint32_t *const order = malloc((c->rank.n + 1) * sizeof *order);
    for (unsigned s = 0; s < c->n_shelves && order; s++) {
        const struct shelf *const x = &c->shelf[s];
        const uint32_t least = (uint32_t)least_of(&c->opt, x->n_experts), spare = x->n_slots - least;
        const uint32_t most = spare < x->n_slots / PINNED_PART ? spare : x->n_slots / PINNED_PART;
        const uint32_t n = by_worth(c, s, order);
        for (uint32_t i = 0; i < n && i < most && use[order[i]] >= PINNED_USES; i++) {
            c->experts[order[i]].pinned = true;
            c->n_pinned++;
        }
    }
    free(order);
}

void expert_cache_uses(const struct expert_cache *c, float *use)
{
    for (uint32_t id = 0; id < c->rank.n; id++) use[id] = (float)exp2(c->rank.worth[id] - c->rank.now);
}

enum mc_code expert_cache_warm(struct expert_cache *c, bool (*go_on)(void *user, uint64_t done, uint64_t total), void *user,
                               struct mc_err *err)
{
    enum mc_code code = MC_OK;
    uint32_t *const order = malloc((c->rank.n + 1) * sizeof *order);
    uint64_t total = 0, done = 0;
    for (unsigned s = 0; s < c->n_shelves; s++) total += (uint64_t)c->shelf[s].n_free * c->shelf[s].slot_bytes;
    for (unsigned s = 0; s < c->n_shelves && order && !code; s++) {
        struct shelf *const x = &c->shelf[s];
        const uint32_t n = by_worth(c, s, order);
        for (uint32_t i = 0; i < n && x->n_free && !code;) {
            take_landed(c);
            if (!disk_has_room(c)) {
                if (!expert_reads_in_flight(c->reads)) break;
                expert_reads_wait(c->reads);
                continue;
            }
            if (c->experts[order[i]].state == ABSENT) {
                fetch(c, order[i] / c->opt.n_expert, order[i], x->free[--x->n_free]);
                done += x->slot_bytes;
                if (go_on && !go_on(user, done, total))
                    code = mc_fail(err, MC_ECANCELLED, 0, "interrupted while experts were read");
            }
            i++;
        }
    }
    while (expert_reads_in_flight(c->reads)) {
        expert_reads_wait(c->reads);
        take_landed(c);
    }
    free(order);
    return code;
}

void expert_foreseen(struct expert_cache *c, uint64_t n, uint64_t right)
{
    c->counts.foreseen += n;
    c->counts.foreseen_right += right;
}

void expert_cache_pass(struct expert_cache *c, double tokens)
{
    expert_rank_pass(&c->rank, tokens);
    c->guess.pause -= tokens;
}

void expert_cache_tell(struct expert_cache *c, void (*fn)(void *user, unsigned layer, uint32_t expert), void *user)
{
    c->told = fn;
    c->told_user = user;
}

/* ---- figures --------------------------------------------------------------------------------------------------------- */

void expert_cache_facts_get(const struct expert_cache *c, struct expert_cache_facts *out)
{
    memset(out, 0, sizeof *out);
    if (c->reads) expert_reads_facts_get(c->reads, &out->reads);
    out->slots_bytes = slots_bytes(c);
    out->n_slots = n_slots(c);
    out->n_experts = c->rank.n;
    out->n_pinned = c->n_pinned;
}

void expert_cache_counts_get(const struct expert_cache *c, struct expert_counts *out)
{
    struct expert_reads_counts disk;
    expert_reads_counts_get(c->reads, &disk);
    *out = c->counts;
    out->bytes_read = disk.bytes;
    out->busy_ns = disk.busy_ns;
    out->retries = disk.retries;
}

void expert_cache_layer_counts(const struct expert_cache *c, unsigned layer, uint64_t *hits, uint64_t *misses)
{
    *hits = c->layers[layer].hits;
    *misses = c->layers[layer].misses;
}

enum mc_code expert_cache_measure(struct expert_cache *c, uint64_t bytes, double *gb_s, struct mc_err *err)
{
    while (expert_reads_in_flight(c->reads)) {
        expert_reads_wait(c->reads);
        take_landed(c);
    }
    const enum mc_code code =
        expert_reads_measure(c->reads, os_region_data(c->region), (size_t)slots_bytes(c), average_slice(c), bytes, gb_s, err);
    empty_shelves(c);
    return code;
}
