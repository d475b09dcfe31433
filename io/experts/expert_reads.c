/* expert_reads.c - see expert_reads.h
 *
 *   owner  --start-->  stream  --take-->  reader thread  --landed[]-->  owner
 *
 * `landed` is a ring between two threads, as long as there are reads, so it never overflows: `put` is moved by the reader
 * (release), `got` by the owner. The owner sleeps on `put`. */
#include "io/experts/expert_reads.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    RING_READS = STREAM_SLOTS_MAX,
    THREAD_READS = 16,
    PROBE_MS = 60,
    PROBE_BLOCKS_MAX = 64,
};
#define PROBE_FILE_MIN ((uint64_t)256 << 20) /* smaller files are read before a probe pays */
static const double better = 1.1;            /* another way must be so much faster than the usual one */
static const double cached = 0.05;           /* blocks of which the file cache holds more say nothing of the disk */

struct flight {
    struct stream_read read;
    uint32_t tag;
    bool again; /* second attempt */
};

struct note {
    unsigned slot;
    enum mc_code code;
    struct mc_err err;
    uint64_t ns;
};

struct expert_reads {
    const struct gguf *g;
    const struct weights *w;
    struct os_source **source; /* one a part */
    struct stream *stream;
    struct os_thread *reader;
    struct expert_reads_facts facts;
    struct expert_reads_counts counts;
    bool broken; /* the queue itself: nothing lands any more */
    struct mc_err broken_err;
    unsigned n, n_free;
    unsigned free[STREAM_SLOTS_MAX];
    struct flight flight[STREAM_SLOTS_MAX];
    uint64_t busy_since;
    uint64_t probed; /* blocks looked at by measurements so far: each goes on where the last one stopped, for there may be
                        caches below this system */
    uint32_t got;
    _Atomic uint32_t put;
    atomic_bool stop;
    struct note landed[STREAM_SLOTS_MAX + 1]; /* one more for the news that the queue is broken */
};

enum { NOTES = STREAM_SLOTS_MAX + 1 };

/* ---- the reader ------------------------------------------------------------------------------------------------------ */

static void reader_thread(void *arg)
{
    struct expert_reads *const r = arg;
    uint32_t put = 0;
    for (;;) {
        struct note *const note = &r->landed[put % NOTES];
        unsigned slot;
        note->err.code = MC_OK;
        note->code = stream_take(r->stream, &slot, &note->err);
        if (slot == STREAM_NONE && !note->code) {
            if (atomic_load_explicit(&r->stop, memory_order_acquire)) return;
            continue;
        }
        note->slot = slot;
        note->ns = os_clock_ns();
        if (slot != STREAM_NONE && !r->facts.direct && !note->code)
            os_source_forget(r->flight[slot].read.source, r->flight[slot].read.off, r->flight[slot].read.size);
        atomic_store_explicit(&r->put, ++put, memory_order_release);
        os_wake_all_u32(&r->put);
        if (slot == STREAM_NONE) return;
    }
}

/* ---- the owner ------------------------------------------------------------------------------------------------------- */

unsigned expert_reads_free(const struct expert_reads *r)
{
    return r->broken ? 0 : r->n_free;
}

unsigned expert_reads_in_flight(const struct expert_reads *r)
{
    return r->n - r->n_free;
}

static enum mc_code launch(struct expert_reads *r, unsigned slot, struct mc_err *err)
{
    if (r->broken) {
        if (err) *err = r->broken_err;
        return r->broken_err.code;
    }
    return stream_start(r->stream, slot, &r->flight[slot].read, err);
}

enum mc_code expert_reads_start(struct expert_reads *r, const struct expert_read *x, struct mc_err *err)
{
    if (!r->n_free) return mc_fail(err, MC_EBUSY, 0, "more reads in flight than there are places");
    const unsigned slot = r->free[r->n_free - 1];
    r->flight[slot] = (struct flight){{r->source[x->part], x->off, x->dst, x->size, x->need}, x->tag, false};
    if (r->n_free == r->n) r->busy_since = os_clock_ns();
    const enum mc_code code = launch(r, slot, err);
    if (!code) r->n_free--;
    return code;
}

static void end_flight(struct expert_reads *r, unsigned slot, uint64_t ns)
{
    r->free[r->n_free++] = slot;
    if (r->n_free == r->n && ns > r->busy_since) r->counts.busy_ns += ns - r->busy_since;
}

/* The queue is broken: what was in flight counts as failed, one after the other. */
static bool next_lost(struct expert_reads *r, struct expert_landed *landed, struct mc_err *err)
{
    bool is_free[STREAM_SLOTS_MAX] = {false};
    for (unsigned i = 0; i < r->n_free; i++) is_free[r->free[i]] = true;
    for (unsigned slot = 0; slot < r->n; slot++) {
        if (is_free[slot]) continue;
        *landed = (struct expert_landed){r->flight[slot].tag, r->broken_err.code};
        *err = r->broken_err;
        end_flight(r, slot, os_clock_ns());
        return true;
    }
    return false;
}

