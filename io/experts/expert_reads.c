/* expert_reads.c - see expert_reads.h
 *
 *   owner  --asked[]-->  reader thread  <-->  stream (the system)
 *   owner  <--landed[]--  reader thread
 *
 * Both rings are between two threads and as long as there are reads, so they never overflow: `asked.put` and `landed.got` are
 * moved by the owner, `asked.got` and `landed.put` by the reader (release, read with acquire). The owner sleeps on landed.put,
 * the reader in the stream.
 *
 * Only DEPTH reads are in the hands of the system, enough to keep a disk busy; the others wait in `asked`, so that they end in
 * the order in which they were asked for and experts arrive one after the other instead of all at the end. */
#include "io/experts/expert_reads.h"

#include "io/weights/sources.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    READS = 64,
    DEPTH = 8,
    PROBE_MS = 60,
    PROBE_BLOCKS_MAX = 64,
};
#define PROBE_FILE_MIN ((uint64_t)256 << 20) /* smaller files are read before a probe pays */
static const double better = 1.1;            /* another way must be so much faster than the usual one */
static const double cached = 0.05;           /* blocks of which the file cache holds more say nothing of the disk */

struct flight {
    struct stream_read read;
    uint32_t tag;
};

struct note {
    uint32_t place; /* READS: the queue is broken */
    enum mc_code code;
    struct mc_err err;
};

struct expert_reads {
    const struct gguf *g;
    const struct weights *w;
    struct os_source **source; /* one a part */
    struct stream *stream;
    struct os_thread *reader;
    struct expert_reads_facts facts;
    bool broken; /* the queue itself: nothing lands any more */
    struct mc_err broken_err;
    unsigned n_free;
    uint32_t free[READS];
    struct flight flight[READS];
    uint64_t bytes;  /* landed */
    uint64_t probed; /* blocks looked at by measurements so far: each goes on where the last one stopped, for there may be
                        caches below this system */
    struct {
        _Atomic uint32_t put;
        uint32_t got;
        uint32_t place[READS];
    } asked;
    struct {
        _Atomic uint32_t put;
        uint32_t got;
        struct note note[READS + 1]; /* one more for the news that the queue is broken */
    } landed;
    atomic_bool stop;
    _Atomic uint64_t busy_ns, retries; /* added to by the reader, relaxed */
};

/* ---- the reader ------------------------------------------------------------------------------------------------------ */

/* What the reader knows. */
struct reading {
    struct expert_reads *r;
    unsigned in_flight, free_slots[DEPTH], n_free;
    uint32_t place[DEPTH]; /* by slot of the stream */
    bool again[DEPTH];     /* second attempt */
    uint64_t busy_since;
};

static void tell(struct expert_reads *r, uint32_t place, enum mc_code code, const struct mc_err *err)
{
    const uint32_t put = atomic_load_explicit(&r->landed.put, memory_order_relaxed);
    struct note *const note = &r->landed.note[put % (READS + 1)];
    note->place = place;
    note->code = code;
    if (code) note->err = *err;
    atomic_store_explicit(&r->landed.put, put + 1, memory_order_release);
    os_wake_all_u32(&r->landed.put);
}

static void launch_asked(struct reading *x)
{
    struct expert_reads *const r = x->r;
    while (x->n_free && atomic_load_explicit(&r->asked.put, memory_order_acquire) != r->asked.got) {
        struct mc_err err;
        const uint32_t place = r->asked.place[r->asked.got++ % READS];
        const unsigned slot = x->free_slots[x->n_free - 1];
        const enum mc_code code = stream_start(r->stream, slot, &r->flight[place].read, &err);
        if (code) {
            tell(r, place, code, &err);
            continue;
        }
        if (x->in_flight++ == 0) x->busy_since = os_clock_ns();
        x->n_free--;
        x->place[slot] = place;
        x->again[slot] = false;
    }
}

/* Tries a failed read once more; false when that was the second attempt. */
static bool retry(struct reading *x, unsigned slot)
{
    if (x->again[slot]) return false;
    x->again[slot] = true;
    if (stream_start(x->r->stream, slot, &x->r->flight[x->place[slot]].read, NULL)) return false;
    atomic_fetch_add_explicit(&x->r->retries, 1, memory_order_relaxed);
    return true;
}

