/* resident_load.c - see resident_load.h
 *
 * The jobs are cut into ranges of some 4 MiB of the file. Each worker keeps a few ranges in flight on its own lane of the
 * intake, takes them back in turn, packs what is to be packed and starts the next: the disk is busy while workers pack, and a
 * worker waits only when the disk is the slower of the two. Memory is made present (first touch) range by range, too, while
 * reads are in flight. What keeps the file's layout is read right into its place. */
#include "runtime/engine/resident_load.h"

#include "kernels/kernels.h"
#include "kernels/pack.h"
#include "topology/workers.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK_BYTES = 4 << 20,
    SLOTS_MAX = 8, /* of a lane */
    IN_FLIGHT = 8, /* of all lanes together, at least */
    TOUCH_BYTES = 8 << 20,
};

/* Part of a job: bytes of the file, from `from` on. Of a packed job they are whole groups of rows. */
struct range {
    const struct resident_job *job;
    uint64_t from;
    size_t size;
};

struct loading {
    struct resident *r;
    struct intake *intake;
    const struct kern_table *kern;
    const struct weights *weights;
    const struct resident_options *opt;
    const struct range *ranges;
    uint32_t n;
    unsigned slots;
    uint64_t total;
    atomic_ullong done; /* bytes; relaxed, it is only shown */
    atomic_bool stop;   /* relaxed: set by the first to fail, who alone writes err, which is read after the run */
    struct mc_err err;
};

static void fail(struct loading *x, const struct mc_err *err)
{
    if (!atomic_exchange_explicit(&x->stop, true, memory_order_relaxed)) x->err = *err;
}

static bool stopped(const struct loading *x)
{
    return atomic_load_explicit(&x->stop, memory_order_relaxed);
}

/* ---- cutting --------------------------------------------------------------------------------------------------------- */

/* Bytes of the file that must stay together. */
static size_t unit_of(const struct resident_job *j)
{
    return j->group_bytes ? KERN_PACK_ROWS * j->m->row_bytes : OS_READ_ALIGN;
}

static size_t block_bytes_for(const struct resident_job *jobs, size_t n)
{
    size_t most = BLOCK_BYTES;
    for (size_t i = 0; i < n; i++)
        if (unit_of(&jobs[i]) > most) most = unit_of(&jobs[i]);
    return most;
}

/* Appends a job's ranges to out, or counts them (NULL). Ranges of the file's layout end at multiples of OS_READ_ALIGN of the
 * file, so that no two of them write to the same memory. */
static size_t cut(const struct resident_job *j, uint64_t file_off, size_t block, struct range *out)
{
    const uint64_t bytes = matrix_bytes(j->m);
    const size_t step = block / unit_of(j) * unit_of(j);
    size_t n = 0;
    for (uint64_t at = 0, size; at < bytes; at += size, n++) {
        size = step;
        if (!j->group_bytes) size -= (size_t)((file_off + at) % OS_READ_ALIGN);
        if (size > bytes - at) size = bytes - at;
        if (out) out[n] = (struct range){j, at, (size_t)size};
    }
    return n;
}

static int by_tensor(const void *a, const void *b)
{
    const struct resident_job *x = a, *y = b;
    return (x->tensor_idx > y->tensor_idx) - (x->tensor_idx < y->tensor_idx);
}

static struct range *cut_all(const struct resident_job *jobs, size_t n, const struct gguf *g, size_t block, size_t *n_ranges)
{
    size_t total = 0, at = 0;
    for (size_t i = 0; i < n; i++) total += cut(&jobs[i], gguf_tensor_at(g, jobs[i].tensor_idx)->file_off, block, NULL);
    struct range *const ranges = malloc(total * sizeof *ranges);
    for (size_t i = 0; i < n && ranges; i++)
        at += cut(&jobs[i], gguf_tensor_at(g, jobs[i].tensor_idx)->file_off, block, ranges + at);
    *n_ranges = total;
    return ranges;
}

/* ---- reading --------------------------------------------------------------------------------------------------------- */

