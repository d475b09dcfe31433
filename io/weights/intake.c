/* intake.c - see intake.h
 *
 *   file:  |....|--------------- window ---------------|....|     window: multiples of OS_READ_ALIGN around the range
 *                 |<---------- range ---------->|                 edges are read by both neighbours: 4 KiB of 4 MiB
 *   slot:         |window ...............................|        2 MiB aligned: huge pages make one disk request of it
 *
 * A range that goes to its final place is the same with the window's memory being that place. */
#include "io/weights/intake.h"

#include "io/weights/sources.h"
#include "platform/base/log.h"

#include <stdio.h>
#include <stdlib.h>

enum { SLOT_ALIGN = 2 << 20, PROBE_BLOCKS = 16, PROBE_TRIES = 256 };
#define PROBE_FILE_MIN ((uint64_t)256 << 20) /* smaller files are read before a probe pays */
static const double held = 0.95;             /* a range of which the cache has this share comes from there */

struct intake {
    const struct gguf *g;
    const struct weights *w;
    struct intake_options opt;
    struct intake_facts facts;
    struct os_source **source; /* one a part: past the cache if that is possible */
    struct os_source **cached; /* through the cache; NULL unless from_cache may be chosen */
    struct stream **stream;    /* one a lane; NULL: mmap */
    uint8_t *memory;           /* slots of all lanes */
    size_t slot_bytes, memory_bytes;
    bool forget; /* what comes through the cache was not there before */
    struct taken {
        struct os_source *source;
        uint64_t off;
        size_t size;
        const uint8_t *bytes;
    } * taken; /* [lane * slots + slot] */
};

static struct taken *taken_at(const struct intake *in, unsigned lane, unsigned slot)
{
    return &in->taken[lane * in->opt.slots + slot];
}

static uint8_t *slot_at(const struct intake *in, unsigned lane, unsigned slot)
{
    return in->memory + (size_t)(lane * in->opt.slots + slot) * in->slot_bytes;
}

/* ---- opening --------------------------------------------------------------------------------------------------------- */

static void close_streams(struct intake *in)
{
    for (unsigned i = 0; i < in->opt.lanes; i++) {
        stream_destroy(in->stream[i]);
        in->stream[i] = NULL;
    }
}

static enum mc_code open_streams(struct intake *in, enum stream_way way, struct mc_err *err)
{
    enum mc_code code = MC_OK;
    for (unsigned i = 0; i < in->opt.lanes && !code; i++)
        code = stream_create(way, in->opt.slots, in->opt.fault, &in->stream[i], err);
    if (!code && way == STREAM_RING && !in->opt.fault) code = stream_prove(in->stream[0], in->source[0], in->memory, err);
    if (code) close_streams(in);
    in->facts.io = way == STREAM_RING ? WEIGHTS_URING : WEIGHTS_PREAD;
    return code;
}

static void note(struct intake *in, const char *text)
{
    const size_t n = strlen(in->facts.why);
    snprintf(in->facts.why + n, sizeof in->facts.why - n, "%s%s", n ? "; " : "", text);
}

/* GB/s of n blocks of a file on lane 0, at the numbers in `at`; several in flight. */
static enum mc_code measure(struct intake *in, struct os_source *source, const uint64_t *at, unsigned n, double *gb_s,
                            struct mc_err *err)
{
    const size_t block = in->opt.block_bytes / OS_READ_ALIGN * OS_READ_ALIGN;
    const uint64_t start = os_clock_ns();
    enum mc_code code = MC_OK;
    unsigned begun = 0, ended = 0;
    for (;;) {
        while (!code && begun < n && begun - ended < in->opt.slots) {
            const unsigned slot = begun % in->opt.slots;
            const struct stream_read r = {source, at[begun] * block, slot_at(in, 0, slot), block, block};
            code = stream_start(in->stream[0], slot, &r, err);
            if (!code) begun++;
        }
        if (begun == ended) break;
        const enum mc_code done = stream_finish(in->stream[0], ended++ % in->opt.slots, code ? NULL : err);
        if (!code) code = done;
    }
    *gb_s = (double)n * (double)block / (double)(os_clock_ns() - start + 1);
    return code;
}