static void reader_thread(void *arg)
{
    struct expert_reads *const r = arg;
    struct reading x = {.r = r, .n_free = DEPTH};
    for (unsigned i = 0; i < DEPTH; i++) x.free_slots[i] = i;
    for (;;) {
        struct mc_err err;
        unsigned slot;
        launch_asked(&x);
        const enum mc_code code = stream_take(r->stream, &slot, &err);
        if (slot == STREAM_NONE) {
            if (code) tell(r, READS, code, &err);
            if (code || atomic_load_explicit(&r->stop, memory_order_acquire)) return;
            continue;
        }
        if (code && retry(&x, slot)) continue;
        const struct flight *const f = &r->flight[x.place[slot]];
        if (!code && !r->facts.direct) os_source_forget(f->read.source, f->read.off, f->read.size);
        x.free_slots[x.n_free++] = slot;
        if (--x.in_flight == 0) atomic_fetch_add_explicit(&r->busy_ns, os_clock_ns() - x.busy_since, memory_order_relaxed);
        tell(r, x.place[slot], code, &err);
    }
}

/* ---- the owner ------------------------------------------------------------------------------------------------------- */

unsigned expert_reads_free(const struct expert_reads *r)
{
    return r->broken ? 0 : r->n_free;
}

unsigned expert_reads_in_flight(const struct expert_reads *r)
{
    return READS - r->n_free;
}

enum mc_code expert_reads_start(struct expert_reads *r, const struct expert_read *x, struct mc_err *err)
{
    if (r->broken) {
        if (err) *err = r->broken_err;
        return r->broken_err.code;
    }
    if (!r->n_free) return mc_fail(err, MC_EBUSY, 0, "more reads in flight than there are places");
    const uint32_t place = r->free[--r->n_free], put = atomic_load_explicit(&r->asked.put, memory_order_relaxed);
    r->flight[place] = (struct flight){{r->source[x->part], x->off, x->dst, x->size, x->need}, x->tag};
    r->asked.place[put % READS] = place;
    atomic_store_explicit(&r->asked.put, put + 1, memory_order_release);
    stream_wake(r->stream);
    return MC_OK;
}

/* The queue is broken: what was in flight counts as failed, one after the other. */
static bool next_lost(struct expert_reads *r, struct expert_landed *landed, struct mc_err *err)
{
    bool is_free[READS] = {false};
    for (unsigned i = 0; i < r->n_free; i++) is_free[r->free[i]] = true;
    for (uint32_t place = 0; place < READS; place++) {
        if (is_free[place]) continue;
        *landed = (struct expert_landed){r->flight[place].tag, r->broken_err.code};
        *err = r->broken_err;
        r->free[r->n_free++] = place;
        return true;
    }
    return false;
}

bool expert_reads_landed(struct expert_reads *r, struct expert_landed *landed, struct mc_err *err)
{
    if (r->broken) return next_lost(r, landed, err);
    if (atomic_load_explicit(&r->landed.put, memory_order_acquire) == r->landed.got) return false;
    const struct note *const note = &r->landed.note[r->landed.got++ % (READS + 1)];
    if (note->place == READS) {
        r->broken = true;
        r->broken_err = note->err;
        return next_lost(r, landed, err);
    }
    const struct flight *const f = &r->flight[note->place];
    *landed = (struct expert_landed){f->tag, note->code};
    if (note->code) *err = note->err;
    if (!note->code) r->bytes += f->read.size;
    r->free[r->n_free++] = note->place;
    return true;
}

void expert_reads_wait(struct expert_reads *r)
{
    while (!r->broken && r->n_free < READS && atomic_load_explicit(&r->landed.put, memory_order_acquire) == r->landed.got)
        os_wait_u32(&r->landed.put, r->landed.got);
}

void expert_reads_counts_get(const struct expert_reads *r, struct expert_reads_counts *out)
{
    out->bytes = r->bytes;
    out->busy_ns = atomic_load_explicit(&r->busy_ns, memory_order_relaxed);
    out->retries = atomic_load_explicit(&r->retries, memory_order_relaxed);
}