static enum mc_code start(struct loading *x, unsigned lane, unsigned slot, const struct range *r, struct mc_err *err)
{
    const struct resident_job *const j = r->job;
    struct intake_range in = {.tensor_idx = j->tensor_idx, .off = r->from, .size = r->size};
    if (!j->group_bytes) { /* the units around it are written, too */
        struct os_region *const region = x->r->region[j->file_region];
        const size_t at = j->off[0] + (size_t)r->from, begin = at / OS_READ_ALIGN * OS_READ_ALIGN;
        const enum mc_code code = os_region_touch(region, begin, mc_round_up(at + r->size, OS_READ_ALIGN) - begin, err);
        if (code) return code;
        in.dst = os_region_data(region) + at;
    }
    return intake_start(x->intake, lane, slot, &in, err);
}

/* The memory at `at`, which is inside one region, for writing and present. */
static enum mc_code present(const struct loading *x, const uint8_t *at, size_t size, uint8_t **out, struct mc_err *err)
{
    unsigned k = 0;
    while (!x->r->region[k] || at < os_region_data(x->r->region[k]) ||
           at >= os_region_data(x->r->region[k]) + os_region_size(x->r->region[k]))
        k++;
    const size_t off = (size_t)(at - os_region_data(x->r->region[k]));
    *out = os_region_data(x->r->region[k]) + off;
    return os_region_touch(x->r->region[k], off, size, err);
}

/* The groups of a range, by runs of those that stand together: packed into the first copy, from there into the others. */
static enum mc_code pack(const struct loading *x, const struct range *r, const uint8_t *bytes, struct mc_err *err)
{
    const struct matrix *const m = r->job->m;
    const size_t begin = (size_t)(r->from / m->row_bytes), end = begin + r->size / m->row_bytes;
    const size_t file_bytes = KERN_PACK_ROWS * m->row_bytes;
    enum mc_code code = MC_OK;
    for (unsigned copy = 0; copy < r->job->copies; copy++) {
        const uint8_t *from = bytes;
        uint32_t run;
        for (size_t row = begin; row < end && !code; row += run) {
            uint8_t *to;
            const uint8_t *const at = matrix_packed_row(m, row, copy, &run);
            if (run > end - row) run = (uint32_t)(end - row);
            code = present(x, at, run / KERN_PACK_ROWS * m->group_bytes, &to, err);
            if (code) break;
            if (copy > 0) memcpy(to, matrix_packed_row(m, row, 0, NULL), run / KERN_PACK_ROWS * m->group_bytes);
            for (uint32_t g = 0; copy == 0 && g < run / KERN_PACK_ROWS; g++, from += file_bytes)
                x->kern->pack[m->type](to + g * m->group_bytes, from, m->row_bytes, m->k);
        }
    }
    return code;
}

static enum mc_code finish(struct loading *x, unsigned lane, unsigned slot, const struct range *r, struct mc_err *err)
{
    const uint8_t *bytes;
    enum mc_code code = intake_finish(x->intake, lane, slot, &bytes, err);
    if (code || stopped(x) || !r->job->group_bytes) return code;
    code = pack(x, r, bytes, err);
    if (!code && x->opt->io == WEIGHTS_MMAP) weights_not_needed(x->weights, bytes, r->size);
    return code;
}

static void report(struct loading *x, const struct worker *w, size_t bytes)
{
    const uint64_t done = atomic_fetch_add_explicit(&x->done, bytes, memory_order_relaxed) + bytes;
    if (w->id != 0 || !x->opt->progress || x->opt->progress(x->opt->progress_user, done, x->total)) return;
    struct mc_err err;
    mc_err_set(&err, MC_ECANCELLED, 0, "interrupted while weights were read");
    fail(x, &err);
}

/* Run by every worker. */
static void load(void *arg, struct worker *w)
{
    struct loading *const x = arg;
    uint32_t in_flight[SLOTS_MAX]; /* ranges by slot */
    uint32_t begun = 0, ended = 0; /* slots are used in turn */
    bool more = true;
    for (;;) {
        struct mc_err err;
        while (more && begun - ended < x->slots) {
            const uint32_t i = stopped(x) ? x->n : workers_next(w, 1);
            more = i < x->n;
            if (!more) break;
            if (start(x, w->id, begun % x->slots, &x->ranges[i], &err)) {
                fail(x, &err);
                more = false;
                break;
            }
            in_flight[begun++ % x->slots] = i;
        }
        if (begun == ended) return;
        const unsigned slot = ended++ % x->slots;
        const struct range *const r = &x->ranges[in_flight[slot]];
        if (finish(x, w->id, slot, r, &err))
            fail(x, &err);
        else
            report(x, w, r->size);
    }
}

