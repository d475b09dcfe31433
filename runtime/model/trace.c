/* trace.c - see trace.h */
#include "runtime/model/trace.h"

#include "platform/os.h"
#include "topology/workers.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 64 };

/* What one worker is doing; on lines of its own. */
struct lane {
    MC_ALIGNED(LINE_BYTES) struct trace_cell *now; /* NULL: nothing that is measured */
    uint64_t since_ns;
    struct trace_cell *cells; /* [n_layer + 1][TRACE_OPS] */
};

struct trace {
    uint32_t n_layer;
    unsigned n_workers;
    struct lane *lanes;
    size_t bytes;
};

static size_t cells_per_lane(uint32_t n_layer)
{
    return ((size_t)n_layer + 2) * TRACE_OPS; /* one row to spare, so that lanes share no line */
}

enum mc_code trace_create(uint32_t n_layer, unsigned n_workers, struct trace **out, struct mc_err *err)
{
    const size_t cells = cells_per_lane(n_layer), bytes = n_workers * (sizeof(struct lane) + cells * sizeof(struct trace_cell));
    struct trace *t = calloc(1, sizeof *t);
    void *memory = NULL;
    if (!t) return mc_fail(err, MC_ENOMEM, 0, "no memory for a trace");
    const enum mc_code code = os_mem_alloc(bytes, OS_MEM_PLAIN, "trace", &memory, err);
    if (code) {
        free(t);
        return code;
    }
    *t = (struct trace){n_layer, n_workers, memory, bytes};
    struct trace_cell *cell = (struct trace_cell *)(t->lanes + n_workers);
    for (unsigned i = 0; i < n_workers; i++) t->lanes[i].cells = cell + i * cells;
    *out = t;
    return MC_OK;
}

void trace_destroy(struct trace *t)
{
    if (!t) return;
    os_mem_free(t->lanes, t->bytes);
    free(t);
}

void trace_clear(struct trace *t)
{
    for (unsigned i = 0; i < t->n_workers; i++)
        memset(t->lanes[i].cells, 0, cells_per_lane(t->n_layer) * sizeof(struct trace_cell));
}

const char *trace_op_name(enum trace_op op)
{
    static const char *const names[TRACE_OPS] = {"embed",      "hyper_in", "inputs",      "rows",      "queries",
                                                 "index",      "attend",   "out_a",       "out_b",     "router",
                                                 "experts_in", "activate", "experts_out", "hyper_out", "head"};
    return (unsigned)op < TRACE_OPS ? names[op] : "none";
}

struct trace_cell trace_cell_at(const struct trace *t, uint32_t layer, enum trace_op op)
{
    struct trace_cell sum = {0};
    for (unsigned i = 0; i < t->n_workers; i++) {
        const struct trace_cell *c = &t->lanes[i].cells[(size_t)layer * TRACE_OPS + op];
        if (i == 0) sum.calls = c->calls;
        sum.ns += c->ns;
        sum.wait_ns += c->wait_ns;
        sum.bytes += c->bytes;
        sum.macs += c->macs;
    }
    assert(t->n_workers > 0);
    sum.ns /= t->n_workers;
    sum.wait_ns /= t->n_workers;
    return sum;
}

void trace_enter(struct trace *t, const struct worker *w, uint32_t layer, enum trace_op op)
{
    if (!t) return;
    struct lane *l = &t->lanes[w->id];
    const uint64_t now = os_clock_ns();
    if (l->now) l->now->ns += now - l->since_ns;
    l->now = op == TRACE_OPS ? NULL : &l->cells[(size_t)layer * TRACE_OPS + op];
    if (l->now) l->now->calls++;
    l->since_ns = now;
}

void trace_work(struct trace *t, unsigned worker, uint64_t bytes, uint64_t macs)
{
    if (!t || !t->lanes[worker].now) return;
    t->lanes[worker].now->bytes += bytes;
    t->lanes[worker].now->macs += macs;
}

void trace_sync(struct trace *t, const struct worker *w)
{
    const uint64_t begin = t ? os_clock_ns() : 0;
    workers_sync(w);
    if (t && t->lanes[w->id].now) t->lanes[w->id].now->wait_ns += os_clock_ns() - begin;
}
