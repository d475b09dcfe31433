/* os_numa.c - which memory is near which CPU, on Linux (mbind and move_pages through libnuma).
 *
 * Policies are preferences: where a node has no free page, the page comes from another one, so that nothing fails and no
 * reserved huge page turns into SIGBUS for want of its node. */
#include "platform/os.h"

#include <errno.h>
#include <numa.h>
#include <numaif.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

enum { NODES_MAX = 1024, SAMPLES = 512 };

struct node_set {
    unsigned long bits[NODES_MAX / (8 * sizeof(long))];
};

static void add_node(struct node_set *s, unsigned node)
{
    s->bits[node / (8 * sizeof(long))] |= 1ul << node % (8 * sizeof(long));
}

static bool node_has_memory(unsigned node, const struct bitmask *allowed)
{
    return node < NODES_MAX && numa_node_size64((int)node, NULL) > 0 && numa_bitmask_isbitset(allowed, node);
}

unsigned os_numa_nodes(unsigned *nodes, unsigned cap)
{
    unsigned n = 0;
    struct bitmask *const allowed = numa_available() >= 0 ? numa_get_mems_allowed() : NULL;
    for (int i = 0; allowed && i <= numa_max_node() && n < cap; i++)
        if (node_has_memory((unsigned)i, allowed)) nodes[n++] = (unsigned)i;
    if (allowed) numa_bitmask_free(allowed);
    if (n == 0 && cap) nodes[n++] = 0;
    return n;
}

unsigned os_numa_node_here(void)
{
    unsigned cpu, node; /* of the system, not of libnuma, which keeps a table for it that it never frees */
    return numa_available() < 0 || getcpu(&cpu, &node) ? OS_CPU_NONE : node;
}

uint64_t os_numa_free_bytes(unsigned node)
{
    long long bytes = 0;
    return numa_available() >= 0 && numa_node_size64((int)node, &bytes) > 0 && bytes > 0 ? (uint64_t)bytes : 0;
}

static bool set_policy(void *p, size_t size, int mode, const struct node_set *set)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = ((uintptr_t)p + page - 1) / page * page, end = ((uintptr_t)p + size) / page * page;
    if (numa_available() < 0) return false;
    if (begin >= end) return true;
    return mbind((uint8_t *)p + (begin - (uintptr_t)p), end - begin, mode, set->bits, NODES_MAX, 0) == 0;
}

bool os_numa_prefer(void *p, size_t size, unsigned node)
{
    struct node_set set = {{0}};
    if (node >= NODES_MAX) return false;
    add_node(&set, node);
    return set_policy(p, size, MPOL_PREFERRED, &set);
}

bool os_numa_interleave(void *p, size_t size)
{
    struct node_set set = {{0}};
    unsigned nodes[64];
    const unsigned n = os_numa_nodes(nodes, 64);
    for (unsigned i = 0; i < n; i++) add_node(&set, nodes[i]);
    return set_policy(p, size, MPOL_INTERLEAVE, &set);
}

double os_numa_share(const void *p, size_t size, unsigned node)
{
    void *page[SAMPLES];
    int status[SAMPLES];
    unsigned n = 0, seen = 0, there = 0;
    const size_t step = size / SAMPLES + 1;
    for (size_t off = 0; off < size && n < SAMPLES; off += step)
        page[n++] = (void *)(((uintptr_t)p + off) / 4096 * 4096); /* the system wants page addresses without const */
    if (numa_available() < 0 || !n || move_pages(0, n, page, NULL, status, 0)) return 0;
    for (unsigned i = 0; i < n; i++) {
        seen += status[i] >= 0;
        there += status[i] == (int)node;
    }
    return seen ? (double)there / seen : 0;
}
