/* workers.h - a team of threads that walks through one function together.
 *
 * The team lives as long as the engine. workers_run lets every worker run the same function; inside it workers_sync marks
 * the places where numbers cross from one worker to another, and workers_next and workers_take hand out tasks that are not
 * worth dividing beforehand. Nothing is allocated after workers_create. */
#ifndef TOPOLOGY_WORKERS_H
#define TOPOLOGY_WORKERS_H

#include "topology/placement.h"

struct workers;

/* What a worker knows of itself; valid as long as the team, the same struct in every run. */
struct worker {
    unsigned id, count; /* 0 <= id < count */
    unsigned group;     /* its worker group (placement.h) */
    struct workers *team;
    const uint16_t *help; /* [count] whose shares to take from, in this order: its own, those of its L3 group, of its NUMA node,
                             the others; within each the next higher number first */
};

typedef void (*worker_fn)(void *arg, struct worker *w);

/* Starts p->n - 1 threads, bound to p->cpu[1...] when the placement is pinned; worker 0 is whoever calls workers_run, so a
 * team of one has no thread. A thread that cannot be bound runs unbound (logged).
 * Errors: MC_ENOMEM, MC_EIO (no more threads). */
MC_MUST_CHECK enum mc_code workers_create(const struct placement *p, struct workers **out, struct mc_err *err);
void workers_destroy(struct workers *t);
unsigned workers_count(const struct workers *t);
uint64_t workers_l3_bytes(const struct workers *t); /* of the placement */

/* How long a worker without work spins before it sleeps, 0..1 ms; the next workers_run within that time starts at once, a later
 * one must wake it. Default 200 us. Between runs only. */
void workers_set_idle_spin(struct workers *t, uint64_t spin_ns);

/* Every worker runs fn(arg, its worker); returns when all have returned, and all they wrote can be seen. The calling thread is
 * worker 0: when the placement is pinned it is bound to p->cpu[0] during the call and gets its former CPU set back.
 * One call at a time for a team, from any thread, not from inside fn. */
void workers_run(struct workers *t, worker_fn fn, void *arg);

/* Inside fn: waits until every worker has come here; what each wrote before, each can read after. All workers must make the
 * same number of calls. Workers wait for their L3 group on a line of the group's, and one of each group for the other groups:
 * with one group there is one line. A wait spins for up to 50 us and then sleeps; it never spins where workers share CPUs. */
void workers_sync(const struct worker *w);

/* Inside fn: takes the next `n` tasks (n >= 1) of the stretch between two syncs and returns the number of the first; counting
 * starts at 0 after every sync. A result of at least the number of tasks means that nothing is left; take no more then until
 * the sync. */
uint32_t workers_next(const struct worker *w, uint32_t n);

/* Inside fn, for work where every worker has a share of its own (so that it walks through memory in order, and through the same
 * memory each time): takes the next of the `n` tasks of `owner`'s share and returns its number, counting from 0 after every
 * sync. A result of at least n means that the share is done; then help another owner, w->help[1] first. */
uint32_t workers_take(const struct worker *w, unsigned owner, uint32_t n);

#endif
