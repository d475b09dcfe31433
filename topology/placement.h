/* placement.h - which CPU each worker gets. Pure: a machine and wishes in, a plan out. */
#ifndef TOPOLOGY_PLACEMENT_H
#define TOPOLOGY_PLACEMENT_H

#include "topology/machine.h"

enum { PLACEMENT_MAX = 512 };

enum placement_pin {
    PLACEMENT_PIN_AUTO, /* one CPU a worker, as long as there are enough CPUs and no quota of fewer */
    PLACEMENT_PIN_OFF,  /* the system moves the workers as it likes */
    PLACEMENT_PIN_LIST  /* the CPUs of the list, in its order */
};

struct placement_wish {
    unsigned n_threads; /* 0 = one a physical core (of the fastest kind), or one an entry of the list */
    enum placement_pin pin;
    const unsigned *list; /* PLACEMENT_PIN_LIST: OS numbers */
    unsigned n_list;
};

/* "auto" (or NULL), "off", or CPU numbers like "0,2,4" into *wish; numbers go into `list`, which must live as long as the wish.
 * Errors: MC_EARG (text that is none of these). */
MC_MUST_CHECK enum mc_code placement_read_pin(const char *pin, struct placement_wish *wish, unsigned list[PLACEMENT_MAX],
                                              struct mc_err *err);

struct placement {
    unsigned n;                    /* workers, >= 1 */
    unsigned cpu[PLACEMENT_MAX];   /* OS number of worker i's CPU, when pinned */
    unsigned group[PLACEMENT_MAX]; /* its worker group (machine.h), counted from 0 among the groups in use; 0 when not pinned */
    unsigned node[PLACEMENT_MAX];  /* its NUMA node; OS_CPU_NONE: unknown, or not pinned */
    unsigned n_groups;
    uint64_t l3_bytes; /* of the machine's L3 caches together, as they call themselves; 0: unknown */
    bool pinned;
    bool shared; /* more workers than CPUs: they must not wait by spinning */
};

/* How many: one a physical core of the fastest kind that is allowed; at most the whole CPUs of a quota, but one.
 * A quota of fewer CPUs than there are such cores: not pinned. Others with quotas of their own have the same CPUs to choose
 * from, and if all took the first ones they would share a few cores and leave the rest idle; the system spreads threads that
 * may move. Where: every core gets a worker before any gets a second one (siblings only when more threads are asked for than
 * there are cores), faster kinds of core before slower, each core by its lowest allowed CPU. Fewer workers than cores fill one
 * L3 group after the other, node by node. Workers are numbered by node, then group, so that neighbours share an L3. No core is
 * left free: nothing in this program reads disks or serves requests beside the workers while they compute, and a core less
 * costs its share of every token. That changes with the first such thread. More threads than CPUs are allowed: they share, not
 * pinned unless a list was given (logged). Logged as well: more threads than a quota pays for; a process that was started bound
 * to one CPU of several, unless one thread was asked for. m must be indexed. Errors: MC_EARG (more than PLACEMENT_MAX threads;
 * a list that is empty or names a CPU that is not the process's to use). */
MC_MUST_CHECK enum mc_code placement_plan(const struct machine *m, const struct placement_wish *wish, struct placement *out,
                                          struct mc_err *err);

#endif
