/* placement.c - see placement.h
 *
 * Two sorts. The first chooses: CPUs by (sibling rank, kind, group, OS number), of which the first n get the workers; rank 0 is
 * a core's lowest allowed CPU, rank 1 the next one of the same core. The second numbers the chosen: by group first. */
#include "topology/placement.h"

#include "platform/base/log.h"

#include <stdlib.h>
#include <string.h>

struct candidate {
    unsigned cpu, rank, efficiency, group, node;
};

static int compare(unsigned a, unsigned b)
{
    return (a > b) - (a < b);
}

static int by_preference(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->rank != y->rank) return compare(x->rank, y->rank);
    if (x->efficiency != y->efficiency) return compare(y->efficiency, x->efficiency);
    return x->group != y->group ? compare(x->group, y->group) : compare(x->cpu, y->cpu);
}

static int by_number(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return x->group != y->group ? compare(x->group, y->group) : by_preference(a, b);
}

static struct candidate candidate_of(const struct machine *m, unsigned i)
{
    return (struct candidate){m->cpu[i].cpu, m->sibling[i], m->cpu[i].efficiency, m->group[i], m->cpu[i].node};
}

/* Fills order[m->n] by preference; returns how many of its first entries are cores of the fastest kind. */
static unsigned order_cpus(const struct machine *m, struct candidate *order)
{
    for (unsigned i = 0; i < m->n; i++) order[i] = candidate_of(m, i);
    qsort(order, m->n, sizeof *order, by_preference);
    unsigned n = 0;
    while (n < m->n && order[n].rank == 0 && order[n].efficiency == order[0].efficiency) n++;
    return n;
}

/* Index of the CPU, m->n when the process may not use it. */
static unsigned find_cpu(const struct machine *m, unsigned cpu)
{
    unsigned i = 0;
    while (i < m->n && m->cpu[i].cpu != cpu) i++;
    return i;
}

static unsigned distinct(const unsigned *list, unsigned n)
{
    unsigned count = 0;
    for (unsigned i = 0; i < n; i++) {
        unsigned k = 0;
        while (list[k] != list[i]) k++;
        count += k == i;
    }
    return count;
}

/* Worker i gets chosen[i]; groups are counted anew, in the order in which they come. */
static void assign(const struct candidate *chosen, struct placement *p)
{
    unsigned seen[PLACEMENT_MAX];
    p->n_groups = 0;
    for (unsigned i = 0; i < p->n; i++) {
        unsigned g = 0;
        while (g < p->n_groups && seen[g] != chosen[i].group) g++;
        if (g == p->n_groups) seen[p->n_groups++] = chosen[i].group;
        p->cpu[i] = chosen[i].cpu;
        p->group[i] = g;
        p->node[i] = chosen[i].node;
    }
}

static enum mc_code plan_list(const struct machine *m, const struct placement_wish *wish, struct placement *out,
                              struct mc_err *err)
{
    struct candidate chosen[PLACEMENT_MAX] = {{0, 0, 0, 0, 0}};
    if (wish->n_list == 0) return mc_fail(err, MC_EARG, 0, "the list of CPUs for the workers is empty");
    for (unsigned i = 0; i < wish->n_list; i++)
        if (find_cpu(m, wish->list[i]) == m->n)
            return mc_fail(err, MC_EARG, 0, "CPU %u of the list is not one this process may use; the first it may use is %u",
                           wish->list[i], m->cpu[0].cpu);
    for (unsigned i = 0; i < out->n; i++) chosen[i] = candidate_of(m, find_cpu(m, wish->list[i % wish->n_list]));
    assign(chosen, out);
    out->pinned = true;
    out->shared = distinct(out->cpu, out->n) < out->n;
    return MC_OK;
}

/* More workers than CPUs, or the user's word: the system moves them. */
static void plan_unpinned(struct placement *p)
{
    p->pinned = false;
    p->n_groups = 1;
    for (unsigned i = 0; i < p->n; i++) {
        p->cpu[i] = p->node[i] = OS_CPU_NONE;
        p->group[i] = 0;
    }
}

/* Whole CPUs that a quota pays for; what the machine has where there is none. */
static unsigned quota_cpus(const struct machine *m)
{
    const unsigned whole = m->quota_milli / 1000;
    return m->quota_milli == 0 ? m->n : whole > 0 ? whole : 1;
}

