/* stream.c - see stream.h
 *
 *   slot   FREE -> WANTED -> DONE -> FREE       threads: the slot's own thread moves WANTED to DONE
 *                                               ring: whoever waits for any slot takes completions in for all
 *   ended  counts what stream_take may have to look at; it sleeps on it where there is no ring
 *
 * One thread a slot keeps the fallback simple: a thread that sits in a read costs nothing, and there are a handful. */
#include "io/stream/stream.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { FREE, WANTED, DONE, STOP };
enum {
    IDLE_TURNS_MAX = 1000, /* attempts without a byte before a read counts as failed */
    PARTS_MAX = 3,
};

struct slot {
    _Atomic uint32_t state; /* release by who moves it on, acquire by who waits */
    struct stream *stream;
    struct os_thread *thread; /* NULL with a ring */
    struct stream_read r;
    size_t got;
    unsigned idle_turns;
    enum mc_code code; /* valid in DONE */
    struct mc_err err;
};

struct stream {
    const struct stream_fault *fault;
    struct os_ring *ring; /* NULL: threads */
    unsigned n;
    _Atomic uint32_t ended; /* threads: reads that ended, and calls of stream_wake */
    atomic_bool woken;
    struct slot slot[STREAM_SLOTS_MAX];
};

/* Takes one attempt's result in; true when the read is over. */
static bool take_result(struct slot *s, int64_t result)
{
    const struct stream_fault *const fault = s->stream->fault;
    const uint64_t at = s->r.off + s->got;
    if (fault) result = fault->result(fault->user, at, result);
    if (result > 0) {
        s->got += (size_t)result;
        if (s->got >= s->r.need) return true;
        /* Direct reads go on at a block: the part of it that came is read once more. */
        if (os_source_is_direct(s->r.source)) s->got -= s->got % OS_READ_ALIGN;
        const bool again = s->got == at - s->r.off; /* nothing but a part of one block */
        s->idle_turns = again ? s->idle_turns + 1 : 0;
        if (again && s->idle_turns > PARTS_MAX) { /* the same part each time: that is the end of the file */
            s->code = os_source_fail(s->r.source, at + (uint64_t)result, 0, &s->err);
            return true;
        }
    } else if (os_read_again(result)) {
        s->idle_turns++;
    } else {
        s->code = os_source_fail(s->r.source, at, result, &s->err);
        return true;
    }
    if (s->idle_turns < IDLE_TURNS_MAX) return false;
    s->code = mc_fail(&s->err, MC_EIO, 0, "%s: the disk gives no byte at %llu, however often it is asked",
                      os_source_path(s->r.source), (unsigned long long)at);
    return true;
}

static void slot_thread(void *arg)
{
    struct slot *const s = arg;
    for (;;) {
        const uint32_t state = atomic_load_explicit(&s->state, memory_order_acquire);
        if (state == STOP) return;
        if (state != WANTED) {
            os_wait_u32(&s->state, state);
            continue;
        }
        while (
            !take_result(s, os_source_read(s->r.source, s->r.off + s->got, (uint8_t *)s->r.dst + s->got, s->r.size - s->got)))
            ;
        atomic_store_explicit(&s->state, DONE, memory_order_release);
        os_wake_all_u32(&s->state);
        atomic_fetch_add_explicit(&s->stream->ended, 1, memory_order_release);
        os_wake_all_u32(&s->stream->ended);
    }
}

static enum mc_code start_threads(struct stream *s, struct mc_err *err)
{
    enum mc_code code = MC_OK;
    for (unsigned i = 0; i < s->n && !code; i++) {
        char name[24];
        snprintf(name, sizeof name, "reader-%u", i);
        code = os_thread_start(slot_thread, &s->slot[i], name, &s->slot[i].thread, err);
    }
    return code;
}

enum mc_code stream_create(enum stream_way way, unsigned slots, const struct stream_fault *fault, struct stream **out,
                           struct mc_err *err)
{
    if (slots < 1 || slots > STREAM_SLOTS_MAX)
        return mc_fail(err, MC_EARG, 0, "%u reads in flight; 1 to %d are possible", slots, STREAM_SLOTS_MAX);
    struct stream *s = calloc(1, sizeof *s);
    if (!s) return mc_fail(err, MC_ENOMEM, 0, "no memory for the queue of reads");
    s->n = slots;
    s->fault = fault;
    for (unsigned i = 0; i < slots; i++) s->slot[i].stream = s;
    const enum mc_code code = way == STREAM_RING ? os_ring_create(slots, &s->ring, err) : start_threads(s, err);
    if (code)
        stream_destroy(s);
    else
        *out = s;
    return code;
}