void expert_reads_facts_get(const struct expert_reads *r, struct expert_reads_facts *out)
{
    *out = r->facts;
}

/* ---- measuring ------------------------------------------------------------------------------------------------------- */

/* Reads blocks until `bytes` have come or `most_ns` have passed. */
static enum mc_code run_blocks(struct expert_reads *r, uint8_t *dst, size_t dst_bytes, size_t block, uint64_t bytes,
                               uint64_t most_ns, double *gb_s, struct mc_err *err)
{
    static const uint64_t stride = 7919; /* a prime: the places jump over the file and do not repeat soon */
    const unsigned part = sources_largest(r->g);
    const uint64_t n_file = gguf_part_size(r->g, part) / block, n_want = bytes / block;
    unsigned deep = (unsigned)(dst_bytes / block), in_flight = 0;
    enum mc_code code = MC_OK;
    uint64_t begun = 0, come = 0;
    if (deep > READS) deep = READS;
    *gb_s = 0;
    if (!n_file || !deep) return MC_OK;
    bool taken[READS] = {false};
    const uint64_t start = os_clock_ns();
    const uint64_t last = r->probed + n_want + n_file;
    while (!code || in_flight) {
        while (!code && in_flight < deep && begun < n_want && os_clock_ns() - start < most_ns && r->probed < last) {
            const uint64_t at = (r->probed++ * stride) % n_file * block;
            if (weights_cached(r->w, part, at, block) > cached) continue;
            uint32_t place = 0;
            while (taken[place]) place++;
            const struct expert_read x = {part, at, block, block, dst + place * block, place};
            code = expert_reads_start(r, &x, err);
            if (code) break;
            taken[place] = true;
            begun++;
            in_flight++;
        }
        if (!in_flight) break;
        struct expert_landed landed;
        struct mc_err why;
        expert_reads_wait(r);
        while (expert_reads_landed(r, &landed, &why)) {
            taken[landed.tag] = false;
            in_flight--;
            come++;
            if (landed.code && !code && err) *err = why;
            if (landed.code && !code) code = landed.code;
        }
    }
    if (come) *gb_s = (double)come * (double)block / (double)(os_clock_ns() - start + 1);
    return code;
}

enum mc_code expert_reads_measure(struct expert_reads *r, uint8_t *dst, size_t dst_bytes, size_t block_bytes, uint64_t bytes,
                                  double *gb_s, struct mc_err *err)
{
    const uint64_t bytes_before = r->bytes, busy_before = atomic_load_explicit(&r->busy_ns, memory_order_relaxed);
    const enum mc_code code = run_blocks(r, dst, dst_bytes, block_bytes, bytes, UINT64_MAX, gb_s, err);
    r->bytes = bytes_before;
    atomic_store_explicit(&r->busy_ns, busy_before, memory_order_relaxed); /* nothing is in flight: the reader sleeps */
    return code;
}

/* ---- opening --------------------------------------------------------------------------------------------------------- */

/* Everything that a way needs, or nothing. */
static enum mc_code open_way(struct expert_reads *r, bool ring, bool direct, const struct stream_fault *fault, uint8_t *dst,
                             struct mc_err *err)
{
    enum mc_code code = sources_open(r->g, direct, &r->source, err);
    r->facts.direct = direct;
    if (code) return code;
    for (r->n_free = 0; r->n_free < READS; r->n_free++) r->free[r->n_free] = READS - 1 - r->n_free;
    r->asked.got = r->landed.got = 0;
    r->broken = false;
    atomic_store_explicit(&r->asked.put, 0, memory_order_relaxed);
    atomic_store_explicit(&r->landed.put, 0, memory_order_relaxed);
    atomic_store_explicit(&r->stop, false, memory_order_relaxed);
    r->facts.io = ring ? WEIGHTS_URING : WEIGHTS_PREAD;
    code = stream_create(ring ? STREAM_RING : STREAM_THREADS, DEPTH, fault, &r->stream, err);
    if (!code && ring && !fault) code = stream_prove(r->stream, r->source[0], dst, err);
    if (!code) code = os_thread_start(reader_thread, r, "expert-reader", &r->reader, err);
    if (!code) return MC_OK;
    stream_destroy(r->stream);
    r->stream = NULL;
    sources_close(r->g, r->source);
    r->source = NULL;
    return code;
}