/* Numbers of up to `most` whole blocks of a part, spread over it; `cached`: only such as the cache holds. */
static unsigned choose_blocks(const struct intake *in, unsigned part, bool cached, unsigned most, uint64_t *at)
{
    const size_t block = in->opt.block_bytes / OS_READ_ALIGN * OS_READ_ALIGN;
    const uint64_t n_file = block ? gguf_part_size(in->g, part) / block : 0, tries = cached ? PROBE_TRIES : most;
    unsigned n = 0;
    for (uint64_t i = 0; i < tries && n < most; i++) {
        const uint64_t number = n_file * i / tries;
        if (number >= n_file || (n && at[n - 1] == number)) continue;
        if (!cached || weights_cached(in->w, part, number * block, block) >= held) at[n++] = number;
    }
    return n;
}

enum mc_code intake_measure(struct intake *in, uint64_t bytes, double *gb_s, struct mc_err *err)
{
    const unsigned part = sources_largest(in->g), most = (unsigned)(bytes / in->opt.block_bytes);
    uint64_t *const at = malloc((most + 1) * sizeof *at);
    if (!at) return mc_fail(err, MC_ENOMEM, 0, "no memory to measure the disk");
    const unsigned n = choose_blocks(in, part, false, most, at);
    *gb_s = 0;
    const enum mc_code code = in->stream && n ? measure(in, in->source[part], at, n, gb_s, err) : MC_OK;
    free(at);
    return code;
}

static double cached_share(const struct intake *in)
{
    double cached = 0, all = 0;
    for (unsigned p = 0; p < gguf_n_parts(in->g); p++) {
        const uint64_t size = gguf_part_size(in->g, p);
        cached += (double)size * weights_cached(in->w, p, 0, size);
        all += (double)size;
    }
    return cached / all;
}

/* Shall ranges that the cache holds come from there? Measured where that pays. */
static enum mc_code choose_cache(struct intake *in, struct mc_err *err)
{
    const unsigned part = sources_largest(in->g);
    uint64_t at[PROBE_BLOCKS];
    char text[160];
    if (in->facts.cached_share < 0.02) {
        note(in, "the files are not cached");
        return MC_OK;
    }
    enum mc_code code = sources_open(in->g, false, &in->cached, err);
    if (code || !in->cached) return code;
    const unsigned n = choose_blocks(in, part, true, PROBE_BLOCKS, at);
    if (n < PROBE_BLOCKS / 4 || gguf_part_size(in->g, part) < PROBE_FILE_MIN) {
        in->facts.from_cache = true;
        snprintf(text, sizeof text, "the cache holds %.0f %% of the files, not measured", 100 * in->facts.cached_share);
    } else {
        code = measure(in, in->cached[part], at, n, &in->facts.cache_gb_s, err);
        const unsigned n_disk = choose_blocks(in, part, false, PROBE_BLOCKS, at);
        if (!code) code = measure(in, in->source[part], at, n_disk, &in->facts.disk_gb_s, err);
        in->facts.from_cache = in->facts.cache_gb_s > in->facts.disk_gb_s;
        snprintf(text, sizeof text, "the cache holds %.0f %% of the files and gives %.2f GB/s, the disk %.2f: %s",
                 100 * in->facts.cached_share, in->facts.cache_gb_s, in->facts.disk_gb_s,
                 in->facts.from_cache ? "what is there comes from there" : "all comes from the disk");
    }
    note(in, text);
    return code;
}

static enum mc_code choose_way(struct intake *in, struct mc_err *err)
{
    if (in->opt.io == WEIGHTS_PREAD) return open_streams(in, STREAM_THREADS, err);
    struct mc_err why = {.code = MC_OK};
    const enum mc_code code = open_streams(in, STREAM_RING, &why);
    if (!code) return MC_OK;
    if (in->opt.io == WEIGHTS_URING) return mc_fail(err, code, why.os_code, "--io uring: %s; use --io auto or pread", why.msg);
    note(in, why.msg);
    return open_streams(in, STREAM_THREADS, err);
}

static enum mc_code choose(struct intake *in, struct mc_err *err)
{
    struct mc_err why = {.code = MC_OK};
    enum mc_code code = sources_open(in->g, true, &in->source, &why);
    in->facts.direct = !code;
    if (code == MC_EUNSUPPORTED) {
        note(in, "the file system has no direct reads");
        code = sources_open(in->g, false, &in->source, &why);
    }
    if (code && err) *err = why;
    if (!code) code = choose_way(in, err);
    if (!code && in->facts.direct && in->opt.io == WEIGHTS_AUTO) code = choose_cache(in, err);
    in->forget = !in->facts.direct && in->facts.cached_share < 0.5;
    return code;
}

