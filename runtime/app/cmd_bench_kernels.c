/* cmd_bench_kernels.c - `modchip bench kernels`: kernels/check, printed beside the ceiling that the memory sets: how many
 * weights a cycle one core could read if it did nothing else (measured first, in the same way as for `bench`). What one barrier
 * of the team costs is a line of its own. A kernel that differs from its scalar twin makes it fail. */
#include "kernels/check/checkkern.h"
#include "kernels/cpu_flags.h"
#include "platform/os.h"
#include "runtime/app/bench_memory.h"
#include "runtime/app/commands.h"
#include "runtime/app/json_out.h"
#include "runtime/app/options.h"
#include "topology/discover.h"
#include "topology/placement.h"
#include "topology/workers.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct table {
    bool json;
    size_t n_rows;
    double memory_gb_s; /* of one core */
    struct json_out rows;
};

static bool reads_weights(const struct check_row *r)
{
    return !strncmp(r->kernel, "matmul", 6) || !strncmp(r->kernel, "packed", 6);
}

/* A team as this machine gets it: n_threads 0 is one a core. NULL when it cannot be had. */
static struct workers *team_of(unsigned n_threads, struct placement *place)
{
    struct machine *machine = malloc(sizeof *machine);
    struct workers *team = NULL;
    if (machine) {
        discover_this_machine(machine);
        if (!placement_plan(machine, &(struct placement_wish){.n_threads = n_threads}, place, NULL) &&
            workers_create(place, &team, NULL))
            team = NULL;
    }
    free(machine);
    return team;
}

/* NaN where that cannot be measured; the table is the same without it. */
static double one_core_gb_s(void)
{
    struct placement place;
    struct workers *const team = team_of(1, &place);
    struct memory_reader *reader = NULL;
    double gb_s = (double)NAN;
    if (team && !memory_reader_create(team, &reader, NULL)) gb_s = memory_reader_measure(reader);
    memory_reader_destroy(reader);
    workers_destroy(team);
    return gb_s;
}

/* ---- the barrier ------------------------------------------------------------------------------------------------------ */

enum { BARRIER_SYNCS = 20000, BARRIER_RUNS = 5, BUSY_NS = 500000000 };

struct barrier {
    unsigned workers, groups;
    double ns; /* of one sync when nobody is late: the best run */
    /* The mean of all syncs while a thread that never sleeps shares the last worker's CPU: the system stops that worker for
     * whole time slices. NaN when workers are not pinned. */
    double busy_ns;
};

struct neighbour {
    unsigned cpu;
    atomic_bool stop;
};

static void never_sleep(void *arg)
{
    struct neighbour *const n = arg;
    struct mc_err err;
    if (os_thread_bind(n->cpu, &err)) return;
    while (!atomic_load_explicit(&n->stop, memory_order_relaxed)) os_cpu_relax();
}

static void sync_often(void *arg, struct worker *w)
{
    (void)arg;
    for (unsigned i = 0; i < BARRIER_SYNCS; i++) workers_sync(w);
}

static double barrier_beside(struct workers *team, unsigned cpu)
{
    struct neighbour n = {.cpu = cpu};
    struct os_thread *thread;
    uint64_t begin, now, runs = 0;
    if (os_thread_start(never_sleep, &n, "neighbour", &thread, NULL)) return (double)NAN;
    for (begin = now = os_clock_ns(); now - begin < BUSY_NS && !os_interrupted(); now = os_clock_ns(), runs++)
        workers_run(team, sync_often, NULL);
    atomic_store_explicit(&n.stop, true, memory_order_relaxed);
    os_thread_join(thread);
    return (double)(now - begin) / ((double)runs * BARRIER_SYNCS);
}

static struct barrier measure_barrier(void)
{
    struct barrier b = {0, 0, (double)NAN, (double)NAN};
    struct placement place;
    struct workers *const team = team_of(0, &place);
    if (!team) return b;
    b.workers = workers_count(team);
    b.groups = place.n_groups;
    for (unsigned i = 0; i < BARRIER_RUNS; i++) {
        const uint64_t start = os_clock_ns();
        workers_run(team, sync_often, NULL);
        const double ns = (double)(os_clock_ns() - start) / BARRIER_SYNCS;
        if (i == 0 || ns < b.ns) b.ns = ns;
    }
    if (place.pinned && b.workers > 1) b.busy_ns = barrier_beside(team, place.cpu[b.workers - 1]);
    workers_destroy(team);
    return b;
}

