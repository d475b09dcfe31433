/* bench_memory.c - see bench_memory.h.
 *
 * Each worker reads its own slice as four streams side by side, one cache line of each by turns: more reads are in flight than
 * one stream would start. All eight words of a line are summed, so the bytes do arrive in registers. */
#include "runtime/app/bench_memory.h"

#include "io/gguf/gguf.h"
#include "io/weights/intake.h"
#include "platform/os.h"
#include "runtime/app/model.h"
#include "topology/workers.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { STREAMS = 4, LINE_WORDS = 8, PAGE = 4096, SLICE = 16 << 20, MEASURE_NS = 100000000 };
#define READER_BYTES_MAX ((uint64_t)512 << 20)
#define READER_BYTES_MIN ((uint64_t)16 << 20)
#define CACHED_BYTES     ((size_t)64 << 20) /* the caches of an ordinary machine */

struct memory_reader {
    struct workers *team;
    uint64_t *words;
    size_t bytes, words_each; /* of one worker, a multiple of STREAMS * LINE_WORDS */
    atomic_ullong sum;        /* keeps the reads alive; no order needed */
};

static void fill(void *arg, struct worker *w)
{
    struct memory_reader *r = arg;
    uint64_t *p = r->words + w->id * r->words_each;
    for (size_t i = 0; i < r->words_each; i++) p[i] = i;
}

static void read_slices(void *arg, struct worker *w)
{
    struct memory_reader *r = arg;
    const size_t each = r->words_each / STREAMS;
    const uint64_t *a = r->words + w->id * r->words_each, *b = a + each, *c = b + each, *d = c + each;
    uint64_t s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    for (size_t i = 0; i < each; i += LINE_WORDS) {
        s0 += a[i];
        s1 += b[i];
        s2 += c[i];
        s3 += d[i];
    }
    atomic_fetch_add_explicit(&r->sum, s0 + s1 + s2 + s3, memory_order_relaxed);
}

uint64_t memory_reader_size(uint64_t available_bytes)
{
    const uint64_t bytes = available_bytes / 8;
    if (bytes > READER_BYTES_MAX) return READER_BYTES_MAX;
    if (bytes > READER_BYTES_MIN) return bytes;
    return available_bytes / 2 >= READER_BYTES_MIN ? READER_BYTES_MIN : 0;
}

enum mc_code memory_reader_create(struct workers *team, struct memory_reader **out, struct mc_err *err)
{
    const uint64_t bytes = memory_reader_size(os_memory_available_bytes());
    *out = NULL;
    if (!bytes) return MC_OK;
    struct memory_reader *r = calloc(1, sizeof *r);
    if (!r) return mc_fail(err, MC_ENOMEM, 0, "no memory for the memory reader");
    r->team = team;
    r->bytes = (size_t)bytes;
    r->words_each = r->bytes / 8 / workers_count(team) / (STREAMS * LINE_WORDS) * (STREAMS * LINE_WORDS);
    void *p = NULL;
    if (os_mem_alloc(r->bytes, OS_MEM_HUGE, "memory bandwidth", &p, NULL)) { /* a limit of this process */
        free(r);
        return MC_OK;
    }
    r->words = p;
    workers_run(team, fill, r);
    *out = r;
    return MC_OK;
}

void memory_reader_destroy(struct memory_reader *r)
{
    if (!r) return;
    os_mem_free(r->words, r->bytes);
    free(r);
}

double memory_reader_measure(struct memory_reader *r)
{
    if (!r) return (double)NAN;
    const uint64_t start = os_clock_ns();
    double best_ns = 1e18;
    for (uint64_t now = start, before; now - start < MEASURE_NS;) {
        before = now;
        workers_run(r->team, read_slices, r);
        now = os_clock_ns();
        if ((double)(now - before) < best_ns) best_ns = (double)(now - before);
    }
    return 8.0 * (double)r->words_each * workers_count(r->team) / best_ns;
}

uint64_t memory_reader_bytes(const struct memory_reader *r)
{
    return r ? r->bytes : 0;
}

const char *memory_reader_caveat(const struct memory_reader *r)
{
    return r && r->bytes < CACHED_BYTES ? ", from so little of it that caches count" : "";
}

/* ---- the disk --------------------------------------------------------------------------------------------------------- */

enum { DISK_BLOCK = 4 << 20, DISK_SLOTS = 8, DISK_BYTES_MAX = 1 << 30 };

static enum mc_code measure_disk(const struct gguf *g, double *gb_s, struct mc_err *err)
{
    struct weights *w = NULL;
    struct intake *in = NULL;
    struct intake_options opt = {.io = WEIGHTS_URING, .lanes = 1, .slots = DISK_SLOTS, .block_bytes = DISK_BLOCK};
    enum mc_code code = weights_open(g, &w, err);
    if (code) return code;
    code = intake_open(g, w, &opt, &in, err);
    if (code == MC_EUNSUPPORTED) {
        opt.io = WEIGHTS_PREAD;
        code = intake_open(g, w, &opt, &in, err);
    }
    if (!code) code = intake_measure(in, DISK_BYTES_MAX, gb_s, err);
    if (*gb_s <= 0) *gb_s = (double)NAN;
    intake_close(in);
    weights_close(w);
    return code;
}

enum mc_code bench_disk(const struct app_options *o, double *gb_s, struct mc_err *err)
{
    char path[MODEL_PATH_MAX];
    struct gguf *g = NULL;
    enum mc_code code = model_path(o, path, err);
    if (!code) code = gguf_open(path, &g, err);
    if (code) return code;
    code = measure_disk(g, gb_s, err);
    gguf_close(g);
    return code;
}

/* ---- the model file --------------------------------------------------------------------------------------------------- */

struct file_job {
    struct mc_span bytes;
    atomic_ullong sum;
};

static void read_pages(void *arg, struct worker *w)
{
    struct file_job *job = arg;
    uint64_t sum = 0;
    for (;;) {
        const uint64_t from = (uint64_t)workers_next(w, 1) * SLICE;
        if (from >= job->bytes.size) break;
        const uint64_t to = from + SLICE < job->bytes.size ? from + SLICE : job->bytes.size;
        for (uint64_t off = from; off < to; off += PAGE) sum += job->bytes.data[off];
    }
    atomic_fetch_add_explicit(&job->sum, sum, memory_order_relaxed);
}

enum mc_code bench_read_model(const struct gguf *g, struct workers *team, double *seconds, struct mc_err *err)
{
    const uint64_t start = os_clock_ns();
    for (size_t part = 0; part < gguf_n_parts(g); part++) {
        struct os_file *f;
        struct os_map *m;
        enum mc_code code = gguf_part_file(g, part, &f, err);
        if (code) return code;
        code = os_map_open(f, &m, err);
        os_file_close(f);
        if (code) return code;
        struct file_job job = {.bytes = os_map_bytes(m)};
        os_map_will_need(m, 0, job.bytes.size);
        workers_run(team, read_pages, &job);
        const bool damaged = os_map_damaged(m);
        os_map_close(m);
        if (damaged) return mc_fail(err, MC_EIO, 0, "%s: the file changed or could not be read", gguf_part_path(g, part));
    }
    *seconds = (double)(os_clock_ns() - start) * 1e-9;
    return MC_OK;
}
