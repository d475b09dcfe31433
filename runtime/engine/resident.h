/* resident.h - which matrices are kept in their packed form, and making it (kernels/pack.h).
 *
 * Packing costs a second copy, so it is done only for what fits the memory that is free; the file's own pages are given back as
 * soon as a matrix is packed. What does not fit stays in the file layout, which gives the same bits. */
#ifndef RUNTIME_ENGINE_RESIDENT_H
#define RUNTIME_ENGINE_RESIDENT_H

#include "runtime/engine/engine.h"
#include "runtime/model/bind.h"

struct workers;

struct resident {
    void *memory;
    size_t memory_bytes;
    uint64_t file_bytes;       /* of the packed matrices */
    unsigned n_packed, n_left; /* matrices packed; left in the file layout though they should be packed */
    unsigned n_file;           /* left in the file layout because that is faster, or for the sake of their rows */
};

/* Packs as many matrices of m as fit into budget_bytes, in the order of model_each_matrix; in parallel on the team. Types
 * whose packed form is larger are measured first (layout_choice.h) and left in the file layout when that is faster, unless
 * `all`. `progress` (or NULL) is told the bytes written. Errors: MC_ENOMEM, MC_ECANCELLED. */
MC_MUST_CHECK enum mc_code resident_create(struct model *m, const struct kern_table *kern, const struct weights *w,
                                           struct workers *team, uint64_t budget_bytes, bool all, engine_progress_fn progress,
                                           void *progress_user, struct resident *out, struct mc_err *err);
void resident_destroy(struct resident *r);

#endif
