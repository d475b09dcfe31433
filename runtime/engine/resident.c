/* resident.c - decides what becomes resident and where. See resident.h; resident_load.c brings it in. */
#include "runtime/engine/resident.h"

#include "kernels/pack.h"
#include "platform/base/log.h"
#include "runtime/engine/layout_choice.h"
#include "runtime/engine/resident_load.h"
#include "topology/workers.h"

#include <stdlib.h>

struct plan {
    const struct kern_table *kern;
    const struct gguf *gguf;
    const struct weights *weights;
    struct workers *team;
    const struct resident_options *opt;
    enum resident_layout layout;
    bool without_experts;
    uint64_t budget, total;              /* total: of all used[] */
    uint64_t used[MATRIX_NODES_MAX + 1]; /* of each region */
    unsigned n_nodes, file_region;
    struct resident_job *jobs; /* NULL: only count the matrices */
    size_t n_jobs, n_matrices;
    enum { NOT_KNOWN, PACK, LEAVE } choice[QUANT_TYPE_COUNT];
    struct resident *out;
};

/* A form that takes more memory than the file's must be faster for it; decided once for each type. */
static bool pays(struct plan *p, const struct matrix *m, uint64_t bytes)
{
    if (p->layout == RESIDENT_PACKED || bytes <= matrix_bytes(m) / 20 * 21) return true;
    if (p->choice[m->type] == NOT_KNOWN) {
        weights_will_need(p->weights, m->data, matrix_bytes(m));
        const struct layout_speed s = layout_measure(p->kern, p->team, m);
        if (s.file <= 0) return true; /* too small to be measured, and to matter; the next one may not be */
        p->choice[m->type] = layout_pays(s) ? PACK : LEAVE;
        mc_log(MC_LOG_INFO, "engine: layout type=%s packed_gb_s=%.1f file_gb_s=%.1f choice=%s", quant_info(m->type)->name,
               s.packed, s.file, p->choice[m->type] == PACK ? "packed" : "file");
    }
    return p->choice[m->type] == PACK;
}

/* Bytes of 16 packed rows; 0: this matrix is not to be packed. */
static size_t group_bytes_of(struct plan *p, const struct matrix *m)
{
    if (p->layout == RESIDENT_FILE || !p->kern->packed[m->type] || m->rows % KERN_PACK_ROWS) return 0;
    const size_t group_bytes = kern_pack_group_bytes(m->type, m->k);
    const uint64_t groups = (uint64_t)m->rows / KERN_PACK_ROWS * m->count;
    if (group_bytes && m->keep_rows) {
        p->out->n_file++;
        return 0;
    }
    if (group_bytes && !pays(p, m, group_bytes * groups)) {
        p->out->n_file++;
        return 0;
    }
    return group_bytes;
}

/* Places the packed groups at the ends of the nodes' regions as they are now; end[] is where those would end then. */
static void place_packed(const struct plan *p, struct resident_job *j, uint64_t end[MATRIX_NODES_MAX + 1])
{
    const struct matrix *m = j->m;
    struct matrix_nodes at = {.n = 1};
    if (m->home_rows % KERN_PACK_ROWS) j->m->home_rows = m->rows; /* no product begins at a group then */
    const uint64_t stretches = (uint64_t)m->rows * m->count / m->home_rows;
    at.first[1] = m->home_rows / KERN_PACK_ROWS;
    if (p->n_nodes > 1) nodes_share(&p->out->nodes, m->home_rows, workers_count(p->team), &at);
    for (unsigned k = 0; k < p->n_nodes; k++) {
        const uint64_t groups = stretches * (at.mirror ? at.first[at.n] : at.first[k + 1] - at.first[k]);
        j->off[k] = mc_round_up((size_t)end[k], 64);
        end[k] = j->off[k] + groups * j->group_bytes; /* of the order of the file's size: cannot wrap */
    }
    j->copies = at.mirror ? at.n : 1;
    if (p->n_nodes == 1) return;
    j->where = &p->out->where[p->n_jobs];
    *j->where = at;
}

static void place_file(const struct plan *p, struct resident_job *j, uint64_t end[MATRIX_NODES_MAX + 1])
{
    const uint64_t at = gguf_tensor_at(p->gguf, j->tensor_idx)->file_off;
    j->file_region = p->file_region;
    j->off[0] = mc_round_up((size_t)end[j->file_region], OS_READ_ALIGN) + (size_t)(at % OS_READ_ALIGN);
    end[j->file_region] = mc_round_up((size_t)(j->off[0] + matrix_bytes(j->m) + WEIGHTS_OVERREAD_BYTES), OS_READ_ALIGN);
}

