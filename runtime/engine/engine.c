/* engine.c - opens a model: engine_open is the list of steps, engine_close the list backwards. See engine.h. */
#include "runtime/engine/engine_private.h"

#include "io/gguf/gguf.h"
#include "io/weights/weights.h"
#include "kernels/cpu_flags.h"
#include "platform/base/log.h"
#include "platform/os.h"
#include "runtime/model/metadata.h"
#include "topology/discover.h"
#include "topology/workers.h"

#include <stdlib.h>
#include <string.h>

static enum mc_code choose_kernels(const char *isa, struct engine *e, struct mc_err *err)
{
    uint32_t flags = 0;
    switch (kern_isa_flags(isa ? isa : "auto", &flags)) {
    case -1:
        return mc_fail(err, MC_EARG, 0, "--isa %s is unknown; expected auto, scalar, avx2 or avx512", isa);
    case -2:
        return mc_fail(err, MC_EUNSUPPORTED, 0, "--isa %s: this CPU does not have it; use --isa auto", isa);
    default:
        break;
    }
    kern_table_init(&e->kern, flags);
    e->facts.isa = e->kern.isa;
    return MC_OK;
}

static enum mc_code io_of_name(const char *name, enum weights_io *io, struct mc_err *err)
{
    for (unsigned i = 0; i < WEIGHTS_IO_COUNT; i++)
        if (!strcmp(name, weights_io_name((enum weights_io)i))) {
            *io = (enum weights_io)i;
            return MC_OK;
        }
    return mc_fail(err, MC_EARG, 0, "--io %s is unknown; expected auto, mmap, uring or pread", name);
}

static enum mc_code start_team(const struct engine_options *opt, struct engine *e, struct mc_err *err)
{
    unsigned list[PLACEMENT_MAX];
    struct placement_wish wish = {.n_threads = opt->n_threads};
    struct placement *plan = malloc(sizeof *plan);
    struct machine *machine = malloc(sizeof *machine);
    enum mc_code code = plan && machine ? MC_OK : mc_fail(err, MC_ENOMEM, 0, "out of memory for the machine's description");
    if (!code) code = placement_read_pin(opt->pin, &wish, list, err);
    if (!code) {
        discover_this_machine(machine);
        code = placement_plan(machine, &wish, plan, err);
    }
    if (!code) code = workers_create(plan, &e->team, err);
    if (!code) {
        e->facts.n_threads = plan->n;
        e->facts.pinned = plan->pinned;
    }
    free(machine);
    free(plan);
    return code;
}

/* Memory left for others when matrices are packed on their own accord. */
enum { CEILING_SLACK_MIB = 64, CEILING_SLACK_SHIFT = 6 };
enum { PACK_SLACK_SHIFT = 4 /* a sixteenth of what is free, and */, PACK_SLACK_MIB = 512, MUCH_MIB = 64, CTX_DEFAULT = 8192 };

static enum mc_code numa_of_name(const char *name, enum nodes_mode *out, struct mc_err *err)
{
    for (unsigned i = 0; i < NODES_MODES; i++)
        if (!strcmp(name, nodes_mode_name((enum nodes_mode)i))) {
            *out = (enum nodes_mode)i;
            return MC_OK;
        }
    return mc_fail(err, MC_EARG, 0, "--numa %s is unknown; expected auto, local, interleave or mirror", name);
}

static enum mc_code hugepages_of_name(const char *name, enum os_hugepages *out, struct mc_err *err)
{
    static const char *const names[OS_HUGE_WISHES] = {"auto", "off", "thp", "2m", "1g"};
    for (unsigned i = 0; i < OS_HUGE_WISHES; i++)
        if (!strcmp(name, names[i])) {
            *out = (enum os_hugepages)i;
            return MC_OK;
        }
    return mc_fail(err, MC_EARG, 0, "--hugepages %s is unknown; expected auto, off, thp, 2m or 1g", name);
}

