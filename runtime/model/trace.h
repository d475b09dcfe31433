/* trace.h - where the time of a walk goes: by operator, layer and worker, with the weight and cache bytes read and the
 * multiply-adds done. Off (no trace) it costs one comparison at each place.
 *
 * Every worker writes cells of its own; they are read when no walk is running. Time of an operator includes its waiting at the
 * barriers inside and behind it, which is counted apart as well. */
#ifndef RUNTIME_MODEL_TRACE_H
#define RUNTIME_MODEL_TRACE_H

#include "platform/base/err.h"

#include <stddef.h>
#include <stdint.h>

struct worker;

enum trace_op {
    TRACE_EMBED,
    TRACE_HYPER_IN, /* mixing -> normalised, quantised input */
    TRACE_INPUTS,   /* q_a, kv, compressor and indexer projections of that input */
    TRACE_ROWS,     /* norms, rope, cache row, compressed rows */
    TRACE_QUERIES,  /* q_b, index queries */
    TRACE_INDEX,    /* indexer scores and choice */
    TRACE_ATTEND,   /* softmax over the cache rows */
    TRACE_OUT_A,    /* grouped output */
    TRACE_OUT_B,
    TRACE_ROUTER,
    TRACE_EXPERTS_IN,  /* gate, up, SwiGLU, quantising */
    TRACE_ACTIVATE,    /* choice of rows, SwiGLU and quantising where rows are left out */
    TRACE_EXPERTS_OUT, /* down */
    TRACE_HYPER_OUT,   /* experts combined, streams mixed, products of the next mixing */
    TRACE_HEAD,
    TRACE_OPS
};

struct trace_cell {
    uint64_t calls, ns, wait_ns;
    uint64_t bytes; /* as the file stores them, each phase's once; cache rows */
    uint64_t macs;
};

struct trace;

/* Rows of cells: layer 0 .. n_layer - 1, then one for what is in front of and behind the layers. Errors: MC_ENOMEM. */
MC_MUST_CHECK enum mc_code trace_create(uint32_t n_layer, unsigned n_workers, struct trace **out, struct mc_err *err);
void trace_destroy(struct trace *t);
void trace_clear(struct trace *t);
const char *trace_op_name(enum trace_op op);
/* Sum over workers; times are means, calls those of one. */
struct trace_cell trace_cell_at(const struct trace *t, uint32_t layer, enum trace_op op);

/* The rest is for the walk; t may be NULL. From here on the worker's time is that of `op` (TRACE_OPS: nobody's). */
void trace_enter(struct trace *t, const struct worker *w, uint32_t layer, enum trace_op op);
void trace_work(struct trace *t, unsigned worker, uint64_t bytes, uint64_t macs);
/* workers_sync with its time. */
void trace_sync(struct trace *t, const struct worker *w);

#endif
