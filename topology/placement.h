/* placement.h - which CPU each worker gets. Pure: a machine and wishes in, a plan out. */
#ifndef TOPOLOGY_PLACEMENT_H
#define TOPOLOGY_PLACEMENT_H

#include "topology/machine.h"

enum { PLACEMENT_MAX = 512 };

enum placement_pin {
    PLACEMENT_PIN_AUTO, /* one CPU a worker, as long as there are enough CPUs */
    PLACEMENT_PIN_OFF,  /* the system moves the workers as it likes */
    PLACEMENT_PIN_LIST  /* the CPUs of the list, in its order */
};

struct placement_wish {
    unsigned n_threads; /* 0 = one a physical core (of the fastest kind), or one an entry of the list */
    enum placement_pin pin;
    const unsigned *list; /* PLACEMENT_PIN_LIST: OS numbers */
    unsigned n_list;
};

struct placement {
    unsigned n;                  /* workers, >= 1 */
    unsigned cpu[PLACEMENT_MAX]; /* OS number of worker i's CPU, when pinned */
    bool pinned;
    bool shared; /* more workers than CPUs: they must not wait by spinning */
};

/* Every physical core gets a worker before any gets a second one, faster kinds of core before slower, and each core is
 * represented by its lowest allowed CPU; then come the siblings. More threads than CPUs are allowed: they share, not pinned
 * unless a list was given (logged). Errors: MC_EARG (more than PLACEMENT_MAX threads; a list that is empty or names a CPU that
 * is not the process's to use). */
MC_MUST_CHECK enum mc_code placement_plan(const struct machine *m, const struct placement_wish *wish, struct placement *out,
                                          struct mc_err *err);

#endif