bool expert_reads_landed(struct expert_reads *r, struct expert_landed *landed, struct mc_err *err)
{
    for (;;) {
        if (r->broken) return next_lost(r, landed, err);
        if (atomic_load_explicit(&r->put, memory_order_acquire) == r->got) return false;
        const struct note *const note = &r->landed[r->got++ % NOTES];
        if (note->slot == STREAM_NONE) {
            r->broken = true;
            r->broken_err = note->err;
            continue;
        }
        struct flight *const f = &r->flight[note->slot];
        if (note->code && !f->again) {
            f->again = true;
            r->counts.retries++;
            if (!launch(r, note->slot, err)) continue;
        }
        *landed = (struct expert_landed){f->tag, note->code};
        if (note->code) *err = note->err;
        if (!note->code) r->counts.bytes += f->read.size;
        end_flight(r, note->slot, note->ns);
        return true;
    }
}

void expert_reads_wait(struct expert_reads *r)
{
    while (!r->broken && r->n_free < r->n && atomic_load_explicit(&r->put, memory_order_acquire) == r->got)
        os_wait_u32(&r->put, r->got);
}

void expert_reads_counts_get(const struct expert_reads *r, struct expert_reads_counts *out)
{
    *out = r->counts;
}

void expert_reads_facts_get(const struct expert_reads *r, struct expert_reads_facts *out)
{
    *out = r->facts;
}

/* ---- measuring ------------------------------------------------------------------------------------------------------- */

static unsigned largest_part(const struct gguf *g)
{
    unsigned best = 0;
    for (unsigned p = 1; p < gguf_n_parts(g); p++)
        if (gguf_part_size(g, p) > gguf_part_size(g, best)) best = p;
    return best;
}

/* Reads blocks until `bytes` have come or `most_ns` have passed. */
static enum mc_code run_blocks(struct expert_reads *r, uint8_t *dst, size_t dst_bytes, size_t block, uint64_t bytes,
                               uint64_t most_ns, double *gb_s, struct mc_err *err)
{
    static const uint64_t stride = 7919; /* a prime: the places jump over the file and do not repeat soon */
    const unsigned part = largest_part(r->g);
    const uint64_t n_file = gguf_part_size(r->g, part) / block, n_want = bytes / block;
    unsigned deep = (unsigned)(dst_bytes / block), in_flight = 0;
    enum mc_code code = MC_OK;
    uint64_t begun = 0, come = 0;
    if (deep > r->n) deep = r->n;
    *gb_s = 0;
    if (!n_file || !deep) return MC_OK;
    bool taken[STREAM_SLOTS_MAX] = {false};
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
    const struct expert_reads_counts before = r->counts;
    const enum mc_code code = run_blocks(r, dst, dst_bytes, block_bytes, bytes, UINT64_MAX, gb_s, err);
    r->counts = before;
    return code;
}

/* ---- opening --------------------------------------------------------------------------------------------------------- */

static void close_sources(struct expert_reads *r)
{
    for (unsigned p = 0; r->source && p < gguf_n_parts(r->g); p++) os_source_close(r->source[p]);
    free(r->source);
    r->source = NULL;
}

static enum mc_code open_sources(struct expert_reads *r, bool direct, struct mc_err *err)
{
    r->source = calloc(gguf_n_parts(r->g), sizeof(struct os_source *));
    enum mc_code code = r->source ? MC_OK : mc_fail(err, MC_ENOMEM, 0, "no memory to read experts");
    for (unsigned p = 0; !code && p < gguf_n_parts(r->g); p++) {
        struct os_file *f = NULL;
        code = gguf_part_file(r->g, p, &f, err);
        if (code) break;
        if (os_file_size(f) != gguf_part_size(r->g, p))
            code = mc_fail(err, MC_EIO, 0, "%s: its size changes while it is opened", os_file_path(f));
        if (!code) code = os_source_open(f, direct, &r->source[p], err);
        os_file_close(f);
    }
    if (code) close_sources(r);
    r->facts.direct = direct;
    return code;
}

/* Everything that a way needs, or nothing. */
static enum mc_code open_way(struct expert_reads *r, bool ring, bool direct, const struct stream_fault *fault, uint8_t *dst,
                             struct mc_err *err)
{
    enum mc_code code = open_sources(r, direct, err);
    if (code) return code;
    r->n = r->n_free = ring ? RING_READS : THREAD_READS;
    for (unsigned i = 0; i < r->n; i++) r->free[i] = r->n - 1 - i;
    r->got = 0;
    r->broken = false;
    atomic_store_explicit(&r->put, 0, memory_order_relaxed);
    atomic_store_explicit(&r->stop, false, memory_order_relaxed);
    r->facts.io = ring ? WEIGHTS_URING : WEIGHTS_PREAD;
    code = stream_create(ring ? STREAM_RING : STREAM_THREADS, r->n, fault, &r->stream, err);
    if (!code && ring && !fault) { /* a ring that reads, not only one that can be made */
        const struct stream_read x = {r->source[0], 0, dst, OS_READ_ALIGN, 1};
        code = stream_start(r->stream, 0, &x, err);
        if (!code) code = stream_finish(r->stream, 0, err);
    }
    if (!code) code = os_thread_start(reader_thread, r, "expert-reader", &r->reader, err);
    if (!code) return MC_OK;
    stream_destroy(r->stream);
    r->stream = NULL;
    close_sources(r);
    return code;
}

static void close_way(struct expert_reads *r)
{
    struct expert_landed landed;
    struct mc_err err;
    while (r->reader && r->n_free < r->n) {
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
    close_sources(r);
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
    const bool measures = io == WEIGHTS_AUTO && !fault && gguf_part_size(r->g, largest_part(r->g)) >= PROBE_FILE_MIN;
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
    r->counts = (struct expert_reads_counts){0};
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