static void on_row(void *user, const struct check_row *r)
{
    struct table *t = user;
    const bool first = !t->n_rows++;
    const double ceiling = r->weights_per_cycle * t->memory_gb_s / r->gb_s;
    if (t->json) {
        struct json_out *j = &t->rows;
        json_out_object(j, NULL);
        json_out_text(j, "kernel", r->kernel);
        json_out_text(j, "isa", r->isa);
        json_out_bool(j, "ok", r->ok);
        if (!r->ok) json_out_text(j, "detail", r->detail);
        json_out_num(j, "weights_per_cycle", r->weights_per_cycle);
        if (r->products_per_cycle8 > 0) json_out_num(j, "products_per_cycle_8_columns", r->products_per_cycle8);
        json_out_num(j, "gb_s", r->gb_s);
        if (reads_weights(r)) json_out_num(j, "ceiling_weights_per_cycle", ceiling);
        json_out_num(j, "speedup", r->speedup);
        json_out_object_end(j);
        return;
    }
    if (first) {
        printf("memory: one core reads %.1f GB/s; ceiling: the weights a cycle that this is\n", t->memory_gb_s);
        printf("%-22s %-10s %-4s %9s %9s %9s %9s %8s\n", "kernel", "isa", "", "w/cycle", "ceiling", "8 columns", "GB/s",
               "speedup");
    }
    printf("%-22s %-10s %-4s %9.2f ", r->kernel, r->isa, r->ok ? "ok" : "BAD", r->weights_per_cycle);
    if (reads_weights(r) && isfinite(ceiling))
        printf("%9.2f", ceiling);
    else
        printf("%9s", "");
    printf(" %9.2f %9.2f %8.2f\n", r->products_per_cycle8, r->gb_s, r->speedup);
    if (!r->ok) printf("    %s\n", r->detail);
    fflush(stdout); /* the whole table takes a while */
}

static bool interrupted(void *user)
{
    (void)user;
    return os_interrupted();
}

enum mc_code cmd_bench_kernels(const struct app_options *o, struct mc_err *err)
{
    struct check_options co = {.only = o->n_args ? o->args[0] : NULL, .seed = 1, .bench = true, .stop = interrupted};
    if (kern_isa_flags(opt_text(o, OPT_ISA), &co.cpu_flags))
        return mc_fail(err, MC_EARG, 0, "--isa %s: this CPU does not have it", opt_text(o, OPT_ISA));
    struct table t = {.json = opt_flag(o, OPT_JSON), .memory_gb_s = one_core_gb_s()};
    json_out_init(&t.rows);
    json_out_array(&t.rows, NULL);
    size_t n_failed = 0;
    const bool has_barrier = !co.only || strstr("barrier", co.only);
    const struct barrier barrier = has_barrier ? measure_barrier() : (struct barrier){.workers = 0};
    if (has_barrier && !t.json)
        printf("barrier: %u workers in %u L3 groups meet in %.0f ns", barrier.workers, barrier.groups, barrier.ns);
    if (has_barrier && !t.json)
        printf(isfinite(barrier.busy_ns) ? ", in %.0f ns beside a busy thread on one of their CPUs\n" : "\n", barrier.busy_ns);
    enum mc_code code = check_run(&co, on_row, &t, &n_failed, err);
    json_out_array_end(&t.rows);
    if (!code && !t.n_rows && !has_barrier)
        code = mc_fail(err, MC_EARG, 0, "no kernel's name holds '%s'", co.only ? co.only : "");
    if (!code && t.json) {
        struct json_out j;
        json_out_init(&j);
        json_out_object(&j, NULL);
        json_out_num(&j, "memory_gb_s", t.memory_gb_s);
        if (has_barrier) {
            json_out_object(&j, "barrier");
            json_out_uint(&j, "workers", barrier.workers);
            json_out_uint(&j, "groups", barrier.groups);
            json_out_num(&j, "ns", barrier.ns);
            json_out_num(&j, "busy_neighbour_ns", barrier.busy_ns);
            json_out_object_end(&j);
        }
        json_out_splice(&j, "kernels", &t.rows);
        json_out_uint(&j, "failed", n_failed);
        json_out_object_end(&j);
        code = json_out_finish(&j, err);
    }
    json_out_deinit(&t.rows);
    if (!code && n_failed) code = mc_fail(err, MC_EFORMAT, 0, "%zu kernels differ from their scalar twin", n_failed);
    return code;
}
