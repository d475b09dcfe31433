/* engine_private.h - what engine.c and session.c share. Tests of this room may look. */
#ifndef RUNTIME_ENGINE_ENGINE_PRIVATE_H
#define RUNTIME_ENGINE_ENGINE_PRIVATE_H

#include "runtime/engine/engine.h"
#include "runtime/engine/resident.h"
#include "runtime/engine/streaming.h"
#include "runtime/model/forward.h"

#include <stdatomic.h>

struct weights;

struct engine {
    struct kern_table kern;
    struct gguf *gguf;
    struct weights *weights;
    struct model model;
    struct resident resident;
    struct expert_cache *experts; /* NULL: the routed experts are not streamed */
    char use_path[1200];          /* of the uses of its experts; empty: they are not kept */
    /* struct engine_streaming in the order of its members, published by the thread that runs a session (relaxed). */
    _Atomic uint64_t streamed[10];
    struct workers *team;
    struct settings_box *settings;
    /* struct engine_counts in the order of its members; added to by the thread that runs a session, read by any (relaxed). */
    _Atomic uint64_t counts[9];
    struct engine_facts facts;
    bool exact;
    bool bound;           /* model is bound */
    bool ceiling;         /* memory_bytes was given: the file cache counts */
    uint32_t rows_mapped; /* rows of mapped tables that tokens have read since they were forgotten */
};

struct session {
    struct engine *engine;
    struct kv_cache kv;
    struct flow flow;
    int32_t *tokens; /* [n_ctx], the ones held */
    bool has_logits;
    uint32_t lossless; /* tokens in front of the first lossy one; above kv.n: there is none */
    engine_progress_fn progress;
    void *progress_user;
};

/* After a chunk. */
void engine_streaming_publish(struct engine *e);

/* The part of engine_open that neither starts a thread nor copies a weight: kernels, file, mapped weights, every shape checked,
 * bytes counted. *e is zeroed memory; engine_close undoes it, also after a failure. */
MC_MUST_CHECK enum mc_code engine_bind(const struct engine_options *opt, struct engine *e, struct mc_err *err);

/* Makes weights resident as the options ask. e has a team. foresee: NULL, or the decisions only; then nothing is read. */
MC_MUST_CHECK enum mc_code engine_make_resident(const struct engine_options *opt, struct engine *e,
                                                const struct resident_foresee *foresee, struct mc_err *err);

enum engine_layout { ENGINE_LAYOUT_AUTO, ENGINE_LAYOUT_FILE, ENGINE_LAYOUT_PACKED };
MC_MUST_CHECK enum mc_code engine_read_layout(const char *layout, enum engine_layout *out, struct mc_err *err);
/* Bytes that weights in own memory may take where so many are free and a session will want some of them. */
uint64_t engine_pack_budget(uint64_t available_bytes, uint64_t session_bytes);
/* What such a session takes; n_ctx 0 becomes 8192 tokens, or what the model allows. */
MC_MUST_CHECK enum mc_code engine_session_room(const struct engine *e, struct session_options *so, struct session_memory *out,
                                               struct mc_err *err);

#endif
