/* plan.h - what engine_open and session_create would take of this machine, without taking it: which weights would be packed,
 * which stay in the file, what the cache and the activations need, and what one decoded token would read. */
#ifndef RUNTIME_ENGINE_PLAN_H
#define RUNTIME_ENGINE_PLAN_H

#include "runtime/engine/engine.h"

enum plan_class_id {
    PLAN_LAYERS,  /* matrices that every token reads */
    PLAN_EXPERTS, /* routed experts */
    PLAN_HEAD,
    PLAN_REST, /* embedding, routing tables, mixing matrices, vectors */
    PLAN_CLASSES
};

/* Bytes of one class of weights. */
struct plan_class {
    uint64_t file_bytes;        /* in the file */
    uint64_t packed_file_bytes; /* of them those that would be packed */
    uint64_t packed_bytes;      /* what those take in memory */
    uint64_t plain_bytes;       /* read into memory as the file has them */
    uint64_t mapped_bytes;      /* the others, which stay mapped: small ones, and those that do not fit */
    uint64_t token_bytes;       /* read by one token, in the form in memory */
    uint64_t token_file_bytes;  /* the same, in the file's */
};

/* One layer, as the file has it. */
struct plan_layer {
    uint64_t dense_bytes;         /* matrices that every token reads */
    uint64_t expert_bytes;        /* of one routed expert */
    const char *gate, *up, *down; /* types of the routed experts */
};

struct engine_plan {
    const char *isa;
    unsigned n_threads;
    uint32_t n_ctx;
    uint64_t memory_bytes; /* what there is */
    struct plan_class weights[PLAN_CLASSES];
    struct session_memory session;
    uint64_t need_bytes;         /* weights, cache and activations */
    uint64_t hugepage_bytes;     /* of them what is asked for in large pages */
    uint64_t resident_bytes;     /* weights other than experts that there is room for, */
    uint64_t expert_cache_bytes; /* and experts, in the form in memory */
    double experts_cached;       /* share of the experts that is, 0..1 */
    uint64_t token_kv_bytes;     /* cache read by a token when the context is full */
    uint64_t token_disk_bytes;   /* read from the disk by one token, if every expert is as likely as any other */
    bool fits;                   /* need_bytes <= memory_bytes */
    bool streams;                /* the routed experts are read while the model runs: expert_cache_bytes is their cache, */
    uint64_t expert_all_bytes;   /* which would take this for all of them */
    uint32_t n_layer, n_expert;
    struct plan_layer layers[MODEL_LAYERS_MAX];
};

const char *plan_class_name(enum plan_class_id id);

/* session->n_ctx 0: 8192 tokens, or what the model allows. memory_bytes 0: what is free now. The team measures, as loading
 * does, whether larger packed forms are faster (runtime/engine/ layout_choice.h); its size is the number of threads, `pinned`
 * whether they stay where they are. Reads no more of the weights than that. Errors: those of engine_open and session_create
 * with memory_bytes as the ceiling; a model that cannot be streamed is no error when it is too large. */
MC_MUST_CHECK enum mc_code engine_plan_make(const struct engine_options *opt, const struct session_options *session,
                                            uint64_t memory_bytes, struct workers *team, bool pinned, struct engine_plan *out,
                                            struct mc_err *err);

#endif
