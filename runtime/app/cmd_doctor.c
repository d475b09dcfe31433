/* cmd_doctor.c - `modchip doctor`: what of this machine helps or hinders the model, and what to do about it.
 *
 * A finding is a line: how it is, and the remedy where it could be better. Only what keeps the model from running makes the
 * command fail. */
#include "kernels/cpu_flags.h"
#include "platform/os.h"
#include "runtime/app/bench_memory.h"
#include "runtime/app/commands.h"
#include "runtime/app/json_out.h"
#include "runtime/app/machine_plan.h"
#include "runtime/app/model.h"
#include "runtime/app/options.h"
#include "runtime/engine/plan.h"
#include "topology/workers.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum state { GOOD, SLOWER, BLOCKS };
static const char *const state_names[] = {"ok", "slower", "blocks"};

struct finding {
    const char *name;
    enum state state;
    char found[240], remedy[320];
};

enum { FINDINGS_MAX = 16, OPEN_FILES_MIN = 8 };

struct doctor {
    const struct app_options *o;
    struct finding list[FINDINGS_MAX];
    size_t n;
    struct os_system system;
    struct machine_plan *machine;
    struct workers *team;
    uint64_t hugepage_bytes; /* that the model asks for; 0: unknown */
    uint64_t weights_bytes;  /* of them the weights */
};

MC_PRINTF(3, 4) static struct finding *add(struct doctor *d, const char *name, const char *format, ...)
{
    struct finding *const f = &d->list[d->n++];
    va_list args;
    *f = (struct finding){.name = name};
    va_start(args, format);
    vsnprintf(f->found, sizeof f->found, format, args);
    va_end(args);
    return f;
}

MC_PRINTF(3, 4) static void remedy(struct finding *f, enum state state, const char *format, ...)
{
    va_list args;
    f->state = state;
    va_start(args, format);
    vsnprintf(f->remedy, sizeof f->remedy, format, args);
    va_end(args);
}

static double gb(uint64_t bytes)
{
    return (double)bytes * 1e-9;
}

/* ---- what is looked at ------------------------------------------------------------------------------------------------- */

static void look_at_cpu(struct doctor *d)
{
    uint32_t flags;
    if (kern_isa_flags(opt_text(d->o, OPT_ISA), &flags)) flags = kern_cpu_flags(); /* refused: the model's finding */
    struct finding *const f = add(d, "cpu", "%s kernels",
                                  flags & KERN_AVX512     ? "AVX-512"
                                  : flags & KERN_AVX_VNNI ? "AVX2 with VNNI"
                                  : flags & KERN_AVX2     ? "AVX2"
                                                          : "scalar");
    if (!(flags & KERN_AVX2) && kern_cpu_flags() & KERN_AVX2)
        remedy(f, SLOWER, "this CPU has more: without --isa scalar it is some ten times as fast");
    else if (!(flags & KERN_AVX2))
        remedy(f, SLOWER, "a CPU with AVX2 is some ten times as fast; a virtual machine must be told to pass it on");
}

static void look_at_cores(struct doctor *d)
{
    const struct machine *const m = &d->machine->machine;
    const struct placement *const p = &d->machine->place;
    struct finding *const f = add(d, "cores", "%u workers%s on %u allowed CPUs of %u", p->n,
                                  p->pinned ? ", one a core," : ", not pinned,", m->n, m->n_present);
    if (p->shared)
        remedy(f, SLOWER, "they share CPUs and wait for each other; at most -t %u", m->n);
    else if (m->quota_milli && m->quota_milli / 1000 < m->n)
        remedy(f, SLOWER, "a quota of %.2f CPUs holds it back; give the container more CPU time", m->quota_milli / 1000.0);
    else if (m->n < m->n_cpuset)
        remedy(f, SLOWER, "started on %u of the %u CPUs that it could have; start it without taskset or numactl", m->n,
               m->n_cpuset);
}

static void look_at_governor(struct doctor *d)
{
    const struct os_system *const s = &d->system;
    struct finding *const f = add(d, "governor", "%s", s->governor[0] ? s->governor : "not told by this system");
    if (s->n_slow_cpus)
        remedy(f, SLOWER, "%u CPUs scale down between tokens; scripts/modchip.sh --setup sets performance while modchip runs",
               s->n_slow_cpus);
}

/* Asks for memory as loading would, and gives it back before it is touched. */
static bool can_have(uint64_t bytes, enum os_hugepages wish, const char *label, struct mc_err *why)
{
    struct os_region *region = NULL;
    if (bytes && os_region_create((size_t)bytes, wish, label, &region, why)) return false;
    os_region_destroy(region);
    return true;
}