static enum mc_code ring_attempt(struct stream *s, unsigned i, struct mc_err *err)
{
    struct slot *const slot = &s->slot[i];
    return os_ring_read(s->ring, slot->r.source, slot->r.off + slot->got, (uint8_t *)slot->r.dst + slot->got,
                        slot->r.size - slot->got, i, err);
}

/* Takes the next completion in; *over is the slot whose read it ended, STREAM_NONE if it ended none. */
static enum mc_code ring_advance(struct stream *s, unsigned *over, struct mc_err *err)
{
    uint64_t tag;
    int64_t result;
    const enum mc_code code = os_ring_wait(s->ring, &tag, &result, err);
    *over = STREAM_NONE;
    if (code || tag == OS_RING_WOKEN) return code;
    struct slot *const slot = &s->slot[tag];
    bool ends = take_result(slot, result);
    if (!ends) {
        slot->code = ring_attempt(s, (unsigned)tag, &slot->err);
        ends = slot->code != MC_OK;
    }
    if (!ends) return MC_OK;
    *over = (unsigned)tag;
    atomic_store_explicit(&slot->state, DONE, memory_order_release);
    return MC_OK;
}

enum mc_code stream_start(struct stream *s, unsigned slot, const struct stream_read *r, struct mc_err *err)
{
    struct slot *const x = &s->slot[slot];
    x->r = *r;
    x->got = 0;
    x->idle_turns = 0;
    x->code = MC_OK;
    atomic_store_explicit(&x->state, WANTED, memory_order_release);
    if (!s->ring) {
        os_wake_all_u32(&x->state);
        return MC_OK;
    }
    const enum mc_code code = ring_attempt(s, slot, err);
    if (code) atomic_store_explicit(&x->state, FREE, memory_order_relaxed);
    return code;
}

static enum mc_code hand_back(struct slot *x, struct mc_err *err)
{
    atomic_store_explicit(&x->state, FREE, memory_order_relaxed);
    if (x->code && err) *err = x->err;
    return x->code;
}

enum mc_code stream_finish(struct stream *s, unsigned slot, struct mc_err *err)
{
    struct slot *const x = &s->slot[slot];
    uint32_t state;
    while ((state = atomic_load_explicit(&x->state, memory_order_acquire)) != DONE) {
        unsigned over;
        if (!s->ring) {
            os_wait_u32(&x->state, state);
            continue;
        }
        const enum mc_code code = ring_advance(s, &over, err);
        if (code) return code;
    }
    return hand_back(x, err);
}

enum mc_code stream_prove(struct stream *s, struct os_source *source, void *block, struct mc_err *err)
{
    const struct stream_read r = {source, 0, block, OS_READ_ALIGN, 1};
    const enum mc_code code = stream_start(s, 0, &r, err);
    return code ? code : stream_finish(s, 0, err);
}

enum mc_code stream_take(struct stream *s, unsigned *slot, struct mc_err *err)
{
    for (;;) {
        const uint32_t ended = atomic_load_explicit(&s->ended, memory_order_acquire);
        for (*slot = 0; *slot < s->n; ++*slot)
            if (atomic_load_explicit(&s->slot[*slot].state, memory_order_acquire) == DONE)
                return hand_back(&s->slot[*slot], err);
        *slot = STREAM_NONE;
        if (atomic_exchange_explicit(&s->woken, false, memory_order_acq_rel)) return MC_OK;
        if (!s->ring) {
            os_wait_u32(&s->ended, ended);
            continue;
        }
        const enum mc_code code = ring_advance(s, slot, err);
        if (code) {
            *slot = STREAM_NONE;
            return code;
        }
    }
}

void stream_wake(struct stream *s)
{
    if (atomic_exchange_explicit(&s->woken, true, memory_order_acq_rel)) return; /* on its way already */
    if (s->ring) {
        os_ring_wake(s->ring);
        return;
    }
    atomic_fetch_add_explicit(&s->ended, 1, memory_order_release);
    os_wake_all_u32(&s->ended);
}

void stream_destroy(struct stream *s)
{
    if (!s) return;
    for (unsigned i = 0; i < s->n; i++) {
        struct slot *const x = &s->slot[i];
        if (atomic_load_explicit(&x->state, memory_order_acquire) == WANTED && stream_finish(s, i, NULL)) x->code = MC_OK;
        if (!x->thread) continue;
        atomic_store_explicit(&x->state, STOP, memory_order_release);
        os_wake_all_u32(&x->state);
        os_thread_join(x->thread);
    }
    os_ring_destroy(s->ring);
    free(s);
}