/* Where its packed groups will be: known before they are there, so that packing and products find a row by the same rule. */
static void point_at(const struct resident_job *j, struct resident *r)
{
    struct matrix *const m = j->m;
    m->nodes = j->where;
    m->group_bytes = j->group_bytes;
    m->packed = j->where ? NULL : os_region_data(r->region[0]) + j->off[0];
    for (unsigned k = 0; j->where && k < j->where->n; k++) {
        if (!r->region[k]) continue; /* no row is at home there */
        m->packed = j->where->base[k] = os_region_data(r->region[k]) + j->off[k];
    }
}

/* What stopped the team, if anything did. */
static enum mc_code outcome(const struct loading *x, struct mc_err *err)
{
    if (!stopped(x)) return MC_OK;
    if (err) *err = x->err;
    return x->err.code;
}

enum mc_code resident_load(struct resident_job *jobs, size_t n, const struct kern_table *kern, const struct gguf *g,
                           const struct weights *w, struct workers *team, const struct resident_options *opt,
                           struct resident *r, struct mc_err *err)
{
    const unsigned lanes = workers_count(team);
    const size_t block = block_bytes_for(jobs, n);
    struct loading x = {.r = r, .kern = kern, .weights = w, .opt = opt, .total = r->file_bytes};
    x.slots = IN_FLIGHT / lanes < 2 ? 2 : IN_FLIGHT / lanes;
    qsort(jobs, n, sizeof *jobs, by_tensor);
    for (size_t i = 0; i < n; i++)
        if (jobs[i].group_bytes) point_at(&jobs[i], r);
    size_t n_ranges = 0; /* at least one: there is a job, and no matrix is empty */
    struct range *const ranges = cut_all(jobs, n, g, block, &n_ranges);
    if (!ranges || n_ranges > UINT32_MAX / 2) {
        free(ranges);
        return mc_fail(err, MC_ENOMEM, 0, "no memory for the list of reads");
    }
    x.ranges = ranges;
    x.n = (uint32_t)n_ranges;
    const struct intake_options io = {
        .io = opt->io, .lanes = lanes, .slots = x.slots, .block_bytes = block, .fault = opt->fault};
    enum mc_code code = intake_open(g, w, &io, &x.intake, err);
    if (!code) {
        const uint64_t begin = os_clock_ns();
        intake_facts_get(x.intake, &r->intake);
        workers_run(team, load, &x);
        code = outcome(&x, err);
        r->read_s = (double)(os_clock_ns() - begin) * 1e-9;
        intake_close(x.intake);
    }
    for (size_t i = 0; i < n && !code; i++)
        if (!jobs[i].group_bytes) jobs[i].m->data = os_region_data(r->region[jobs[i].file_region]) + jobs[i].off[0];
    free(ranges);
    return code;
}

/* ---- first touch ----------------------------------------------------------------------------------------------------- */

struct touching {
    struct loading *x;
    struct os_region *region;
};

/* Run by every worker. */
static void touch_steps(void *arg, struct worker *w)
{
    const struct touching *const t = arg;
    const size_t size = os_region_size(t->region);
    for (;;) {
        const size_t off = (size_t)workers_next(w, 1) * TOUCH_BYTES;
        struct mc_err err;
        if (off >= size || stopped(t->x)) return;
        if (os_region_touch(t->region, off, size - off < TOUCH_BYTES ? size - off : TOUCH_BYTES, &err)) fail(t->x, &err);
    }
}

enum mc_code resident_touch_region(struct os_region *region, struct workers *team, struct mc_err *err)
{
    struct loading x = {.n = 0};
    struct touching t = {&x, region};
    workers_run(team, touch_steps, &t);
    return outcome(&x, err);
}

enum mc_code resident_touch(struct resident *r, struct workers *team, struct mc_err *err)
{
    enum mc_code code = MC_OK;
    for (unsigned k = 0; k <= MATRIX_NODES_MAX && !code; k++)
        if (r->region[k]) code = resident_touch_region(r->region[k], team, err);
    return code;
}
