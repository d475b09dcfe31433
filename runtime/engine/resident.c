/* resident.c - decides what becomes resident and where. See resident.h; resident_load.c brings it in. */
#include "runtime/engine/resident.h"

#include "kernels/pack.h"
#include "platform/base/log.h"
#include "runtime/engine/layout_choice.h"
#include "runtime/engine/resident_load.h"

#include <stdlib.h>

struct plan {
    const struct kern_table *kern;
    const struct gguf *gguf;
    const struct weights *weights;
    struct workers *team;
    const struct resident_options *opt;
    uint64_t budget, used;
    struct resident_job *jobs; /* NULL: only count the matrices */
    size_t n_jobs, n_matrices;
    enum { NOT_KNOWN, PACK, LEAVE } choice[QUANT_TYPE_COUNT];
    struct resident *out;
};

/* A form that takes more memory than the file's must be faster for it; decided once for each type. */
static bool pays(struct plan *p, const struct matrix *m, uint64_t bytes)
{
    if (p->opt->layout == RESIDENT_PACKED || bytes <= matrix_bytes(m) / 20 * 21) return true;
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

/* Bytes of 16 packed rows; 0: this matrix is not to be packed. */
static size_t group_bytes_of(struct plan *p, const struct matrix *m)
{
    if (p->opt->layout == RESIDENT_FILE || !p->kern->packed[m->type] || m->rows % KERN_PACK_ROWS) return 0;
    const size_t group_bytes = kern_pack_group_bytes(m->type, m->k);
    const uint64_t groups = (uint64_t)m->rows / KERN_PACK_ROWS * m->count;
    if (group_bytes && !pays(p, m, group_bytes * groups)) {
        p->out->n_file++;
        return 0;
    }
    return group_bytes;
}

static void visit(void *user, struct matrix *m)
{
    struct plan *p = user;
    if (!p->jobs) {
        p->n_matrices++;
        p->out->mapped_bytes += matrix_bytes(m);
        return;
    }
    const size_t group_bytes = group_bytes_of(p, m);
    if (!group_bytes && p->opt->io == WEIGHTS_MMAP) return;
    struct resident_job j = {.m = m, .tensor_idx = weights_tensor_of(p->weights, m->data), .group_bytes = group_bytes};
    if (j.tensor_idx == gguf_n_tensors(p->gguf)) return; /* decoded while it was bound: small, and in memory already */
    uint64_t end;
    if (group_bytes) {
        j.off = mc_round_up((size_t)p->used, 64);
        j.bytes = (uint64_t)group_bytes * (m->rows / KERN_PACK_ROWS) * m->count; /* of the order of the file's: cannot wrap */
        end = j.off + j.bytes;
    } else {
        const uint64_t at = gguf_tensor_at(p->gguf, j.tensor_idx)->file_off;
        j.off = mc_round_up((size_t)p->used, OS_READ_ALIGN) + (size_t)(at % OS_READ_ALIGN);
        j.bytes = matrix_bytes(m);
        end = mc_round_up((size_t)(j.off + j.bytes + WEIGHTS_OVERREAD_BYTES), OS_READ_ALIGN);
    }
    if (end > p->budget) {
        p->out->n_left++;
        weights_will_need(p->weights, m->data, matrix_bytes(m));
        return;
    }
    p->used = end;
    p->out->file_bytes += matrix_bytes(m);
    p->out->mapped_bytes -= matrix_bytes(m);
    if (group_bytes) {
        p->out->packed_bytes += j.bytes;
        p->out->packed_file_bytes += matrix_bytes(m);
        p->out->n_packed++;
    }
    p->jobs[p->n_jobs++] = j;
}

enum mc_code resident_create(struct model *m, const struct kern_table *kern, const struct gguf *g, const struct weights *w,
                             struct workers *team, const struct resident_options *opt, struct resident *out, struct mc_err *err)
{
    struct plan p = {.kern = kern, .gguf = g, .weights = w, .team = team, .opt = opt, .out = out};
    memset(out, 0, sizeof *out);
    out->intake.io = WEIGHTS_MMAP;
    p.budget = opt->budget_bytes + os_huge_pool_free_bytes(opt->huge);
    model_each_matrix(m, visit, &p);
    p.jobs = calloc(p.n_matrices + 1, sizeof *p.jobs);
    if (!p.jobs) return mc_fail(err, MC_ENOMEM, 0, "no memory for the list of weights");
    model_each_matrix(m, visit, &p);
    enum mc_code code = MC_OK;
    if (p.n_jobs) {
        code = os_region_create((size_t)p.used, opt->huge, "weights", &out->region, err);
        const uint64_t start = os_clock_ns();
        if (!code && opt->touch_first) {
            code = resident_touch(out->region, team, err);
            out->touch_s = (double)(os_clock_ns() - start) * 1e-9;
        }
        if (!code) code = resident_load(p.jobs, p.n_jobs, g, w, team, opt, out, err);
    }
    free(p.jobs);
    return code;
}

void resident_destroy(struct resident *r)
{
    os_region_destroy(r->region);
    memset(r, 0, sizeof *r);
}