static void count(void *user, struct matrix *m)
{
    (void)m;
    ++*(size_t *)user;
}

static void visit(void *user, struct matrix *m)
{
    struct plan *p = user;
    if (p->without_experts && m->count > 1) return;
    p->out->mapped_bytes += matrix_bytes(m);
    const size_t group_bytes = group_bytes_of(p, m);
    if (!group_bytes && p->opt->io == WEIGHTS_MMAP) return;
    struct resident_job j = {.m = m, .tensor_idx = weights_tensor_of(p->weights, m->data), .group_bytes = group_bytes};
    if (j.tensor_idx == gguf_n_tensors(p->gguf)) return; /* decoded while it was bound: small, and in memory already */
    uint64_t end[MATRIX_NODES_MAX + 1], total = 0;
    memcpy(end, p->used, sizeof end);
    if (group_bytes)
        place_packed(p, &j, end);
    else
        place_file(p, &j, end);
    for (unsigned k = 0; k <= p->file_region; k++) total += end[k];
    if (total > p->budget) {
        p->out->n_left++;
        return;
    }
    if (group_bytes) {
        p->out->packed_bytes += total - p->total;
        p->out->packed_file_bytes += matrix_bytes(m);
        p->out->n_packed++;
    }
    memcpy(p->used, end, sizeof end);
    p->total = total;
    p->out->file_bytes += matrix_bytes(m);
    p->out->mapped_bytes -= matrix_bytes(m);
    p->jobs[p->n_jobs++] = j;
}

/* One walk over the matrices, from nothing. */
static void walk(struct plan *p, struct model *m)
{
    struct resident *const out = p->out;
    p->n_nodes = out->nodes.n;
    p->file_region = p->n_nodes > 1 ? p->n_nodes : 0;
    p->n_jobs = 0;
    p->total = 0;
    memset(p->used, 0, sizeof p->used);
    out->file_bytes = out->mapped_bytes = out->packed_bytes = out->packed_file_bytes = 0;
    out->n_packed = out->n_file = out->n_left = 0;
    model_each_matrix(m, visit, p);
}

/* The walk again for fewer bytes where not everything fits as it is wanted: see resident_create. */
static enum mc_code fit(struct plan *p, struct model *m, struct mc_err *err)
{
    const struct resident_streaming *const s = &p->opt->streaming;
    const uint64_t budget = p->budget;
    const bool experts_fit = s->all_bytes <= s->most_bytes;
    if (!p->out->n_left && experts_fit) return MC_OK;
    if (p->out->n_left && p->out->nodes.mode == NODES_MIRROR) {
        nodes_without_mirror(&p->out->nodes);
        walk(p, m);
        if (!p->out->n_left && experts_fit) return MC_OK;
    }
    if (!s->allowed) return MC_OK;
    if (experts_fit && p->layout == RESIDENT_AUTO) {
        p->layout = RESIDENT_FILE;
        walk(p, m);
        if (!p->out->n_left) {
            mc_log(p->opt->foresee ? MC_LOG_INFO : MC_LOG_WARN, "engine: resident layout=file: the packed forms, which decode "
                                                                "faster, do not fit; all weights stay as the file has them");
            return MC_OK;
        }
    }
    p->without_experts = true;
    p->budget = budget > s->least_bytes ? budget - s->least_bytes : 0;
    for (p->layout = p->opt->layout;; p->layout = RESIDENT_FILE) {
        walk(p, m);
        if (!p->out->n_left || p->layout == RESIDENT_FILE || p->layout == RESIDENT_PACKED) break;
    }
    if (!p->out->n_left) {
        const uint64_t left = budget - p->total;
        p->out->streams = true;
        p->out->expert_bytes = left < s->most_bytes ? left : s->most_bytes;
        if (p->out->expert_bytes > s->all_bytes) p->out->expert_bytes = s->all_bytes;
        return MC_OK;
    }
    if (s->required) {
        const uint64_t need = p->out->mapped_bytes + p->total + s->least_bytes;
        return mc_fail(err, MC_ENOMEM, 0,
                       "the weights that every token reads and the fewest routed experts take %llu MiB, %llu MiB are left for "
                       "them; give %llu MiB more, or a smaller --ctx or --batch",
                       (unsigned long long)(need >> 20), (unsigned long long)(budget >> 20),
                       (unsigned long long)((need - budget) >> 20) + 1);
    }
    p->without_experts = false;
    p->layout = p->opt->layout;
    p->budget = budget;
    walk(p, m);
    return MC_OK;
}