/* Which pages came, as facts and as a line; a warning when most of much memory is not huge though it should be. */
static void report_pages(struct engine *e)
{
    struct os_region_facts f;
    uint64_t bytes[OS_PAGE_KINDS] = {0}, all = 0;
    char why[sizeof f.why] = "";
    for (unsigned r = 0; r <= MATRIX_NODES_MAX; r++) {
        if (!e->resident.region[r]) continue;
        os_region_facts_get(e->resident.region[r], &f);
        for (unsigned k = 0; k < OS_PAGE_KINDS; k++) bytes[k] += f.bytes[k];
        for (unsigned k = 0; k < OS_PAGE_KINDS; k++) all += f.bytes[k];
        if (f.bytes[OS_PAGE_NORMAL] && f.why[0]) memcpy(why, f.why, sizeof why);
    }
    if (!all) return;
    e->facts.pages_1g_bytes = bytes[OS_PAGE_1G];
    e->facts.pages_2m_bytes = bytes[OS_PAGE_2M];
    e->facts.pages_thp_bytes = bytes[OS_PAGE_THP];
    const uint64_t normal = e->facts.pages_normal_bytes = bytes[OS_PAGE_NORMAL];
    const bool poor = why[0] && normal > all / 2 && normal > (uint64_t)MUCH_MIB << 20;
    mc_log(poor ? MC_LOG_WARN : MC_LOG_INFO,
           "engine: hugepages share=%.3f 1g_mib=%llu 2m_mib=%llu thp_mib=%llu normal_mib=%llu%s%s",
           (double)(all - normal) / (double)all, (unsigned long long)(bytes[OS_PAGE_1G] >> 20),
           (unsigned long long)(bytes[OS_PAGE_2M] >> 20), (unsigned long long)(bytes[OS_PAGE_THP] >> 20),
           (unsigned long long)(normal >> 20), why[0] ? ": " : "", why);
}

/* A wish that could not be kept is a warning. */
static void report_nodes(struct engine *e, enum nodes_mode wish)
{
    const struct nodes *n = &e->resident.nodes;
    e->facts.numa = nodes_mode_name(n->mode);
    mc_log(wish != NODES_AUTO && n->mode != wish ? MC_LOG_WARN : MC_LOG_INFO, "engine: numa mode=%s: %s", e->facts.numa,
           n->why);
    for (unsigned k = 0; n->n > 1 && k < n->n; k++) {
        struct os_region *const r = e->resident.region[k];
        if (!r) continue;
        const double there = os_numa_share(os_region_data(r), os_region_size(r), n->os_node[k]);
        const bool poor = there < 0.9; /* a node that is full gives way to its neighbours */
        mc_log(poor ? MC_LOG_WARN : MC_LOG_INFO, "engine: numa node=%u mib=%zu there=%.3f%s", n->os_node[k],
               os_region_size(r) >> 20, there,
               poor ? ": that node was full (files that other programs read count, too); the other weights are farther away"
                    : "");
    }
}

static void report_io(struct engine *e)
{
    const struct intake_facts *f = &e->resident.intake;
    e->facts.io = weights_io_name(f->io);
    e->facts.io_direct = f->direct;
    e->facts.io_from_cache = f->from_cache;
    e->facts.mapped_bytes = e->resident.mapped_bytes;
    e->facts.read_bytes = e->resident.file_bytes;
    e->facts.read_s = e->resident.read_s;
    e->facts.touch_s = e->resident.touch_s;
    mc_log(MC_LOG_INFO, "engine: load io=%s direct=%d from_cache=%d mib=%llu s=%.3f%s%s", e->facts.io, f->direct, f->from_cache,
           (unsigned long long)(e->facts.read_bytes >> 20), e->facts.read_s, f->why[0] ? ": " : "", f->why);
}

uint64_t engine_pack_budget(uint64_t available_bytes, uint64_t session_bytes)
{
    const uint64_t slack = (available_bytes >> PACK_SLACK_SHIFT) + ((uint64_t)PACK_SLACK_MIB << 20);
    const uint64_t room = available_bytes > slack ? available_bytes - slack : 0;
    return room > session_bytes ? room - session_bytes : 0;
}

enum mc_code engine_session_room(const struct engine *e, struct session_options *so, struct session_memory *out,
                                 struct mc_err *err)
{
    const uint32_t most = e->model.shape.n_ctx_max;
    if (!so->n_ctx) so->n_ctx = most < CTX_DEFAULT ? most : CTX_DEFAULT;
    return session_memory_estimate(e, so, out, err);
}

enum mc_code engine_read_layout(const char *layout, enum engine_layout *out, struct mc_err *err)
{
    *out = ENGINE_LAYOUT_AUTO;
    if (!layout || !strcmp(layout, "auto")) return MC_OK;
    *out = !strcmp(layout, "packed") ? ENGINE_LAYOUT_PACKED : ENGINE_LAYOUT_FILE;
    if (*out == ENGINE_LAYOUT_PACKED || !strcmp(layout, "file")) return MC_OK;
    return mc_fail(err, MC_EARG, 0, "--layout %s is unknown; expected auto, file or packed", layout);
}

/* What weights and experts may take below the ceiling that the user gave: the process has grown to something already, a session
 * will come, and so will the tokenizer, stacks and buffers. */
