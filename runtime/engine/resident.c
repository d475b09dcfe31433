/* resident.c - see resident.h */
#include "runtime/engine/resident.h"

#include "io/weights/weights.h"
#include "kernels/pack.h"
#include "platform/base/log.h"
#include "platform/os.h"
#include "runtime/engine/layout_choice.h"
#include "topology/workers.h"

#include <string.h>

enum {
    TASK_GROUPS = 16,        /* groups of 16 rows that a worker packs at a time */
    SLICE_BYTES = 128 << 20, /* written between two reports of progress */
};

struct plan {
    const struct kern_table *kern;
    uint64_t budget, bytes, file_bytes;
    uint8_t *memory; /* NULL: only count */
    const struct weights *weights;
    struct workers *team;
    engine_progress_fn progress;
    void *progress_user;
    uint64_t total; /* bytes to pack */
    bool cancelled;
    bool all; /* also what is not faster packed */
    enum { NOT_KNOWN, PACK, LEAVE } choice[QUANT_TYPE_COUNT];
    unsigned n_packed, n_left, n_file;
};

/* A form that takes more memory than the file's must be faster for it; decided once for each type. */
static bool pays(struct plan *p, const struct matrix *m, uint64_t bytes)
{
    if (p->all || bytes <= matrix_bytes(m) / 20 * 21) return true;
    if (p->choice[m->type] == NOT_KNOWN) {
        weights_will_need(p->weights, m->data, matrix_bytes(m));
        const struct layout_speed s = layout_measure(p->kern, p->team, m);
        if (s.file <= 0) return true; /* too small to be measured, and to matter; the next one may not be */
        p->choice[m->type] = s.packed >= s.file * 0.9 ? PACK : LEAVE; /* prompts run up to twice as fast packed */
        mc_log(MC_LOG_INFO, "engine: layout type=%s packed_gb_s=%.1f file_gb_s=%.1f choice=%s", quant_info(m->type)->name,
               s.packed, s.file, p->choice[m->type] == PACK ? "packed" : "file");
    }
    return p->choice[m->type] == PACK;
}

static size_t packed_group_bytes(const struct kern_table *kern, const struct matrix *m)
{
    if (!kern->packed[m->type] || m->rows % KERN_PACK_ROWS) return 0;
    return kern_pack_group_bytes(m->type, m->k);
}

struct packing {
    const struct matrix *m;
    uint8_t *dst;
    size_t group_bytes;
    uint32_t first, end; /* groups of this slice */
};

/* Run by every worker. */
static void pack_matrix(void *arg, struct worker *w)
{
    const struct packing *p = arg;
    const size_t src_bytes = KERN_PACK_ROWS * p->m->row_bytes;
    for (uint32_t at = p->first + workers_next(w, TASK_GROUPS); at < p->end; at = p->first + workers_next(w, TASK_GROUPS)) {
        const uint32_t end = at + TASK_GROUPS < p->end ? at + TASK_GROUPS : p->end;
        for (uint32_t g = at; g < end; g++)
            kern_pack_group(p->m->type, p->dst + g * p->group_bytes, p->m->data + g * src_bytes, p->m->row_bytes, p->m->k);
    }
}

/* False when it was stopped. The system reads the matrix ahead of the workers. */
static bool pack_slices(struct plan *p, struct packing *x, uint32_t groups)
{
    const uint32_t slice = (uint32_t)(SLICE_BYTES / x->group_bytes + TASK_GROUPS);
    weights_will_need(p->weights, x->m->data, matrix_bytes(x->m));
    for (x->first = 0; x->first < groups; x->first = x->end) {
        x->end = groups - x->first < slice ? groups : x->first + slice;
        workers_run(p->team, pack_matrix, x);
        if (p->progress && !p->progress(p->progress_user, p->bytes + x->end * x->group_bytes, p->total)) return false;
    }
    return true;
}

static void visit(void *user, struct matrix *m)
{
    struct plan *p = user;
    const size_t group_bytes = packed_group_bytes(p->kern, m);
    if (!group_bytes || p->cancelled) return;
    const uint32_t groups = m->rows / KERN_PACK_ROWS * m->count;
    const uint64_t bytes = (uint64_t)group_bytes * groups; /* of the order of the file's: cannot wrap */
    if (m->keep_rows || !pays(p, m, bytes)) {
        p->n_file++;
        return;
    }
    if (p->bytes + bytes > p->budget) {
        p->n_left++;
        return;
    }
    if (p->memory) {
        struct packing packing = {m, p->memory + p->bytes, group_bytes, 0, 0};
        if (!pack_slices(p, &packing, groups)) {
            p->cancelled = true;
            return;
        }
        weights_not_needed(p->weights, m->data, matrix_bytes(m));
        m->packed = packing.dst;
        m->group_bytes = group_bytes;
    }
    p->bytes += bytes;
    p->file_bytes += matrix_bytes(m);
    p->n_packed++;
}

enum mc_code resident_create(struct model *m, const struct kern_table *kern, const struct weights *w, struct workers *team,
                             uint64_t budget_bytes, bool all, engine_progress_fn progress, void *progress_user,
                             struct resident *out, struct mc_err *err)
{
    struct plan p = {.kern = kern, .budget = budget_bytes, .weights = w, .team = team, .all = all};
    memset(out, 0, sizeof *out);
    model_each_matrix(m, visit, &p);
    if (!p.bytes) {
        out->n_left = p.n_left;
        out->n_file = p.n_file;
        return MC_OK;
    }
    const enum mc_code code = os_mem_alloc((size_t)p.bytes, OS_MEM_HUGE, "packed weights", &out->memory, err);
    if (code) return code;
    out->memory_bytes = (size_t)p.bytes;
    p.total = p.bytes;
    p.bytes = p.file_bytes = 0;
    p.n_packed = p.n_left = p.n_file = 0;
    p.memory = out->memory;
    p.progress = progress;
    p.progress_user = progress_user;
    model_each_matrix(m, visit, &p);
    if (p.cancelled) return mc_fail(err, MC_ECANCELLED, 0, "interrupted while weights were packed");
    out->file_bytes = p.file_bytes;
    out->n_packed = p.n_packed;
    out->n_left = p.n_left;
    out->n_file = p.n_file;
    return MC_OK;
}

void resident_destroy(struct resident *r)
{
    if (r->memory) os_mem_free(r->memory, r->memory_bytes);
    memset(r, 0, sizeof *r);
}