static unsigned default_count(const struct machine *m, unsigned n_cores)
{
    unsigned n = n_cores < PLACEMENT_MAX ? n_cores : PLACEMENT_MAX;
    if (n > quota_cpus(m)) n = quota_cpus(m);
    return n;
}

static void say_what_is_odd(const struct machine *m, const struct placement_wish *wish, const struct placement *p)
{
    if (m->n == 1 && m->n_cpuset > 1 && wish->n_threads != 1)
        mc_log(
            MC_LOG_WARN,
            "topology: this process was started bound to CPU %u, one of %u: by taskset, numactl, or a program that binds its "
            "own threads (OpenMP); all workers run there",
            m->cpu[0].cpu, m->n_cpuset);
    else if (p->shared)
        mc_log(MC_LOG_WARN, "topology: %u workers on fewer CPUs (%u); fewer threads would be faster", p->n,
               p->pinned ? distinct(p->cpu, p->n) : m->n);
    if (p->n > quota_cpus(m) && m->n > quota_cpus(m))
        mc_log(
            MC_LOG_WARN,
            "topology: %u workers have a quota of %u.%02u CPUs, the system will stop all of them again and again; at most %u "
            "threads would be faster",
            p->n, m->quota_milli / 1000, m->quota_milli % 1000 / 10, quota_cpus(m));
}

enum mc_code placement_read_pin(const char *pin, struct placement_wish *wish, unsigned list[PLACEMENT_MAX], struct mc_err *err)
{
    wish->pin = PLACEMENT_PIN_AUTO;
    if (!pin || !strcmp(pin, "auto")) return MC_OK;
    wish->pin = PLACEMENT_PIN_OFF;
    if (!strcmp(pin, "off")) return MC_OK;
    wish->pin = PLACEMENT_PIN_LIST;
    wish->list = list;
    wish->n_list = 0;
    for (const char *p = pin; wish->n_list < PLACEMENT_MAX; p++) {
        char *end;
        const unsigned long cpu = strtoul(p, &end, 10);
        if (end == p || *p < '0' || *p > '9' || cpu >= OS_CPU_NONE || (*end && *end != ',')) break;
        list[wish->n_list++] = (unsigned)cpu;
        if (!*end) return MC_OK;
        p = end;
    }
    return mc_fail(err, MC_EARG, 0, "--pin %s cannot be read; expected auto, off or CPU numbers like 0,2,4", pin);
}

/* Worker groups are cores under one L3, where there are any. */
static uint64_t l3_bytes_of(const struct machine *m)
{
    uint64_t bytes = 0;
    for (unsigned group = 0; group < m->n_groups; group++)
        for (unsigned i = 0; i < m->n; i++)
            if (m->group[i] == group) {
                if (m->cpu[i].l3 != OS_CPU_NONE) bytes += m->cpu[i].l3_bytes;
                break;
            }
    return bytes;
}

enum mc_code placement_plan(const struct machine *m, const struct placement_wish *wish, struct placement *out,
                            struct mc_err *err)
{
    const bool by_list = wish->pin == PLACEMENT_PIN_LIST;
    struct candidate order[MACHINE_CPUS_MAX];
    const unsigned n_cores = order_cpus(m, order);
    struct placement p = {.n = wish->n_threads};
    if (p.n > PLACEMENT_MAX || (by_list && wish->n_list > PLACEMENT_MAX))
        return mc_fail(err, MC_EARG, 0, "%u threads asked for, %d is the most", p.n > PLACEMENT_MAX ? p.n : wish->n_list,
                       PLACEMENT_MAX);
    if (p.n == 0) p.n = by_list ? wish->n_list : default_count(m, n_cores);
    if (by_list) {
        const enum mc_code code = plan_list(m, wish, &p, err);
        if (code) return code;
    } else {
        p.shared = p.n > m->n;
        if (wish->pin == PLACEMENT_PIN_AUTO && !p.shared && quota_cpus(m) >= n_cores) {
            qsort(order, p.n, sizeof *order, by_number);
            assign(order, &p);
            p.pinned = true;
        } else {
            plan_unpinned(&p);
        }
    }
    p.l3_bytes = l3_bytes_of(m);
    say_what_is_odd(m, wish, &p);
    *out = p;
    return MC_OK;
}