static enum mc_code ceiling_of(const struct engine_options *opt, uint64_t session_bytes, uint64_t *out, struct mc_err *err)
{
    const uint64_t held = os_rss_peak_bytes(),
                   slack = ((uint64_t)CEILING_SLACK_MIB << 20) + (opt->memory_bytes >> CEILING_SLACK_SHIFT);
    const uint64_t taken = held + session_bytes + slack;
    *out = UINT64_MAX;
    if (!opt->memory_bytes) return MC_OK;
    if (taken >= opt->memory_bytes)
        return mc_fail(
            err, MC_ENOMEM, 0,
            "--memory: %llu MiB are too few: the session takes %llu MiB (--ctx, --batch), the program %llu MiB; weights "
            "come on top",
            (unsigned long long)(opt->memory_bytes >> 20), (unsigned long long)(session_bytes >> 20),
            (unsigned long long)((held + slack) >> 20));
    *out = opt->memory_bytes - taken;
    return MC_OK;
}

/* The free memory is that of the machine or of this process's cgroup, whichever is less. */
enum mc_code engine_make_resident(const struct engine_options *opt, struct engine *e, const struct resident_foresee *foresee,
                                  struct mc_err *err)
{
    struct resident_options ro = {
        .touch_first = opt->touch_first, .progress = opt->progress, .progress_user = opt->progress_user, .foresee = foresee};
    enum engine_layout layout;
    enum mc_code code = engine_read_layout(opt->layout, &layout, err);
    if (!code) code = io_of_name(opt->io ? opt->io : "auto", &ro.io, err);
    if (!code) code = hugepages_of_name(opt->hugepages ? opt->hugepages : "auto", &ro.huge, err);
    if (!code) code = numa_of_name(opt->numa ? opt->numa : "auto", &ro.numa, err);
    if (code) return code;
    ro.pinned = e->facts.pinned;
    ro.assumed_nodes = opt->assumed_nodes;
    const bool packed = layout == ENGINE_LAYOUT_PACKED && !e->exact;
    for (uint32_t il = 0; il < e->model.shape.n_layer && !packed; il++) {
        e->model.layers[il].up.keep_rows = opt->keep_up_exps && !e->model.layers[il].hash_ids;
        e->model.layers[il].up_shared.keep_rows = opt->keep_up_shexp && !e->model.layers[il].hash_ids;
    }
    ro.layout = e->exact ? RESIDENT_FILE : (enum resident_layout)layout; /* the same names in the same order */
    struct session_memory session = {0};
    if (opt->session) {
        struct session_options so = *opt->session;
        code = engine_session_room(e, &so, &session, err);
        if (code) return code;
    }
    const uint64_t available = foresee ? foresee->available_bytes : os_memory_available_bytes();
    ro.budget_bytes = engine_pack_budget(available, session.total_bytes);
    if (foresee && opt->memory_bytes) ro.budget_bytes = UINT64_MAX / 2; /* a plan for a machine that has it */
    e->ceiling = opt->memory_bytes > 0;
    code = ceiling_of(opt, session.total_bytes, &ro.ceiling_bytes, err);
    struct expert_cache_options eo = {0};
    struct expert_layer *const layers = calloc(e->model.shape.n_layer, sizeof *layers);
    if (!code && !layers) code = mc_fail(err, MC_ENOMEM, 0, "out of memory for the engine");
    if (!code) code = streaming_wish(opt, e, layers, &eo, &ro, err);
    struct resident *const r = &e->resident;
    if (!code) code = resident_create(&e->model, &e->kern, e->gguf, e->weights, e->team, &ro, r, err);
    if (!code && r->streams && !foresee) code = streaming_start(opt, &eo, ro.streaming.required, e, err);
    free(layers);
    if (e->ceiling && !foresee) weights_forget_all(e->weights);
    if (code || foresee) return code;
    if (packed && !r->n_packed && !r->n_left)
        return mc_fail(err, MC_EARG, 0,
                       "--layout packed: the %s kernels have no packed form of this model's types; use auto or file",
                       e->kern.isa);
    if (packed && r->n_left)
        return mc_fail(err, MC_ENOMEM, 0,
                       "--layout packed: %u matrices do not fit the %llu MiB that are free; use --layout auto or file",
                       r->n_left, (unsigned long long)(available >> 20));
    if (r->n_left)
        mc_log(MC_LOG_WARN,
               "engine: resident left=%u: %u matrices stay mapped from the file because %llu MiB are free; those are slower",
               r->n_left, r->n_left, (unsigned long long)(available >> 20));
    report_io(e);
    report_pages(e);
    report_nodes(e, ro.numa);
    e->facts.packed_bytes = r->packed_bytes;
    e->facts.packed_file_bytes = r->packed_file_bytes;
    return MC_OK;
}

static enum mc_code create_settings(struct engine *e, struct mc_err *err)
{
    const struct model_shape *s = &e->model.shape;
    const struct settings_limits limits = {s->n_layer, s->n_hash_layer, s->n_used};
    return settings_box_create(&limits, &e->settings, err);
}

