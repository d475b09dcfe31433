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
    return mc_fail(err, MC_EARG, 0, "--io %s is unknown; expected auto or mmap", name);
}

/* "auto", "off", or a comma list of CPU numbers. */
static enum mc_code read_pin(const char *pin, struct placement_wish *wish, unsigned list[PLACEMENT_MAX], struct mc_err *err)
{
    wish->pin = PLACEMENT_PIN_AUTO;
    if (!pin || !strcmp(pin, "auto")) return MC_OK;
    wish->pin = PLACEMENT_PIN_OFF;
    if (!strcmp(pin, "off")) return MC_OK;
    wish->pin = PLACEMENT_PIN_LIST;
    wish->list = list;
    for (const char *p = pin; wish->n_list < PLACEMENT_MAX; p++) {
        char *end;
        const unsigned long cpu = strtoul(p, &end, 10);
        if (end == p || *p < '0' || *p > '9' || cpu > MACHINE_CPUS_MAX || (*end && *end != ',')) break;
        list[wish->n_list++] = (unsigned)cpu;
        if (!*end) return MC_OK;
        p = end;
    }
    return mc_fail(err, MC_EARG, 0, "--pin %s cannot be read; expected auto, off or CPU numbers like 0,2,4", pin);
}

static enum mc_code start_team(const struct engine_options *opt, struct engine *e, struct mc_err *err)
{
    unsigned list[PLACEMENT_MAX];
    struct placement_wish wish = {.n_threads = opt->n_threads};
    struct placement *plan = malloc(sizeof *plan);
    struct machine *machine = malloc(sizeof *machine);
    enum mc_code code = plan && machine ? MC_OK : mc_fail(err, MC_ENOMEM, 0, "out of memory for the machine's description");
    if (!code) code = read_pin(opt->pin, &wish, list, err);
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
enum { PACK_SLACK_SHIFT = 4 /* a sixteenth of what is free, and */, PACK_SLACK_MIB = 512 };

/* Packs matrices as `layout` asks. The free memory is that of the machine or of this process's cgroup, whichever is less. */
static enum mc_code make_resident(const struct engine_options *opt, struct engine *e, struct mc_err *err)
{
    const char *const layout = opt->layout;
    const bool automatic = !layout || !strcmp(layout, "auto"), packed = !automatic && !strcmp(layout, "packed");
    if (!automatic && !packed && strcmp(layout, "file") != 0)
        return mc_fail(err, MC_EARG, 0, "--layout %s is unknown; expected auto, file or packed", layout);
    if ((!automatic && !packed) || e->exact) return MC_OK;
    for (uint32_t il = 0; il < e->model.shape.n_layer && !packed; il++) {
        e->model.layers[il].up.keep_rows = opt->keep_up_exps && !e->model.layers[il].hash_ids;
        e->model.layers[il].up_shared.keep_rows = opt->keep_up_shexp && !e->model.layers[il].hash_ids;
    }
    const uint64_t available = os_memory_available_bytes(),
                   slack = (available >> PACK_SLACK_SHIFT) + ((uint64_t)PACK_SLACK_MIB << 20);
    const uint64_t budget = available > slack ? available - slack : 0;
    const enum mc_code code = resident_create(&e->model, &e->kern, e->weights, e->team, budget, packed, opt->progress,
                                              opt->progress_user, &e->resident, err);
    if (code) return code;
    if (packed && !e->resident.n_packed && !e->resident.n_left)
        return mc_fail(err, MC_EARG, 0,
                       "--layout packed: the %s kernels have no packed form of this model's types; use auto or file",
                       e->kern.isa);
    if (packed && e->resident.n_left)
        return mc_fail(err, MC_ENOMEM, 0,
                       "--layout packed: %u matrices do not fit the %llu MiB that are free; use --layout auto or file",
                       e->resident.n_left, (unsigned long long)(available >> 20));
    if (e->resident.n_left)
        mc_log(MC_LOG_WARN,
               "engine: layout packed=%u left=%u: %u matrices stay mapped from the file because %llu MiB are free; those are "
               "slower",
               e->resident.n_packed, e->resident.n_left, e->resident.n_left, (unsigned long long)(available >> 20));
    e->facts.packed_bytes = e->resident.memory_bytes;
    e->facts.packed_file_bytes = e->resident.file_bytes;
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

enum mc_code engine_open(const struct engine_options *opt, struct engine **out, struct mc_err *err)
{
    const uint64_t begin_ns = os_clock_ns();
    struct model_shape *shape = malloc(sizeof *shape);
    struct engine *e = calloc(1, sizeof *e);
    enum weights_io io = WEIGHTS_AUTO;
    enum mc_code code = e && shape ? MC_OK : mc_fail(err, MC_ENOMEM, 0, "out of memory for the engine");
    if (!code) e->exact = opt->arith == ENGINE_EXACT;
    if (!code) code = choose_kernels(opt->isa, e, err);
    if (!code) code = io_of_name(opt->io ? opt->io : "auto", &io, err);
    if (!code) code = gguf_open(opt->model_path, &e->gguf, err);
    if (!code) code = model_shape_read(e->gguf, shape, err);
    if (!code) code = weights_open(e->gguf, io, &e->weights, err);
    if (!code) code = model_bind(e->gguf, e->weights, shape, &e->kern, &e->model, err);
    if (!code) e->bound = true;
    if (!code) code = create_settings(e, err);
    if (!code) code = start_team(opt, e, err);
    if (!code) code = make_resident(opt, e, err);
    if (!code && weights_damaged(e->weights))
        code = mc_fail(err, MC_EIO, 0, "%s: the file became shorter or unreadable while it was opened",
                       weights_damaged(e->weights));
    free(shape);
    if (code) {
        engine_close(e);
        return code;
    }
    count_bytes(e);
    if (!e->resident.n_packed || e->resident.n_left || e->resident.n_file) weights_prefault(e->weights);
    e->facts.load_s = (double)(os_clock_ns() - begin_ns) * 1e-9;
    mc_log(MC_LOG_INFO, "engine: open isa=%s threads=%u pinned=%d io=%s arith=%s", e->facts.isa, e->facts.n_threads,
           e->facts.pinned, weights_io_name(weights_mode(e->weights)), e->exact ? "exact" : "fast");
    *out = e;
    return MC_OK;
}

void engine_close(struct engine *e)
{
    if (!e) return;
    if (e->team) workers_destroy(e->team);
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
    uint64_t *const to[] = {&out->steps_decoded, &out->experts_used, &out->experts_dropped,
                            &out->rows_computed, &out->rows_skipped, &out->bytes_saved};
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