static void close_way(struct expert_reads *r)
{
    struct expert_landed landed;
    struct mc_err err;
    while (r->reader && r->n_free < READS) {
        expert_reads_wait(r);
        while (expert_reads_landed(r, &landed, &err))
            ;
    }
    if (r->reader) {
        atomic_store_explicit(&r->stop, true, memory_order_release);
        stream_wake(r->stream);
        os_thread_join(r->reader);
        r->reader = NULL;
    }
    stream_destroy(r->stream);
    r->stream = NULL;
    sources_close(r->g, r->source);
    r->source = NULL;
}

static void note(struct expert_reads *r, const char *text)
{
    const size_t n = strlen(r->facts.why);
    snprintf(r->facts.why + n, sizeof r->facts.why - n, "%s%s", n ? "; " : "", text);
}

struct way {
    bool ring, direct;
    const char *name;
};
static const struct way ways[] = {
    {true, true, "io_uring past the file cache"},
    {false, true, "pread past the file cache"},
    {false, false, "pread through the file cache"},
};

/* Measures the ways that are there and opens the best one; the first is taken unless another is clearly faster. */
static enum mc_code choose(struct expert_reads *r, enum weights_io io, uint8_t *dst, size_t dst_bytes, size_t block,
                           const struct stream_fault *fault, struct mc_err *err)
{
    const bool measures = io == WEIGHTS_AUTO && !fault && gguf_part_size(r->g, sources_largest(r->g)) >= PROBE_FILE_MIN;
    struct mc_err why = {.code = MC_OK};
    double best_gb_s = 0;
    size_t best = ARRAY_LEN(ways);
    enum mc_code code = MC_OK;
    char text[120];
    for (size_t i = 0; i < ARRAY_LEN(ways) && (measures || best == ARRAY_LEN(ways)); i++) {
        if ((io == WEIGHTS_URING && !ways[i].ring) || (io == WEIGHTS_PREAD && ways[i].ring)) continue;
        double gb_s = 0;
        code = open_way(r, ways[i].ring, ways[i].direct, fault, dst, &why);
        if (code == MC_ENOMEM) break;
        if (!code && measures) {
            code = run_blocks(r, dst, dst_bytes, block, PROBE_BLOCKS_MAX * (uint64_t)block, (uint64_t)PROBE_MS * 1000000, &gb_s,
                              &why);
            snprintf(text, sizeof text, "%s %.2f GB/s", ways[i].name, gb_s);
        }
        if (!code && measures) note(r, text);
        if (code) {
            note(r, why.msg);
        } else if (best == ARRAY_LEN(ways) || gb_s > best_gb_s * better) {
            best = i;
            best_gb_s = gb_s;
        }
        close_way(r);
    }
    if (best == ARRAY_LEN(ways)) {
        if (io == WEIGHTS_URING) return mc_fail(err, code, why.os_code, "--io uring: %s; use --io auto or pread", why.msg);
        if (err) *err = why;
        return code;
    }
    r->facts.gb_s = best_gb_s;
    r->bytes = 0;
    atomic_store_explicit(&r->busy_ns, 0, memory_order_relaxed);
    return open_way(r, ways[best].ring, ways[best].direct, fault, dst, err);
}

enum mc_code expert_reads_open(const struct gguf *g, const struct weights *w, enum weights_io io, uint8_t *probe_dst,
                               size_t probe_bytes, size_t block_bytes, const struct stream_fault *fault,
                               struct expert_reads **out, struct mc_err *err)
{
    struct expert_reads *r = calloc(1, sizeof *r);
    if (!r) return mc_fail(err, MC_ENOMEM, 0, "no memory to read experts");
    r->g = g;
    r->w = w;
    const enum mc_code code = choose(r, io, probe_dst, probe_bytes, block_bytes, fault, err);
    if (code)
        expert_reads_close(r);
    else
        *out = r;
    return code;
}

void expert_reads_close(struct expert_reads *r)
{
    if (!r) return;
    close_way(r);
    free(r);
}
