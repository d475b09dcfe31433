/* resident.h - the matrices that are kept in memory of our own: packed (kernels/pack.h) or in the file's layout, in huge pages
 * where there are any.
 *
 * A second copy costs memory, so it is made only of what fits the memory that is free; the rest stays mapped from the file. The
 * layout of a matrix never changes a result. */
#ifndef RUNTIME_ENGINE_RESIDENT_H
#define RUNTIME_ENGINE_RESIDENT_H

#include "io/weights/intake.h"
#include "platform/os.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/nodes.h"
#include "runtime/model/bind.h"

struct workers;

enum resident_layout {
    RESIDENT_AUTO,  /* packed where that decodes faster (layout_choice.h) */
    RESIDENT_FILE,  /* never packed */
    RESIDENT_PACKED /* packed where there is a packed form */
};

/* What the routed experts want if they are read from the file while the model runs (io/experts). */
struct resident_streaming {
    bool allowed;                    /* else matrices that do not fit stay mapped */
    bool required;                   /* and it is an error when not even that fits */
    uint64_t least_bytes, all_bytes; /* slots: as few as possible, all experts */
    uint64_t most_bytes;             /* not more than this (UINT64_MAX: no limit) */
};

/* Decide only, and tell (plan.h). */
struct resident_foresee {
    uint64_t available_bytes; /* free memory, as if it were so */
    uint64_t pool_bytes;      /* and free hugetlb pages besides */
    /* Of every matrix: memory in all its copies (0: it stays mapped), the bytes of one copy, and whether that is packed. */
    void (*tell)(void *user, const struct matrix *m, uint64_t memory_bytes, uint64_t copy_bytes, bool is_packed);
    void *user;
};

struct resident_options {
    uint64_t budget_bytes;  /* free pages of hugetlb pools are taken besides, */
    uint64_t ceiling_bytes; /* but no more than this altogether (UINT64_MAX: no limit) */
    struct resident_streaming streaming;
    enum os_hugepages huge;
    enum weights_io io; /* MMAP: only what is packed becomes resident, and it comes out of the mapping */
    enum resident_layout layout;
    enum nodes_mode numa;
    unsigned assumed_nodes;      /* 0 but in tests: nodes_choose */
    bool pinned;                 /* the workers are */
    bool touch_first;            /* make all memory present before the first read, so that both can be timed apart */
    engine_progress_fn progress; /* of reading, in bytes of the file; or NULL */
    void *progress_user;
    const struct stream_fault *fault;       /* NULL but in tests */
    const struct resident_foresee *foresee; /* or NULL; then *out holds numbers and no weights */
};

struct resident {
    /* Of each node, then one for what belongs to no node; with one node there is only the first. NULL: nothing is there. */
    struct os_region *region[MATRIX_NODES_MAX + 1];
    struct nodes nodes;
    uint8_t *worker_node;                     /* by worker id; NULL with one node */
    struct matrix_nodes *where;               /* of the packed matrices; NULL with one node */
    uint64_t file_bytes;                      /* of all resident matrices, as the file has them */
    uint64_t packed_bytes, packed_file_bytes; /* the packed ones of them: in memory, in the file */
    uint64_t mapped_bytes;                    /* of the matrices that are not resident */
    unsigned n_packed, n_file; /* matrices packed; in the file's layout, resident or mapped, though they could be packed: faster
                                  so, or single rows are skipped */
    unsigned n_left;           /* mapped because they do not fit */
    bool streams;              /* the routed experts are not among all these, */
    uint64_t expert_bytes;     /* and this is left for their slots */
    double touch_s, read_s;    /* touch_s: 0 unless touch_first; read_s: reading and packing, and touching otherwise */
    struct intake_facts intake;
};

/* Makes matrices of m resident in the order of model_each_matrix, read and packed by the whole team in the order of the file.
 * Where not all of them fit in the best layouts: all in the file's layout; else all but the routed experts, which are streamed;
 * else (or if that is not allowed) as many as fit, the others stay mapped. On failure m must not be used; out is to be
 * destroyed in any case. Errors: MC_ENOMEM, MC_ECANCELLED, MC_EIO, MC_EUNSUPPORTED (pages or a way of reading that are not
 * there). */
MC_MUST_CHECK enum mc_code resident_create(struct model *m, const struct kern_table *kern, const struct gguf *g,
                                           const struct weights *w, struct workers *team, const struct resident_options *opt,
                                           struct resident *out, struct mc_err *err);
void resident_destroy(struct resident *r);

#endif
