/* workers.c - see workers.h
 *
 *   gate   turn | sleepers     a number that moves on; who waits for it spins for a while and then sleeps on it
 *   start  moved by workers_run, waited for by the threads
 *   group  of each L3 group: who arrives counts up, the last one goes on to `all` and then moves the group's gate
 *   all    the same among the last ones of the groups, if there is more than one: the only lines that cross from L3 to L3
 *
 * Every gate of the barrier moves once in each sync, so all of them show the same turn to whoever may look at them.
 *
 * No wake-up is lost: a waiter adds itself to `sleepers` before it looks at `turn` for the last time, the mover moves `turn`
 * before it looks at `sleepers`, and both pairs are sequentially consistent, so one of them sees the other; the
 * system's wait compares `turn` once more. No sleeper, no system call.
 *
 * The last to arrive is alone with the counter while the others wait, so it may reset it plainly. The end of
 * a run is one more barrier. Spinning is limited by the clock, not by turns: a pause instruction takes 40 to 140 cycles
 * depending on the CPU. Workers that share CPUs do not spin at all; the one they wait for may need this very CPU. */
#include "topology/workers.h"

#include "platform/base/log.h"

#include <stdatomic.h>
#include <stdio.h>

enum {
    LINE_BYTES = 64,
    SYNC_SPIN_NS = 50 * 1000,  /* longer than any uneven share of a layer should last */
    IDLE_SPIN_NS = 200 * 1000, /* longer than choosing a token takes */
    IDLE_SPIN_NS_MAX = 1000 * 1000,
    SPINS_PER_LOOK = 32 /* at the clock */
};

struct gate {
    MC_ALIGNED(LINE_BYTES) _Atomic uint32_t turn;
    _Atomic uint32_t sleepers;
};

/* Tasks taken of one worker's share: barrier turn << 32 | number. The count of an earlier turn is worth 0, so nobody has to
 * reset it. */
struct share {
    MC_ALIGNED(LINE_BYTES) _Atomic uint64_t taken;
};

/* Where `n` meet. */
struct meeting {
    struct gate gate;
    MC_ALIGNED(LINE_BYTES) _Atomic uint32_t n_arrived; /* reset by the last to arrive */
    uint32_t n;                                        /* const after create */
};

struct workers {
    struct gate start;
    struct meeting all;                                /* all.n groups */
    MC_ALIGNED(LINE_BYTES) _Atomic uint32_t next_task; /* reset by the last of all to arrive */
    MC_ALIGNED(LINE_BYTES) worker_fn fn;               /* this and the next three: written between runs, */
    void *arg;                                         /* published by start */
    bool is_stopping;
    uint64_t idle_spin_ns;
    uint64_t sync_spin_ns; /* from here on const after create */
    struct placement place;
    struct os_thread *thread[PLACEMENT_MAX]; /* [0] is NULL */
    struct worker worker[PLACEMENT_MAX];
    struct share share[PLACEMENT_MAX];
    struct meeting group[PLACEMENT_MAX];
    size_t bytes;    /* of all this */
    uint16_t help[]; /* [count][count], by worker */
};

/* Waits until gate->turn is no longer `seen`. */
static void gate_wait(struct gate *g, uint32_t seen, uint64_t spin_ns)
{
    if (spin_ns > 0) {
        const uint64_t start_ns = os_clock_ns();
        do {
            for (unsigned i = 0; i < SPINS_PER_LOOK; i++) {
                /* acquire: pairs with the store in gate_move */
                if (atomic_load_explicit(&g->turn, memory_order_acquire) != seen) return;
                os_cpu_relax();
            }
        } while (os_clock_ns() - start_ns < spin_ns);
    }
    atomic_fetch_add_explicit(&g->sleepers, 1, memory_order_seq_cst);
    while (atomic_load_explicit(&g->turn, memory_order_seq_cst) == seen) os_wait_u32(&g->turn, seen);
    atomic_fetch_sub_explicit(&g->sleepers, 1, memory_order_relaxed);
}

/* Only one thread moves a gate at a time. */
static void gate_move(struct gate *g)
{
    const uint32_t turn = atomic_load_explicit(&g->turn, memory_order_relaxed);
    atomic_store_explicit(&g->turn, turn + 1, memory_order_seq_cst);
    if (atomic_load_explicit(&g->sleepers, memory_order_seq_cst) > 0) os_wake_all_u32(&g->turn);
}

/* True for the last to arrive. */
static bool arrive(struct meeting *m)
{
    /* acq_rel: everyone's writes go to the last to arrive, whose move of the gate hands them to all */
    if (atomic_fetch_add_explicit(&m->n_arrived, 1, memory_order_acq_rel) + 1 < m->n) return false;
    atomic_store_explicit(&m->n_arrived, 0, memory_order_relaxed);
    return true;
}

/* The turn of the barrier, the same in every gate that the worker may look at. */
static uint32_t barrier_turn(const struct worker *w)
{
    return atomic_load_explicit(&w->team->group[w->group].gate.turn, memory_order_relaxed);
}