static void look_at_hugepages(struct doctor *d)
{
    const struct os_system *const s = &d->system;
    struct finding *const f =
        add(d, "hugepages", "transparent: %s; reserved: %.2f GB in 2 MiB pages (%.2f free), %.2f GB in 1 GiB pages (%.2f free)",
            s->transparent[0] ? s->transparent : "none", gb(s->pool_bytes[0]), gb(s->pool_free_bytes[0]), gb(s->pool_bytes[1]),
            gb(s->pool_free_bytes[1]));
    struct os_caps caps;
    os_caps_get(&caps);
    static const enum os_hugepages wishes[] = {OS_HUGE_AUTO, OS_HUGE_OFF, OS_HUGE_THP, OS_HUGE_2M, OS_HUGE_1G};
    struct mc_err why = {.code = MC_OK};
    if (!can_have(d->weights_bytes, wishes[opt_int(d->o, OPT_HUGEPAGES)], "weights", &why) ||
        !can_have(d->hugepage_bytes, OS_HUGE_OFF, "weights, the cache and the activations", &why)) {
        remedy(f, BLOCKS, "%s", why.msg);
        return;
    }
    const uint64_t free_pool = s->pool_free_bytes[0] + s->pool_free_bytes[1];
    if (!caps.can_advise_hugepages && free_pool < d->hugepage_bytes)
        remedy(f, SLOWER,
               "weights get pages of %zu bytes: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, or "
               "scripts/hugepages.sh reserve %.0fM",
               caps.page_bytes, (double)d->hugepage_bytes / 1048576 + 2);
}

static void look_at_limits(struct doctor *d)
{
    const struct os_system *const s = &d->system;
    char locked[48] = "unlimited", files[32] = "unlimited";
    if (s->locked_limit_bytes != OS_NOT_LIMITED)
        snprintf(locked, sizeof locked, "%.1f MB", (double)s->locked_limit_bytes * 1e-6);
    if (s->open_files_limit != OS_NOT_LIMITED) snprintf(files, sizeof files, "%llu", (unsigned long long)s->open_files_limit);
    struct finding *const f = add(d, "limits", "locked memory %s, open files %s", locked, files);
    if (s->open_files_limit < OPEN_FILES_MIN)
        remedy(f, BLOCKS, "at least %d open files are needed: ulimit -n 1024", OPEN_FILES_MIN);
}

static void look_at_io_uring(struct doctor *d)
{
    struct os_ring *ring = NULL;
    struct mc_err why = {.code = MC_OK};
    if (!os_ring_create(8, &ring, &why)) {
        add(d, "io_uring", "works");
        os_ring_destroy(ring);
    } else {
        remedy(add(d, "io_uring", "%s", why.msg), SLOWER,
               "weights are read by threads instead, which is nearly as fast; nothing has to be done");
    }
}

static void look_at_memory(struct doctor *d)
{
    const struct os_system *const s = &d->system;
    const uint64_t mine = os_memory_available_bytes();
    struct finding *const f = add(d, "memory", "%.1f GB, %.1f GB free%s", gb(s->memory_bytes), gb(mine),
                                  mine < s->machine_free_bytes / 10 * 9 ? " under the limit of a control group" : "");
    if (mine < s->machine_free_bytes / 10 * 9)
        remedy(f, SLOWER, "the machine has %.1f GB free; raise the group's memory.max", gb(s->machine_free_bytes));
}

/* Opens the model as far as a plan needs it. */
static void look_at_model(struct doctor *d)
{
    char path[MODEL_PATH_MAX];
    struct mc_err why = {.code = MC_OK};
    struct engine_plan plan;
    const struct app_options *const o = d->o;
    enum mc_code code = model_path(o, path, &why);
    const struct engine_options eo = model_engine_wish(o, path);
    const struct session_options so = model_session_wish(o);
    if (!code) code = engine_plan_make(&eo, &so, 0, d->team, d->machine->place.pinned, &plan, &why);
    if (code) {
        remedy(add(d, "model", "%s", why.msg), BLOCKS, "give a model that modchip inspect can read, with options that fit it");
        return;
    }
    d->hugepage_bytes = plan.hugepage_bytes;
    d->weights_bytes = plan.hugepage_bytes - plan.session.kv_bytes - plan.session.activation_bytes;
    struct finding *const f = add(d, "model", "needs %.2f GB of %.2f GB", gb(plan.need_bytes), gb(plan.memory_bytes));
    if (!plan.fits)
        remedy(f, SLOWER,
               "%.0f %% of the experts find room; about %.0f MB a token come from the disk: a smaller --ctx, a smaller file, "
               "more memory",
               100 * plan.experts_cached, (double)plan.token_disk_bytes * 1e-6);
}