struct telling {
    const struct plan *plan;
    size_t next; /* job; they are in the order of the matrices */
};

static void tell(void *user, struct matrix *m)
{
    struct telling *const x = user;
    const struct resident_foresee *const f = x->plan->opt->foresee;
    if (x->next == x->plan->n_jobs || x->plan->jobs[x->next].m != m) {
        f->tell(f->user, m, 0, matrix_bytes(m), false);
        return;
    }
    const struct resident_job *const j = &x->plan->jobs[x->next++];
    const uint64_t packed = (uint64_t)j->group_bytes * (m->rows / KERN_PACK_ROWS) * m->count;
    if (packed)
        f->tell(f->user, m, packed * j->copies, packed, true);
    else
        f->tell(f->user, m, matrix_bytes(m), matrix_bytes(m), false);
}

struct mapped {
    const struct weights *weights;
};

static void want_mapped(void *user, struct matrix *m)
{
    const struct mapped *const x = user;
    if (!m->packed) weights_will_need(x->weights, m->data, matrix_bytes(m)); /* of what lies in no mapping it does nothing */
}

static enum mc_code create_regions(struct plan *p, struct mc_err *err)
{
    struct resident *const r = p->out;
    enum mc_code code = MC_OK;
    for (unsigned k = 0; k <= p->file_region && !code; k++) {
        if (!p->used[k]) continue;
        code = os_region_create((size_t)p->used[k], p->opt->huge, "weights", &r->region[k], err);
        if (code || (r->nodes.n == 1 && !r->nodes.one && !r->nodes.interleave)) continue;
        const bool placed = k < p->n_nodes && !(p->n_nodes == 1 && r->nodes.interleave)
                                ? os_region_prefer(r->region[k], r->nodes.os_node[k])
                                : os_region_interleave(r->region[k]);
        if (!placed && !r->nodes.one)
            mc_log(MC_LOG_WARN, "engine: numa: the system refuses a placement; pages come from wherever they are touched");
    }
    return code;
}

enum mc_code resident_create(struct model *m, const struct kern_table *kern, const struct gguf *g, const struct weights *w,
                             struct workers *team, const struct resident_options *opt, struct resident *out, struct mc_err *err)
{
    struct plan p = {.kern = kern, .gguf = g, .weights = w, .team = team, .opt = opt, .out = out};
    size_t n_matrices = 0;
    memset(out, 0, sizeof *out);
    out->intake.io = WEIGHTS_MMAP;
    nodes_choose(team, opt->pinned, opt->numa, opt->assumed_nodes, &out->nodes);
    p.layout = opt->layout;
    p.budget = opt->budget_bytes + (opt->foresee ? opt->foresee->pool_bytes : os_huge_pool_free_bytes(opt->huge));
    if (p.budget > opt->ceiling_bytes) p.budget = opt->ceiling_bytes;
    model_each_matrix(m, count, &n_matrices);
    p.jobs = calloc(n_matrices + 1, sizeof *p.jobs);
    if (out->nodes.n > 1) {
        out->where = calloc(n_matrices + 1, sizeof *out->where);
        out->worker_node = nodes_of_workers(&out->nodes, workers_count(team));
    }
    enum mc_code code = p.jobs && (out->nodes.n == 1 || (out->where && out->worker_node))
                            ? MC_OK
                            : mc_fail(err, MC_ENOMEM, 0, "no memory for the list of weights");
    if (!code) {
        walk(&p, m);
        code = fit(&p, m, err);
    }
    if (!code && opt->foresee) {
        struct telling user = {.plan = &p};
        model_each_matrix(m, tell, &user);
        p.n_jobs = out->n_left = 0;
    }
    if (!code && p.n_jobs) {
        code = create_regions(&p, err);
        const uint64_t start = os_clock_ns();
        if (!code && opt->touch_first) {
            code = resident_touch(out, team, err);
            out->touch_s = (double)(os_clock_ns() - start) * 1e-9;
        }
        if (!code) code = resident_load(p.jobs, p.n_jobs, kern, g, w, team, opt, out, err);
    }
    if (!code && out->n_left) {
        struct mapped user = {w};
        model_each_matrix(m, want_mapped, &user);
    }
    free(p.jobs);
    return code;
}

void resident_destroy(struct resident *r)
{
    for (unsigned k = 0; k <= MATRIX_NODES_MAX; k++) os_region_destroy(r->region[k]);
    free(r->worker_node);
    free(r->where);
    memset(r, 0, sizeof *r);
}