void workers_sync(const struct worker *w)
{
    struct workers *const t = w->team;
    struct meeting *const group = &t->group[w->group];
    const uint32_t turn = barrier_turn(w); /* read before arriving: the turn cannot end without this worker */
    if (w->count == 1) {
        atomic_store_explicit(&t->next_task, 0, memory_order_relaxed);
        atomic_store_explicit(&group->gate.turn, turn + 1, memory_order_relaxed);
        return;
    }
    if (!arrive(group)) {
        gate_wait(&group->gate, turn, t->sync_spin_ns);
        return;
    }
    if (t->all.n > 1 && !arrive(&t->all)) {
        gate_wait(&t->all.gate, turn, t->sync_spin_ns);
    } else {
        atomic_store_explicit(&t->next_task, 0, memory_order_relaxed);
        if (t->all.n > 1) gate_move(&t->all.gate);
    }
    gate_move(&group->gate);
}

uint32_t workers_next(const struct worker *w, uint32_t n)
{
    /* relaxed: it only counts; the tasks' data are ordered by the syncs around */
    return atomic_fetch_add_explicit(&w->team->next_task, n, memory_order_relaxed);
}

uint32_t workers_take(const struct worker *w, unsigned owner, uint32_t n)
{
    _Atomic uint64_t *const taken = &w->team->share[owner].taken;
    const uint64_t turn = (uint64_t)barrier_turn(w) << 32;
    uint64_t old = atomic_load_explicit(taken, memory_order_relaxed), number;
    do {
        number = old >> 32 << 32 == turn ? (uint32_t)old : 0;
        if (number >= n) break; /* without a write: many look at a share that is done */
    } while (
        !atomic_compare_exchange_weak_explicit(taken, &old, turn | (number + 1), memory_order_relaxed, memory_order_relaxed));
    return (uint32_t)number;
}

/* 0: the worker itself, 1: its L3 group, 2: its node, 3: elsewhere. */
static unsigned distance(const struct placement *p, unsigned a, unsigned b)
{
    return a == b ? 0 : p->group[a] == p->group[b] ? 1 : p->node[a] == p->node[b] ? 2 : 3;
}

static void order_help(const struct placement *p, unsigned id, uint16_t *help)
{
    size_t n = 0;
    for (unsigned d = 0; d <= 3; d++)
        for (unsigned i = 0; i < p->n; i++) {
            const unsigned other = (id + i) % p->n;
            if (distance(p, id, other) == d) help[n++] = (uint16_t)other;
        }
}

static void bind_or_warn(const struct placement *p, unsigned id)
{
    struct mc_err err;
    if (p->pinned && os_thread_bind(p->cpu[id], &err)) mc_log(MC_LOG_WARN, "topology: worker %u runs unbound: %s", id, err.msg);
}

static void thread_main(void *p)
{
    struct worker *const w = p;
    struct workers *const t = w->team;
    bind_or_warn(&t->place, w->id);
    uint64_t spin_ns = 0;              /* nothing to do soon after the start */
    for (uint32_t turn = 0;; turn++) { /* turn: of the start gate; create leaves it at 0 */
        gate_wait(&t->start, turn, spin_ns);
        if (t->is_stopping) return;
        spin_ns = t->idle_spin_ns;
        t->fn(t->arg, w);
        workers_sync(w);
    }
}

enum mc_code workers_create(const struct placement *p, struct workers **out, struct mc_err *err)
{
    void *memory;
    const size_t bytes = sizeof(struct workers) + (size_t)p->n * p->n * sizeof(uint16_t);
    enum mc_code code = os_mem_alloc(bytes, OS_MEM_PLAIN, "workers", &memory, err);
    if (code) return code;
    struct workers *const t = memory; /* zeroed */
    t->bytes = bytes;
    t->place = *p;
    t->sync_spin_ns = p->shared ? 0 : SYNC_SPIN_NS;
    t->idle_spin_ns = p->shared ? 0 : IDLE_SPIN_NS;
    for (unsigned i = 0; i < p->n; i++) {
        uint16_t *const help = t->help + (size_t)i * p->n;
        order_help(p, i, help);
        t->worker[i] = (struct worker){.id = i, .count = p->n, .group = p->group[i], .team = t, .help = help};
        t->group[p->group[i]].n++;
        if (p->group[i] >= t->all.n) t->all.n = p->group[i] + 1;
    }
    for (unsigned i = 1; i < p->n; i++) {
        char name[24];
        snprintf(name, sizeof name, "worker-%u", i);
        code = os_thread_start(thread_main, &t->worker[i], name, &t->thread[i], err);
        if (code) {
            workers_destroy(t);
            return code;
        }
    }
    *out = t;
    return MC_OK;
}

void workers_destroy(struct workers *t)
{
    if (!t) return;
    t->is_stopping = true;
    gate_move(&t->start);
    for (unsigned i = 1; i < t->place.n; i++) os_thread_join(t->thread[i]);
    os_mem_free(t, t->bytes);
}

uint64_t workers_l3_bytes(const struct workers *t)
{
    return t->place.l3_bytes;
}

unsigned workers_count(const struct workers *t)
{
    return t->place.n;
}

void workers_set_idle_spin(struct workers *t, uint64_t spin_ns)
{
    if (!t->place.shared) t->idle_spin_ns = spin_ns < IDLE_SPIN_NS_MAX ? spin_ns : IDLE_SPIN_NS_MAX;
}

void workers_run(struct workers *t, worker_fn fn, void *arg)
{
    struct os_affinity before;
    if (t->place.pinned) {
        os_thread_affinity_get(&before);
        bind_or_warn(&t->place, 0);
    }
    t->fn = fn;
    t->arg = arg;
    if (t->place.n > 1) gate_move(&t->start);
    fn(arg, &t->worker[0]);
    workers_sync(&t->worker[0]);
    if (t->place.pinned) os_thread_affinity_set(&before);
}
