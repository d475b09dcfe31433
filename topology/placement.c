/* placement.c - see placement.h
 *
 * The order of CPUs is one sort by (sibling rank, kind, OS number): rank 0 is a core's lowest allowed CPU, rank 1 the next one
 * of the same core. The first n of that order get the workers. Choosing among L3 groups and nodes, and CPU quotas of
 * containers, belong here as further keys of the sort and further limits of n; for now the OS number decides. */
#include "topology/placement.h"

#include "platform/base/log.h"

#include <stdlib.h>

struct candidate {
    unsigned cpu, rank, efficiency;
};

static int by_preference(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    if (x->efficiency != y->efficiency) return x->efficiency > y->efficiency ? -1 : 1;
    return (x->cpu > y->cpu) - (x->cpu < y->cpu);
}

/* How many CPUs before row i belong to the same core. A CPU without a known core is a core. */
static unsigned sibling_rank(const struct machine *m, unsigned i)
{
    unsigned rank = 0;
    if (m->cpu[i].core == OS_CPU_NONE) return 0;
    for (unsigned k = 0; k < i; k++) rank += m->cpu[k].core == m->cpu[i].core;
    return rank;
}

/* Fills order[m->n]; returns how many of its first entries are cores of the fastest kind. */
static unsigned order_cpus(const struct machine *m, struct candidate *order)
{
    for (unsigned i = 0; i < m->n; i++) order[i] = (struct candidate){m->cpu[i].cpu, sibling_rank(m, i), m->cpu[i].efficiency};
    qsort(order, m->n, sizeof *order, by_preference);
    unsigned n = 0;
    while (n < m->n && order[n].rank == 0 && order[n].efficiency == order[0].efficiency) n++;
    return n;
}

static bool machine_has(const struct machine *m, unsigned cpu)
{
    for (unsigned i = 0; i < m->n; i++)
        if (m->cpu[i].cpu == cpu) return true;
    return false;
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

static enum mc_code plan_list(const struct machine *m, const struct placement_wish *wish, struct placement *out,
                              struct mc_err *err)
{
    if (wish->n_list == 0) return mc_fail(err, MC_EARG, 0, "the list of CPUs for the workers is empty");
    for (unsigned i = 0; i < wish->n_list; i++)
        if (!machine_has(m, wish->list[i]))
            return mc_fail(err, MC_EARG, 0, "CPU %u of the list is not one this process may use; the first it may use is %u",
                           wish->list[i], m->cpu[0].cpu);
    for (unsigned i = 0; i < out->n; i++) out->cpu[i] = wish->list[i % wish->n_list];
    out->pinned = true;
    out->shared = distinct(out->cpu, out->n) < out->n;
    return MC_OK;
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
    if (p.n == 0) p.n = by_list ? wish->n_list : n_cores < PLACEMENT_MAX ? n_cores : PLACEMENT_MAX;
    if (by_list) {
        const enum mc_code code = plan_list(m, wish, &p, err);
        if (code) return code;
    } else {
        p.shared = p.n > m->n;
        p.pinned = wish->pin == PLACEMENT_PIN_AUTO && !p.shared;
        for (unsigned i = 0; i < p.n; i++) p.cpu[i] = order[i % m->n].cpu;
    }
    if (p.shared)
        mc_log(MC_LOG_WARN, "topology: %u workers share fewer CPUs (%u usable); fewer threads would be faster", p.n, m->n);
    *out = p;
    return MC_OK;
}
