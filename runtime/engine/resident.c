/* resident.c - see resident.h */
#include "runtime/engine/resident.h"

#include "io/weights/weights.h"
#include "kernels/pack.h"
#include "platform/os.h"
#include "topology/workers.h"

#include <string.h>

enum { TASK_GROUPS = 16 }; /* groups of 16 rows that a worker packs at a time */

struct plan {
    const struct kern_table *kern;
    uint64_t budget, bytes, file_bytes;
    uint8_t *memory; /* NULL: only count */
    const struct weights *weights;
    struct workers *team;
    unsigned n_packed, n_left;
};

static size_t packed_group_bytes(const struct kern_table *kern, const struct matrix *m)
{
    if (!kern->packed[m->type] || m->rows % KERN_PACK_ROWS) return 0;
    return kern_pack_group_bytes(m->type, m->k);
}

struct packing {
    const struct matrix *m;
    uint8_t *dst;
    size_t group_bytes;
    uint32_t groups;
};

/* Run by every worker. */
static void pack_matrix(void *arg, struct worker *w)
{
    const struct packing *p = arg;
    const size_t src_bytes = KERN_PACK_ROWS * p->m->row_bytes;
    for (uint32_t at = workers_next(w, TASK_GROUPS); at < p->groups; at = workers_next(w, TASK_GROUPS)) {
        const uint32_t end = at + TASK_GROUPS < p->groups ? at + TASK_GROUPS : p->groups;
        for (uint32_t g = at; g < end; g++)
            kern_pack_group(p->m->type, p->dst + g * p->group_bytes, p->m->data + g * src_bytes, p->m->row_bytes, p->m->k);
    }
}

static void visit(void *user, struct matrix *m)
{
    struct plan *p = user;
    const size_t group_bytes = packed_group_bytes(p->kern, m);
    if (!group_bytes) return;
    const uint32_t groups = m->rows / KERN_PACK_ROWS * m->count;
    const uint64_t bytes = (uint64_t)group_bytes * groups; /* of the order of the file's: cannot wrap */
    if (p->bytes + bytes > p->budget) {
        p->n_left++;
        return;
    }
    if (p->memory) {
        struct packing packing = {m, p->memory + p->bytes, group_bytes, groups};
        workers_run(p->team, pack_matrix, &packing);
        weights_not_needed(p->weights, m->data, matrix_bytes(m));
        m->packed = packing.dst;
        m->group_bytes = group_bytes;
    }
    p->bytes += bytes;
    p->file_bytes += matrix_bytes(m);
    p->n_packed++;
}

enum mc_code resident_create(struct model *m, const struct kern_table *kern, const struct weights *w, struct workers *team,
                             uint64_t budget_bytes, struct resident *out, struct mc_err *err)
{
    struct plan p = {.kern = kern, .budget = budget_bytes, .weights = w, .team = team};
    memset(out, 0, sizeof *out);
    model_each_matrix(m, visit, &p);
    if (!p.bytes) {
        out->n_left = p.n_left;
        return MC_OK;
    }
    const enum mc_code code = os_mem_alloc((size_t)p.bytes, OS_MEM_HUGE, "packed weights", &out->memory, err);
    if (code) return code;
    out->memory_bytes = (size_t)p.bytes;
    p = (struct plan){.kern = kern, .budget = budget_bytes, .weights = w, .team = team, .memory = out->memory};
    model_each_matrix(m, visit, &p);
    out->file_bytes = p.file_bytes;
    out->n_packed = p.n_packed;
    out->n_left = p.n_left;
    return MC_OK;
}

void resident_destroy(struct resident *r)
{
    if (r->memory) os_mem_free(r->memory, r->memory_bytes);
    memset(r, 0, sizeof *r);
}