static void count_bytes(struct engine *e)
{
    for (size_t i = 0; i < gguf_n_parts(e->gguf); i++) e->facts.file_bytes += gguf_part_size(e->gguf, i);
    for (size_t i = 0; i < gguf_n_tensors(e->gguf); i++) e->facts.tensor_bytes += gguf_tensor_at(e->gguf, i)->size_bytes;
    model_token_bytes(&e->model, &e->facts.token_bytes_layers, &e->facts.token_bytes_head);
}

enum mc_code engine_bind(const struct engine_options *opt, struct engine *e, struct mc_err *err)
{
    struct model_shape *shape = malloc(sizeof *shape);
    enum mc_code code = shape ? MC_OK : mc_fail(err, MC_ENOMEM, 0, "out of memory for the engine");
    e->exact = opt->arith == ENGINE_EXACT;
    if (!code) code = choose_kernels(opt->isa, e, err);
    if (!code) code = gguf_open(opt->model_path, &e->gguf, err);
    if (!code) code = model_shape_read(e->gguf, shape, err);
    if (!code) code = weights_open(e->gguf, &e->weights, err);
    if (!code) code = model_bind(e->gguf, e->weights, shape, &e->kern, &e->model, err);
    free(shape);
    if (code) return code;
    e->bound = true;
    count_bytes(e);
    return MC_OK;
}

enum mc_code engine_open(const struct engine_options *opt, struct engine **out, struct mc_err *err)
{
    const uint64_t begin_ns = os_clock_ns();
    struct engine *e = calloc(1, sizeof *e);
    enum mc_code code = e ? engine_bind(opt, e, err) : mc_fail(err, MC_ENOMEM, 0, "out of memory for the engine");
    if (!code) code = create_settings(e, err);
    if (!code) code = start_team(opt, e, err);
    if (!code) code = engine_make_resident(opt, e, NULL, err);
    if (!code) settings_box_up_packed(e->settings, !engine_rows_saving(e, 64, 0), !engine_rows_saving(e, 0, 64));
    if (!code && weights_damaged(e->weights))
        code = mc_fail(err, MC_EIO, 0, "%s: the file became shorter or unreadable while it was opened",
                       weights_damaged(e->weights));
    if (code) {
        engine_close(e);
        return code;
    }
    e->facts.load_s = (double)(os_clock_ns() - begin_ns) * 1e-9;
    mc_log(MC_LOG_INFO, "engine: open isa=%s threads=%u pinned=%d io=%s arith=%s", e->facts.isa, e->facts.n_threads,
           e->facts.pinned, e->facts.io, e->exact ? "exact" : "fast");
    *out = e;
    return MC_OK;
}

void engine_close(struct engine *e)
{
    if (!e) return;
    if (e->team) workers_destroy(e->team);
    streaming_end(e);
    resident_destroy(&e->resident);
    settings_box_destroy(e->settings);
    if (e->bound) model_unbind(&e->model);
    if (e->weights) weights_close(e->weights);
    if (e->gguf) gguf_close(e->gguf);
    free(e);
}

const struct model_shape *engine_shape(const struct engine *e)
{
    return &e->model.shape;
}

const struct gguf *engine_gguf(const struct engine *e)
{
    return e->gguf;
}

void engine_facts_get(const struct engine *e, struct engine_facts *out)
{
    *out = e->facts;
}

struct workers *engine_workers(struct engine *e)
{
    return e->team;
}

struct settings_box *engine_settings(struct engine *e)
{
    return e->settings;
}

void engine_counts_get(const struct engine *e, struct engine_counts *out)
{
    uint64_t *const to[] = {&out->steps_decoded,   &out->experts_used, &out->experts_dropped,
                            &out->rows_computed,   &out->rows_skipped, &out->bytes_saved,
                            &out->tokens_appended, &out->append_ns,    &out->decode_ns};
    _Static_assert(ARRAY_LEN(to) == ARRAY_LEN(e->counts), "every counter has its place");
    for (size_t i = 0; i < ARRAY_LEN(to); i++) *to[i] = atomic_load_explicit(&e->counts[i], memory_order_relaxed);
}

uint64_t engine_rows_saving(const struct engine *e, uint32_t rows_exps, uint32_t rows_shexp)
{
    const struct model_shape *s = &e->model.shape;
    uint64_t sum = 0;
    for (uint32_t il = 0; il < s->n_layer; il++) {
        const struct layer_weights *L = &e->model.layers[il];
        if (L->hash_ids) continue;
        if (!L->up.packed) sum += s->n_used * (s->d_expert - kern_rows_kept(s->d_expert, rows_exps)) * L->up.row_bytes;
        if (!L->up_shared.packed) sum += (s->d_expert - kern_rows_kept(s->d_expert, rows_shexp)) * L->up_shared.row_bytes;
    }
    return sum;
}
