/* engine_private.h - what engine.c and session.c share. Tests of this room may look. */
#ifndef RUNTIME_ENGINE_ENGINE_PRIVATE_H
#define RUNTIME_ENGINE_ENGINE_PRIVATE_H

#include "runtime/engine/engine.h"
#include "runtime/engine/resident.h"
#include "runtime/model/forward.h"

#include <stdatomic.h>

struct weights;

struct engine {
    struct kern_table kern;
    struct gguf *gguf;
    struct weights *weights;
    struct model model;
    struct resident resident;
    struct workers *team;
    struct settings_box *settings;
    /* struct engine_counts in the order of its members; added to by the thread that runs a session, read by any (relaxed). */
    _Atomic uint64_t counts[6];
    struct engine_facts facts;
    bool exact;
    bool bound; /* model is bound */
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

#endif