static enum mc_code measure_memory(struct doctor *d, struct mc_err *err)
{
    struct memory_reader *reader;
    const enum mc_code code = memory_reader_create(d->team, &reader, err);
    if (code) return code;
    const double gb_s = memory_reader_measure(reader);
    const char *const caveat = memory_reader_caveat(reader);
    memory_reader_destroy(reader);
    if (isfinite(gb_s))
        add(d, "memory speed", "%.1f GB/s read by the workers%s", gb_s, caveat);
    else
        add(d, "memory speed", "not measured: too little of it is free");
    return MC_OK;
}

static void measure_disk(struct doctor *d)
{
    double gb_s = (double)NAN;
    struct mc_err why = {.code = MC_OK};
    if (bench_disk(d->o, &gb_s, &why))
        add(d, "disk speed", "not measured: %s", why.msg);
    else if (isfinite(gb_s))
        add(d, "disk speed", "%.2f GB/s under the model file", gb_s);
    else
        add(d, "disk speed", "not measured: the model file is too small for it");
}

/* ---- output ------------------------------------------------------------------------------------------------------------ */

static const char *source_name(enum opt_source s)
{
    static const char *const names[] = {"default", "file", "environment", "command line"};
    return names[s];
}

/* The settings of the commands that load a model. */
static bool is_setting(enum opt_id id)
{
    return opt_taken_by(id, CMD_DOCTOR) && id != OPT_HELP && id != OPT_VERSION && id != OPT_JSON && id != OPT_QUICK;
}

static enum mc_code print_json(const struct doctor *d, struct mc_err *err)
{
    struct json_out j;
    json_out_init(&j);
    json_out_object(&j, NULL);
    json_out_array(&j, "findings");
    for (size_t i = 0; i < d->n; i++) {
        const struct finding *const f = &d->list[i];
        json_out_object(&j, NULL);
        json_out_text(&j, "check", f->name);
        json_out_text(&j, "state", state_names[f->state]);
        json_out_text(&j, "found", f->found);
        json_out_text(&j, "remedy", f->remedy[0] ? f->remedy : NULL);
        json_out_object_end(&j);
    }
    json_out_array_end(&j);
    json_out_array(&j, "settings");
    for (unsigned i = 0; i < OPT_COUNT; i++) {
        const enum opt_id id = (enum opt_id)i;
        if (!is_setting(id)) continue;
        json_out_object(&j, NULL);
        json_out_text(&j, "option", opt_name(id));
        json_out_text(&j, "value", opt_text(d->o, id));
        json_out_text(&j, "source", source_name(d->o->value[id].source));
        json_out_object_end(&j);
    }
    json_out_array_end(&j);
    json_out_object_end(&j);
    return json_out_finish(&j, err);
}

static void print_table(const struct doctor *d)
{
    for (size_t i = 0; i < d->n; i++) {
        const struct finding *const f = &d->list[i];
        printf("%-13s %-7s %s\n", f->name, state_names[f->state], f->found);
        if (f->remedy[0]) printf("%-13s %-7s -> %s\n", "", "", f->remedy);
    }
    printf("settings      ");
    unsigned n_default = 0;
    for (unsigned i = 0; i < OPT_COUNT; i++) {
        const enum opt_id id = (enum opt_id)i;
        if (!is_setting(id)) continue;
        if (opt_is_set(d->o, id))
            printf("%s = %s (%s)  ", opt_name(id), opt_text(d->o, id), source_name(d->o->value[id].source));
        else
            n_default++;
    }
    printf("defaults: %u, listed by --json\n", n_default);
}

static enum mc_code verdict(const struct doctor *d, struct mc_err *err)
{
    for (size_t i = 0; i < d->n; i++)
        if (d->list[i].state == BLOCKS)
            return mc_fail(err, MC_EIO, 0, "this cannot run: %s: %s; %s", d->list[i].name, d->list[i].found, d->list[i].remedy);
    return MC_OK;
}

enum mc_code cmd_doctor(const struct app_options *o, struct mc_err *err)
{
    struct doctor d = {.o = o};
    os_system_get(&d.system);
    say_openmp(o);
    enum mc_code code = machine_plan_make(o, &d.machine, err);
    if (!code) code = workers_create(&d.machine->place, &d.team, err);
    if (!code) {
        look_at_cpu(&d);
        look_at_cores(&d);
        look_at_governor(&d);
        look_at_model(&d);
        look_at_memory(&d);
        look_at_hugepages(&d);
        look_at_limits(&d);
        look_at_io_uring(&d);
        code = check_interrupt(err);
    }
    if (!code && !opt_flag(o, OPT_QUICK)) {
        code = measure_memory(&d, err);
        if (!code) measure_disk(&d);
    }
    workers_destroy(d.team);
    free(d.machine);
    if (code) return code;
    if (opt_flag(o, OPT_JSON)) {
        code = print_json(&d, err);
        if (code) return code;
    } else {
        print_table(&d);
    }
    return verdict(&d, err);
}
