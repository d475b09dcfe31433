/* cmd_topo.c - `modchip topo`: the machine as placement sees it, and which worker it would put where. */
#include "platform/os.h"
#include "runtime/app/commands.h"
#include "runtime/app/json_out.h"
#include "runtime/app/machine_plan.h"
#include "runtime/app/model.h"
#include "runtime/app/options.h"
#include "runtime/app/output.h"
#include "topology/draw.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

struct counts {
    unsigned cores, packages, nodes, l3, smt; /* smt: most CPUs of a core */
};

static struct counts count_all(const struct machine *m)
{
    struct counts c = {
        .cores = machine_count(m, offsetof(struct os_cpu_row, core)),
        .packages = machine_count(m, offsetof(struct os_cpu_row, package)),
        .nodes = machine_count(m, offsetof(struct os_cpu_row, node)),
        .l3 = machine_count(m, offsetof(struct os_cpu_row, l3)),
        .smt = 1,
    };
    for (unsigned i = 0; i < m->n; i++)
        if (m->sibling[i] >= c.smt) c.smt = m->sibling[i] + 1;
    return c;
}

static const struct os_cpu_row *row_of(const struct machine *m, unsigned cpu)
{
    for (unsigned i = 0; i < m->n; i++)
        if (m->cpu[i].cpu == cpu) return &m->cpu[i];
    return NULL;
}

/* Cores of the i-th kind, fastest first; 0 behind the last one. */
static unsigned cores_of_kind(const struct machine *m, unsigned i, unsigned *efficiency)
{
    unsigned below = OS_CPU_NONE, n = 0;
    for (unsigned k = 0; k <= i; k++) {
        unsigned best = 0;
        n = 0;
        for (unsigned at = 0; at < m->n; at++) {
            const unsigned e = m->cpu[at].efficiency;
            if (m->sibling[at] || e >= below) continue;
            n = e > best || n == 0 ? 1 : n + (e == best);
            if (e > best) best = e;
        }
        below = best;
    }
    *efficiency = below;
    return n;
}

/* ---- JSON ------------------------------------------------------------------------------------------------------------- */

static void json_id(struct json_out *j, const char *key, unsigned id)
{
    if (id == OS_CPU_NONE)
        json_out_null(j, key);
    else
        json_out_uint(j, key, id);
}

static void json_size(struct json_out *j, const char *key, uint64_t bytes)
{
    if (bytes)
        json_out_uint(j, key, bytes);
    else
        json_out_null(j, key);
}

static void json_groups(struct json_out *j, const struct machine *m)
{
    json_out_array(j, "groups");
    for (unsigned g = 0; g < m->n_groups; g++) {
        unsigned first = 0;
        while (m->group[first] != g) first++;
        json_out_object(j, NULL);
        json_id(j, "node", m->cpu[first].node);
        json_id(j, "l3", m->cpu[first].l3);
        json_size(j, "l3_bytes", m->cpu[first].l3 == OS_CPU_NONE ? 0 : m->cpu[first].l3_bytes);
        json_out_array(j, "cpus");
        for (unsigned i = 0; i < m->n; i++)
            if (m->group[i] == g) json_out_uint(j, NULL, m->cpu[i].cpu);
        json_out_array_end(j);
        json_out_object_end(j);
    }
    json_out_array_end(j);
}

static void json_threads(struct json_out *j, const struct machine_plan *p)
{
    static const struct os_cpu_row nowhere = {.cpu = OS_CPU_NONE, .core = OS_CPU_NONE, .l3 = OS_CPU_NONE, .node = OS_CPU_NONE};
    json_out_array(j, "threads");
    for (unsigned i = 0; i < p->place.n; i++) {
        const struct os_cpu_row *row = p->place.pinned ? row_of(&p->machine, p->place.cpu[i]) : NULL;
        if (!row) row = &nowhere;
        json_out_object(j, NULL);
        json_out_uint(j, "thread", i);
        json_id(j, "cpu", row->cpu);
        json_id(j, "core", row->core);
        json_id(j, "l3", row->l3);
        json_id(j, "node", row->node);
        json_out_object_end(j);
    }
    json_out_array_end(j);
}