static enum mc_code allocate(struct intake *in, struct mc_err *err)
{
    const unsigned lanes = in->opt.lanes, n = lanes * in->opt.slots;
    in->taken = calloc(n, sizeof *in->taken);
    if (!in->taken) return mc_fail(err, MC_ENOMEM, 0, "no memory to read weights");
    if (in->opt.io == WEIGHTS_MMAP) return MC_OK;
    in->stream = calloc(lanes, sizeof(struct stream *));
    if (!in->stream) return mc_fail(err, MC_ENOMEM, 0, "no memory to read weights");
    in->slot_bytes = mc_round_up(in->opt.block_bytes + 2 * OS_READ_ALIGN + WEIGHTS_OVERREAD_BYTES, SLOT_ALIGN);
    in->memory_bytes = n * in->slot_bytes;
    void *p = NULL;
    const enum mc_code code = os_mem_alloc(in->memory_bytes, OS_MEM_HUGE, "weights in flight", &p, err);
    if (code) return code;
    in->memory = p;
    memset(p, 0, in->memory_bytes); /* present before anything is measured */
    return MC_OK;
}

enum mc_code intake_open(const struct gguf *g, const struct weights *w, const struct intake_options *opt, struct intake **out,
                         struct mc_err *err)
{
    struct intake *in = calloc(1, sizeof *in);
    if (!in) return mc_fail(err, MC_ENOMEM, 0, "no memory to read weights");
    in->g = g;
    in->w = w;
    in->opt = *opt;
    in->facts.io = WEIGHTS_MMAP;
    enum mc_code code = allocate(in, err);
    if (!code && opt->io != WEIGHTS_MMAP) {
        in->facts.cached_share = cached_share(in);
        code = choose(in, err);
    }
    if (code)
        intake_close(in);
    else
        *out = in;
    return code;
}

void intake_close(struct intake *in)
{
    if (!in) return;
    if (in->stream) close_streams(in);
    sources_close(in->g, in->source);
    sources_close(in->g, in->cached);
    free(in->stream);
    free(in->taken);
    os_mem_free(in->memory, in->memory_bytes);
    free(in);
}

void intake_facts_get(const struct intake *in, struct intake_facts *out)
{
    *out = in->facts;
}

/* ---- reading --------------------------------------------------------------------------------------------------------- */

enum mc_code intake_start(struct intake *in, unsigned lane, unsigned slot, const struct intake_range *r, struct mc_err *err)
{
    struct taken *const t = taken_at(in, lane, slot);
    const uint8_t *const mapped = (const uint8_t *)weights_tensor(in->w, r->tensor_idx) + r->off;
    if (!in->stream) {
        weights_will_need(in->w, mapped, r->size);
        *t = (struct taken){NULL, 0, r->size, mapped};
        return MC_OK;
    }
    const struct gguf_tensor *const tensor = gguf_tensor_at(in->g, r->tensor_idx);
    const uint64_t at = tensor->file_off + r->off, begin = at / OS_READ_ALIGN * OS_READ_ALIGN;
    const size_t head = (size_t)(at - begin);
    uint8_t *const dst = r->dst ? r->dst - head : slot_at(in, lane, slot);
    const size_t size = mc_round_up(head + r->size, OS_READ_ALIGN);
    const bool from_cache = in->facts.from_cache && weights_cached(in->w, tensor->part, begin, size) >= held;
    const struct stream_read read = {(from_cache ? in->cached : in->source)[tensor->part], begin, dst, size, head + r->size};
    *t = (struct taken){read.source, begin, read.size, dst + head};
    return stream_start(in->stream[lane], slot, &read, err);
}

enum mc_code intake_finish(struct intake *in, unsigned lane, unsigned slot, const uint8_t **bytes, struct mc_err *err)
{
    const struct taken *const t = taken_at(in, lane, slot);
    *bytes = t->bytes;
    if (!in->stream) return MC_OK;
    const enum mc_code code = stream_finish(in->stream[lane], slot, err);
    if (!code && in->forget) os_source_forget(t->source, t->off, t->size);
    return code;
}
