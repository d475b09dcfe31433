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
enum { PACK_SLACK_SHIFT = 4 /* a sixteenth of what is free, and */, PACK_SLACK_MIB = 512 };

uint64_t engine_pack_budget(uint64_t available_bytes)
{
    const uint64_t slack = (available_bytes >> PACK_SLACK_SHIFT) + ((uint64_t)PACK_SLACK_MIB << 20);
    return available_bytes > slack ? available_bytes - slack : 0;
}

enum mc_code engine_read_layout(const char *layout, enum engine_layout *out, struct mc_err *err)
{
    *out = ENGINE_LAYOUT_AUTO;
    if (!layout || !strcmp(layout, "auto")) return MC_OK;
    *out = !strcmp(layout, "packed") ? ENGINE_LAYOUT_PACKED : ENGINE_LAYOUT_FILE;
    if (*out == ENGINE_LAYOUT_PACKED || !strcmp(layout, "file")) return MC_OK;
    return mc_fail(err, MC_EARG, 0, "--layout %s is unknown; expected auto, file or packed", layout);
}

/* Packs matrices as `layout` asks. The free memory is that of the machine or of this process's cgroup, whichever is less. */
static enum mc_code make_resident(const struct engine_options *opt, struct engine *e, struct mc_err *err)
{
    enum engine_layout layout;
    enum mc_code code = engine_read_layout(opt->layout, &layout, err);
    if (code || layout == ENGINE_LAYOUT_FILE || e->exact) return code;
    const bool packed = layout == ENGINE_LAYOUT_PACKED;
    const uint64_t available = os_memory_available_bytes();
    code = resident_create(&e->model, &e->kern, e->weights, e->team, engine_pack_budget(available), packed, opt->progress,
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

static void count_bytes(struct engine *e)
{
    for (size_t i = 0; i < gguf_n_parts(e->gguf); i++) e->facts.file_bytes += gguf_part_size(e->gguf, i);
    for (size_t i = 0; i < gguf_n_tensors(e->gguf); i++) e->facts.tensor_bytes += gguf_tensor_at(e->gguf, i)->size_bytes;
    model_token_bytes(&e->model, &e->facts.token_bytes_layers, &e->facts.token_bytes_head);
}

enum mc_code engine_bind(const struct engine_options *opt, struct engine *e, struct mc_err *err)
{
    enum weights_io io = WEIGHTS_AUTO;
    struct model_shape *shape = malloc(sizeof *shape);
    enum mc_code code = shape ? MC_OK : mc_fail(err, MC_ENOMEM, 0, "out of memory for the engine");
    e->exact = opt->arith == ENGINE_EXACT;
    if (!code) code = choose_kernels(opt->isa, e, err);
    if (!code) code = io_of_name(opt->io ? opt->io : "auto", &io, err);
    if (!code) code = gguf_open(opt->model_path, &e->gguf, err);
    if (!code) code = model_shape_read(e->gguf, shape, err);
    if (!code) code = weights_open(e->gguf, io, &e->weights, err);
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
    if (!code) code = start_team(opt, e, err);
    if (!code) code = make_resident(opt, e, err);
    if (!code && weights_damaged(e->weights))
        code = mc_fail(err, MC_EIO, 0, "%s: the file became shorter or unreadable while it was opened",
                       weights_damaged(e->weights));
    if (code) {
        engine_close(e);
        return code;
    }
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