static enum mc_code print_json(const struct machine_plan *p, struct mc_err *err)
{
    const struct machine *const m = &p->machine;
    const struct counts c = count_all(m);
    struct json_out j;
    json_out_init(&j);
    json_out_object(&j, NULL);
    json_out_uint(&j, "cpus", m->n);
    json_out_uint(&j, "cpus_present", m->n_present);
    json_out_uint(&j, "cpus_in_cpuset", m->n_cpuset);
    json_out_num(&j, "cpu_quota", m->quota_milli ? m->quota_milli / 1000.0 : (double)NAN);
    json_out_uint(&j, "cores", c.cores);
    json_out_uint(&j, "cpus_per_core", c.smt);
    json_out_uint(&j, "packages", c.packages);
    json_out_uint(&j, "nodes", c.nodes);
    json_out_uint(&j, "l3_groups", c.l3);
    json_size(&j, "l1d_bytes", m->cpu[0].l1d_bytes);
    json_size(&j, "l2_bytes", m->cpu[0].l2_bytes);
    json_out_array(&j, "core_kinds");
    for (unsigned i = 0, n, efficiency; (n = cores_of_kind(m, i, &efficiency)) > 0; i++) {
        json_out_object(&j, NULL);
        json_out_uint(&j, "efficiency", efficiency);
        json_out_uint(&j, "cores", n);
        json_out_object_end(&j);
    }
    json_out_array_end(&j);
    json_groups(&j, m);
    json_out_bool(&j, "pinned", p->place.pinned);
    json_threads(&j, p);
    json_out_object_end(&j);
    return json_out_finish(&j, err);
}

/* ---- table ------------------------------------------------------------------------------------------------------------ */

/* Prints ascending numbers as "0-7,16". */
struct ranges {
    unsigned first, last;
    bool any, printed;
};

static void range_end(struct ranges *r)
{
    if (!r->any) return;
    if (r->printed) printf(",");
    printf("%u", r->first);
    if (r->last > r->first) printf("-%u", r->last);
    r->printed = true;
    r->any = false;
}

static void range_add(struct ranges *r, unsigned value)
{
    if (r->any && value == r->last + 1) {
        r->last = value;
        return;
    }
    range_end(r);
    *r = (struct ranges){value, value, true, r->printed};
}

static void print_groups(const struct machine_plan *p)
{
    const struct machine *const m = &p->machine;
    printf("groups     cores that share an L3\n");
    for (unsigned g = 0; g < m->n_groups; g++) {
        unsigned first = 0;
        char size[24];
        struct ranges cpus = {0}, workers = {0};
        while (m->group[first] != g) first++;
        printf("  group %-3u ", g);
        if (m->cpu[first].node != OS_CPU_NONE) printf("node %u, ", m->cpu[first].node);
        draw_size(size, m->cpu[first].l3_bytes);
        printf("%s", m->cpu[first].l3 == OS_CPU_NONE ? "no shared L3" : m->cpu[first].l3_bytes ? size : "L3");
        printf(", CPUs ");
        for (unsigned i = 0; i < m->n; i++)
            if (m->group[i] == g) range_add(&cpus, m->cpu[i].cpu);
        range_end(&cpus);
        for (unsigned i = 0; i < p->place.n && p->place.pinned; i++) {
            const struct os_cpu_row *const row = row_of(m, p->place.cpu[i]);
            if (!row || m->group[row - m->cpu] != g) continue;
            if (!workers.any && !workers.printed) printf(": workers ");
            range_add(&workers, i);
        }
        range_end(&workers);
        puts(workers.printed ? "" : ": no worker");
    }
}

