/* machine.h - a machine as placement sees it: a list of the logical CPUs this process may use, each with what it shares.
 *
 * Filled by discover, or by a test. A plain value: copy it, compare it, throw it away.
 *
 * A worker group is the set of cores under one L3: what its members write to each other does not leave that cache. Cores
 * without an L3 on a machine that has some form a group for each package; a machine without any has one group for each NUMA
 * node. L3 caches of one core each, and more than one of them, are an invention of virtual machines and count as none. */
#ifndef TOPOLOGY_MACHINE_H
#define TOPOLOGY_MACHINE_H

#include "platform/os.h"

enum { MACHINE_CPUS_MAX = 1024 };

struct machine {
    unsigned n;                              /* >= 1 */
    struct os_cpu_row cpu[MACHINE_CPUS_MAX]; /* ascending by OS number, allowed CPUs only */
    unsigned n_present;                      /* CPUs of the machine, as far as it tells: also those that are offline */
    unsigned n_cpuset;    /* of them those that are online and in the process's cpuset; n of these also are */
                          /* in its affinity mask */
    unsigned quota_milli; /* CPU time the process may use, in thousandths of a CPU; 0: no limit */

    /* Made of cpu[] by machine_index: */
    unsigned group[MACHINE_CPUS_MAX];   /* worker group of cpu[i], counted from 0: by node, then by L3 */
    unsigned sibling[MACHINE_CPUS_MAX]; /* how many CPUs before cpu[i] belong to the same core */
    unsigned n_groups;
};

/* Takes back the L3 ids (OS_CPU_NONE) where they mean nothing. To be called with all the CPUs that can be seen: of an affinity
 * mask alone one could not tell. */
void machine_distrust_l3(struct machine *m);

/* Fills group, sibling and n_groups from cpu[0..n). */
void machine_index(struct machine *m);

/* Different ids (not OS_CPU_NONE) among the CPUs; `field` is offsetof(struct os_cpu_row, core) or another of its ids. */
unsigned machine_count(const struct machine *m, size_t field);

#endif
