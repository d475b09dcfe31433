/* resident_load.h - matrices from the file into their places in a region, by the whole team. */
#ifndef RUNTIME_ENGINE_RESIDENT_LOAD_H
#define RUNTIME_ENGINE_RESIDENT_LOAD_H

#include "runtime/engine/resident.h"

/* One matrix (all its experts) and its place: packed groups in the regions of the nodes, or the file's layout in the last
 * region. */
struct resident_job {
    struct matrix *m;
    size_t tensor_idx;
    size_t group_bytes; /* of 16 packed rows; 0: the file's layout */
    unsigned copies;    /* of the packed form; more than one when it is mirrored */
    /* In region k: multiples of 64. File's layout: only off[0], in the region `file_region`, equal to the place in the file
     * modulo OS_READ_ALIGN, with whole such units of its own around it. */
    size_t off[MATRIX_NODES_MAX];
    unsigned file_region;
    struct matrix_nodes *where; /* which node has which groups; NULL: region 0 has all */
};

/* Sorts jobs into the order of the files, reads and packs them, then lets the matrices point there. */
MC_MUST_CHECK enum mc_code resident_load(struct resident_job *jobs, size_t n, const struct kern_table *kern,
                                         const struct gguf *g, const struct weights *w, struct workers *team,
                                         const struct resident_options *opt, struct resident *r, struct mc_err *err);

/* A region, or all of r, present, by the whole team. */
MC_MUST_CHECK enum mc_code resident_touch_region(struct os_region *region, struct workers *team, struct mc_err *err);
MC_MUST_CHECK enum mc_code resident_touch(struct resident *r, struct workers *team, struct mc_err *err);

#endif
