/* machine.c - see machine.h */
#include "topology/machine.h"

#include <stdlib.h>

struct group_key {
    unsigned node, kind, id;
};

static int compare(unsigned a, unsigned b)
{
    return (a > b) - (a < b);
}

static int by_key(const void *a, const void *b)
{
    const struct group_key *x = a, *y = b;
    const int node = compare(x->node, y->node), kind = compare(x->kind, y->kind);
    return node ? node : kind ? kind : compare(x->id, y->id);
}

static unsigned id_at(const struct os_cpu_row *row, size_t field)
{
    unsigned id;
    memcpy(&id, (const char *)row + field, sizeof id);
    return id;
}

unsigned machine_count(const struct machine *m, size_t field)
{
    unsigned count = 0;
    for (unsigned i = 0; i < m->n; i++) {
        const unsigned id = id_at(&m->cpu[i], field);
        unsigned k = 0;
        while (k < i && id_at(&m->cpu[k], field) != id) k++;
        count += k == i && id != OS_CPU_NONE;
    }
    return count;
}

/* A CPU without a known core is a core. */
static void count_siblings(struct machine *m)
{
    for (unsigned i = 0; i < m->n; i++) {
        m->sibling[i] = 0;
        for (unsigned k = 0; k < i && m->cpu[i].core != OS_CPU_NONE; k++) m->sibling[i] += m->cpu[k].core == m->cpu[i].core;
    }
}

/* True when there are several L3 caches and no two cores share one. */
static bool l3_is_private(const struct machine *m)
{
    unsigned n_l3 = 0;
    for (unsigned i = 0; i < m->n; i++) {
        if (m->cpu[i].l3 == OS_CPU_NONE || m->sibling[i]) continue;
        for (unsigned k = 0; k < i; k++)
            if (m->cpu[k].l3 == m->cpu[i].l3 && !m->sibling[k]) return false;
        n_l3++;
    }
    return n_l3 > 1;
}

static struct group_key key_of(const struct os_cpu_row *row, bool has_l3)
{
    const struct group_key node = {row->node, 0, 0};
    if (!has_l3) return node;
    if (row->l3 == OS_CPU_NONE) return (struct group_key){row->node, 1, row->package};
    return (struct group_key){row->node, 0, row->l3};
}

static void make_groups(struct machine *m)
{
    struct group_key key[MACHINE_CPUS_MAX] = {{0, 0, 0}};
    bool has_l3 = false;
    for (unsigned i = 0; i < m->n; i++) has_l3 |= m->cpu[i].l3 != OS_CPU_NONE;
    for (unsigned i = 0; i < m->n; i++) key[i] = key_of(&m->cpu[i], has_l3);
    qsort(key, m->n, sizeof *key, by_key);
    m->n_groups = 0;
    for (unsigned i = 0; i < m->n; i++)
        if (i == 0 || by_key(&key[i - 1], &key[i]) != 0) key[m->n_groups++] = key[i];
    for (unsigned i = 0; i < m->n; i++) {
        const struct group_key want = key_of(&m->cpu[i], has_l3);
        const struct group_key *const at = bsearch(&want, key, m->n_groups, sizeof *key, by_key);
        m->group[i] = at ? (unsigned)(at - key) : 0; /* it is there: it was put there above */
    }
}

void machine_distrust_l3(struct machine *m)
{
    count_siblings(m);
    if (l3_is_private(m))
        for (unsigned i = 0; i < m->n; i++) m->cpu[i].l3 = OS_CPU_NONE;
}

void machine_index(struct machine *m)
{
    count_siblings(m);
    make_groups(m);
}