static void print_table(const struct machine_plan *p)
{
    const struct machine *const m = &p->machine;
    const struct counts c = count_all(m);
    char l1[24], l2[24];
    draw_size(l1, m->cpu[0].l1d_bytes);
    draw_size(l2, m->cpu[0].l2_bytes);
    printf("machine    packages %u, NUMA nodes %u, L3 groups %u, cores %u, CPUs %u\n", c.packages, c.nodes, c.l3, c.cores,
           m->n);
    if (m->n < m->n_present)
        printf("allowed    %u of %u CPUs: %u are online and in the cpuset, %u of those in the affinity mask\n", m->n,
               m->n_present, m->n_cpuset, m->n);
    if (m->quota_milli) printf("quota      %.2f CPUs\n", m->quota_milli / 1000.0);
    if (m->cpu[0].l1d_bytes || m->cpu[0].l2_bytes) printf("caches     L1 data %s, L2 %s (CPU %u)\n", l1, l2, m->cpu[0].cpu);
    unsigned efficiency;
    if (cores_of_kind(m, 1, &efficiency))
        for (unsigned i = 0, n; (n = cores_of_kind(m, i, &efficiency)) > 0; i++)
            printf("%s %u cores of kind %u%s\n", i ? "          " : "kinds     ", n, efficiency, i ? "" : ", the fastest");
    printf("workers    %u", p->place.n);
    if (p->place.pinned) {
        struct ranges cpus = {0};
        fputs(p->place.shared ? ", sharing CPUs: " : ", one a CPU: ", stdout);
        for (unsigned i = 0; i < p->place.n; i++) range_add(&cpus, p->place.cpu[i]);
        range_end(&cpus);
    } else {
        printf(", not pinned");
    }
    printf("\n");
    print_groups(p);
}

/* ---- picture ---------------------------------------------------------------------------------------------------------- */

static enum mc_code write_picture(const char *path, const char *text, size_t size, struct mc_err *err)
{
    struct os_writer *w;
    enum mc_code code = os_writer_create(path, &w, err);
    if (code) return code;
    code = os_writer_write(w, text, size, err);
    if (!code) return os_writer_finish(w, err);
    os_writer_abort(w);
    return code;
}

static enum mc_code draw(const struct app_options *o, const struct machine_plan *p, struct mc_err *err)
{
    const char *const path = opt_text(o, OPT_OUTPUT);
    const enum draw_form form = opt_int(o, OPT_DRAW) ? DRAW_SVG : DRAW_TEXT; /* in the order of the choices */
    char *text;
    size_t size;
    enum mc_code code = draw_picture(&p->machine, &p->place, form, &text, &size, err);
    if (code) return code;
    if (path)
        code = write_picture(path, text, size, err);
    else
        (void)fwrite(text, 1, size, stdout); /* a failure is seen when it is flushed */
    free(text);
    return code;
}

enum mc_code cmd_topo(const struct app_options *o, struct mc_err *err)
{
    const bool is_drawn = opt_is_set(o, OPT_DRAW), has_file = opt_is_set(o, OPT_OUTPUT);
    struct machine_plan *p;
    enum mc_code code = MC_OK;
    if (has_file && !is_drawn) return mc_fail(err, MC_EARG, 0, "-o is for the picture; give --draw as well");
    if (is_drawn && !has_file && opt_flag(o, OPT_JSON))
        return mc_fail(err, MC_EARG, 0, "--json and --draw both want standard output; give -o FILE for the picture");
    if (has_file) code = output_check("-o", opt_text(o, OPT_OUTPUT), NULL, opt_text(o, OPT_TOPOLOGY), err);
    if (code) return code;
    if (!opt_is_set(o, OPT_TOPOLOGY)) say_openmp(o);
    code = machine_plan_make(o, &p, err);
    if (code) return code;
    if (is_drawn) code = draw(o, p, err);
    if (!code && opt_flag(o, OPT_JSON))
        code = print_json(p, err);
    else if (!code && (!is_drawn || has_file))
        print_table(p);
    free(p);
    return code;
}
