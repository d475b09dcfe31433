/* resident_load.h - matrices from the file into their places in a region, by the whole team. */
#ifndef RUNTIME_ENGINE_RESIDENT_LOAD_H
#define RUNTIME_ENGINE_RESIDENT_LOAD_H

#include "runtime/engine/resident.h"

/* One matrix (all its experts) and its place. */
struct resident_job {
    struct matrix *m;
    size_t tensor_idx;
    size_t group_bytes; /* of 16 packed rows; 0: the file's layout */
    size_t off;         /* in the region: a multiple of 64, or for the file's layout equal to the place in the file modulo
                           OS_READ_ALIGN, with whole such units of its own around it */
    uint64_t bytes;     /* there */
};

/* Sorts jobs into the order of the files, reads and packs them, then lets the matrices point there. */
MC_MUST_CHECK enum mc_code resident_load(struct resident_job *jobs, size_t n, const struct gguf *g, const struct weights *w,
                                         struct workers *team, const struct resident_options *opt, struct resident *r,
                                         struct mc_err *err);

/* All of the region present, by the whole team. */
MC_MUST_CHECK enum mc_code resident_touch(struct os_region *region, struct workers *team, struct mc_err *err);

#endif
