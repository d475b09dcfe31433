/* test_workers.c - the team: every worker runs, syncs order their writes, every task is handed out once.
 *
 * Goal: right results for 1 to 8 workers, pinned or not, also when the machine has fewer CPUs. Method: plain (not atomic) data
 * that is written on one side of a sync and read on the other, so that a weak barrier shows as a wrong number, and as a race
 * under the thread sanitizer. */
#ifdef __linux__
#define _GNU_SOURCE
#endif
#include "topology/discover.h"
#include "topology/workers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <cmocka.h>

enum { WORKERS_MAX = 8, ROUNDS = 300, TASKS = 1000 };

static struct workers *team_of(unsigned n)
{
    static struct machine machine;
    static struct placement place;
    struct workers *t = NULL;
    struct mc_err err;
    discover_this_machine(&machine);
    assert_int_equal(placement_plan(&machine, &(struct placement_wish){.n_threads = n}, &place, &err), MC_OK);
    assert_int_equal(workers_create(&place, &t, &err), MC_OK);
    assert_int_equal(workers_count(t), n);
    return t;
}

struct rounds {
    unsigned cell[WORKERS_MAX];
    unsigned bad[WORKERS_MAX];
};

/* Each worker adds one to its cell, syncs, looks at all cells, syncs. */
static void walk(void *arg, struct worker *w)
{
    struct rounds *const r = arg;
    for (unsigned round = 1; round <= ROUNDS; round++) {
        r->cell[w->id]++;
        workers_sync(w);
        for (unsigned i = 0; i < w->count; i++) r->bad[w->id] += r->cell[i] % ROUNDS != round % ROUNDS;
        workers_sync(w);
    }
}

static void syncs_order_everything(void **state)
{
    (void)state;
    for (unsigned n = 1; n <= WORKERS_MAX; n++) {
        struct workers *const t = team_of(n);
        struct rounds r = {{0}, {0}};
        for (unsigned run = 0; run < 3; run++) workers_run(t, walk, &r);
        for (unsigned i = 0; i < WORKERS_MAX; i++) {
            assert_int_equal(r.cell[i], i < n ? 3 * ROUNDS : 0);
            assert_int_equal(r.bad[i], 0);
        }
        workers_destroy(t);
    }
}

struct tasks {
    unsigned taken[4][TASKS + 16]; /* by stretch */
};

static void take(void *arg, struct worker *w)
{
    struct tasks *const k = arg;
    for (unsigned stretch = 0; stretch < ARRAY_LEN(k->taken); stretch++) {
        const uint32_t step = stretch + 1; /* 1000 is no multiple of 3 */
        for (uint32_t i; (i = workers_next(w, step)) < TASKS;)
            for (uint32_t j = i; j < i + step; j++) k->taken[stretch][j]++;
        workers_sync(w);
    }
}

/* Shares of different sizes; worker 0 sits out one stretch, so that others do its share. */
static void take_shares(void *arg, struct worker *w)
{
    struct tasks *const k = arg;
    for (unsigned stretch = 0; stretch < ARRAY_LEN(k->taken); stretch++) {
        for (unsigned i = 0; i < w->count && !(stretch == 1 && w->id == 0 && w->count > 1); i++) {
            const unsigned owner = w->help[i];
            const uint32_t from = TASKS * owner * owner / w->count / w->count;
            const uint32_t to = TASKS * (owner + 1) * (owner + 1) / w->count / w->count;
            for (uint32_t n; (n = workers_take(w, owner, to - from)) < to - from;) k->taken[stretch][from + n]++;
        }
        workers_sync(w);
    }
}

/* Groups of different sizes, of one, and all of one; numbers that do not ascend. Nobody is bound, so any machine will do. */
static void groups_meet_like_one_team(void **state)
{
    (void)state;
    static const struct placement places[] = {
        {.n = 2, .group = {0, 1}, .n_groups = 2},
        {.n = 3, .group = {0, 0, 1}, .n_groups = 2},
        {.n = 6, .group = {0, 0, 0, 1, 1, 2}, .n_groups = 3, .shared = true},
        {.n = 8, .group = {0, 1, 2, 3, 4, 5, 6, 7}, .n_groups = 8, .shared = true},
        {.n = 8, .group = {1, 0, 1, 0, 1, 0, 1, 0}, .n_groups = 2, .shared = true},
    };
    for (size_t p = 0; p < ARRAY_LEN(places); p++) {
        struct workers *t;
        struct rounds r = {{0}, {0}};
        struct tasks k = {{{0}}};
        assert_int_equal(workers_create(&places[p], &t, NULL), MC_OK);
        for (unsigned run = 0; run < 3; run++) workers_run(t, walk, &r);
        for (unsigned i = 0; i < WORKERS_MAX; i++) {
            assert_int_equal(r.cell[i], i < places[p].n ? 3 * ROUNDS : 0);
            assert_int_equal(r.bad[i], 0);
        }
        workers_run(t, take_shares, &k);
        for (unsigned s = 0; s < ARRAY_LEN(k.taken); s++)
            for (unsigned i = 0; i < TASKS; i++) assert_int_equal(k.taken[s][i], 1);
        workers_run(t, take, &k);
        for (unsigned s = 0; s < ARRAY_LEN(k.taken); s++)
            for (unsigned i = 0; i < TASKS; i++) assert_int_equal(k.taken[s][i], 2);
        workers_destroy(t);
    }
}

static void each_task_of_a_share_is_taken_once(void **state)
{
    (void)state;
    for (unsigned n = 1; n <= WORKERS_MAX; n++) {
        struct workers *const t = team_of(n);
        for (unsigned run = 0; run < 3; run++) {
            struct tasks k = {{{0}}};
            workers_run(t, take_shares, &k);
            for (unsigned s = 0; s < ARRAY_LEN(k.taken); s++)
                for (unsigned i = 0; i < TASKS; i++) assert_int_equal(k.taken[s][i], 1);
        }
        workers_destroy(t);
    }
}

static void note_help(void *arg, struct worker *w)
{
    uint16_t *const order = (uint16_t *)arg + 8 * w->id;
    memcpy(order, w->help, w->count * sizeof *order);
}

/* Two nodes, three L3 groups: 0 1 | 2 3 on one node, 4 5 on the other. */
static void near_workers_are_helped_first(void **state)
{
    (void)state;
    static const struct placement place = {
        .n = 6, .group = {0, 0, 1, 1, 2, 2}, .node = {0, 0, 0, 0, 1, 1}, .n_groups = 3, .shared = true};
    static const uint16_t want[6][8] = {{0, 1, 2, 3, 4, 5}, {1, 0, 2, 3, 4, 5}, {2, 3, 0, 1, 4, 5},
                                        {3, 2, 0, 1, 4, 5}, {4, 5, 0, 1, 2, 3}, {5, 4, 0, 1, 2, 3}};
    uint16_t order[6][8] = {{0}};
    struct workers *t;
    assert_int_equal(workers_create(&place, &t, NULL), MC_OK);
    workers_run(t, note_help, order);
    workers_destroy(t);
    assert_memory_equal(order, want, sizeof want);
}

static void each_task_is_taken_once(void **state)
{
    (void)state;
    for (unsigned n = 1; n <= WORKERS_MAX; n++) {
        struct workers *const t = team_of(n);
        for (unsigned run = 0; run < 3; run++) {
            static struct tasks k;
            memset(&k, 0, sizeof k);
            workers_run(t, take, &k);
            for (unsigned s = 0; s < ARRAY_LEN(k.taken); s++)
                for (unsigned i = 0; i < TASKS; i++) assert_int_equal(k.taken[s][i], 1);
        }
        workers_destroy(t);
    }
}

static void note(void *arg, struct worker *w)
{
    ((unsigned *)arg)[w->id] += w->id + 1;
}

/* Many short runs, some after a pause long enough for the workers to fall asleep. */
static void runs_follow_each_other(void **state)
{
    (void)state;
    struct workers *const t = team_of(4);
    unsigned sum[4] = {0};
    enum { RUNS = 500 };
    for (unsigned i = 0; i < RUNS; i++) {
        workers_set_idle_spin(t, i % 100 < 50 ? 0 : 1000 * 1000 * 1000);
        if (i % 100 == 0) {
            const uint64_t start = os_clock_ns();
            while (os_clock_ns() - start < 3 * 1000 * 1000) os_thread_yield();
        }
        workers_run(t, note, sum);
    }
    for (unsigned i = 0; i < 4; i++) assert_int_equal(sum[i], RUNS * (i + 1));
    workers_destroy(t);
}

static void note_binding(void *arg, struct worker *w)
{
    if (w->id == 0) os_thread_affinity_get(arg);
}

/* The caller is bound while it works, to one CPU and then to another, and not afterwards. */
static void the_caller_gets_its_cpus_back(void **state)
{
    (void)state;
    static struct machine machine;
    discover_this_machine(&machine);
    if (machine.n == 1) {
        puts("skipped: with one CPU a bound thread looks like any other");
        return;
    }
    const unsigned first = machine.cpu[0].cpu, last = machine.cpu[machine.n - 1].cpu;
    struct os_affinity before, during[2], after;
    for (unsigned k = 0; k < 2; k++) {
        struct placement place = {.n = 2, .cpu = {k ? last : first, k ? first : last}, .pinned = true};
        struct workers *t;
        assert_int_equal(workers_create(&place, &t, NULL), MC_OK);
        os_thread_affinity_get(&before);
        workers_run(t, note_binding, &during[k]);
        os_thread_affinity_get(&after);
        assert_memory_equal(&before, &after, sizeof before);
        assert_memory_not_equal(&before, &during[k], sizeof before);
        workers_destroy(t);
    }
    assert_memory_not_equal(&during[0], &during[1], sizeof before);
}

#ifdef __linux__

enum { PAGE = 4096 };

struct seat {
    unsigned cpu, node;
    int page_node; /* of a page that this worker touches first; negative: the system does not tell */
};

struct seats {
    struct seat seat[PLACEMENT_MAX];
    uint8_t *pages;
};

static void note_seat(void *arg, struct worker *w)
{
    struct seats *const s = arg;
    struct seat *const seat = &s->seat[w->id];
    void *page = s->pages + (size_t)w->id * PAGE;
    memset(page, 1, PAGE);
    if (syscall(SYS_getcpu, &seat->cpu, &seat->node, NULL)) seat->cpu = OS_CPU_NONE;
    seat->page_node = -1;
    if (syscall(SYS_move_pages, 0, 1UL, &page, NULL, &seat->page_node, 0)) seat->page_node = -1;
}

/* Each worker runs on the CPU and the node of the plan, and what it touches first lies there: on this machine, and on the
 * emulated ones of tests/emulated. */
static void bound_workers_sit_where_the_plan_says(void **state)
{
    (void)state;
    static struct machine machine;
    static struct placement place;
    static struct seats s;
    void *pages;
    discover_this_machine(&machine);
    assert_int_equal(placement_plan(&machine, &(struct placement_wish){0}, &place, NULL), MC_OK);
    assert_int_equal(os_mem_alloc((size_t)place.n * PAGE, OS_MEM_PLAIN, "seats", &pages, NULL), MC_OK);
    s.pages = pages;
    struct workers *t;
    assert_int_equal(workers_create(&place, &t, NULL), MC_OK);
    workers_run(t, note_seat, &s);
    workers_destroy(t);
    for (unsigned i = 0; i < place.n; i++) {
        assert_int_equal(s.seat[i].cpu, place.cpu[i]);
        if (place.node[i] != OS_CPU_NONE) assert_int_equal(s.seat[i].node, place.node[i]);
        if (s.seat[i].page_node >= 0) assert_int_equal(s.seat[i].page_node, s.seat[i].node);
    }
    print_message("%u workers in %u L3 groups sit where they should\n", place.n, place.n_groups);
    os_mem_free(pages, (size_t)place.n * PAGE);
}

#endif

static void a_team_that_never_ran_can_go(void **state)
{
    (void)state;
    workers_destroy(team_of(3));
    workers_destroy(team_of(1));
    workers_destroy(NULL);
}

/* A CPU that does not exist: the worker runs all the same, unbound. */
static void a_worker_that_cannot_be_bound_runs(void **state)
{
    (void)state;
    struct placement place = {.n = 2, .cpu = {8190, 8191}, .pinned = true};
    struct workers *t;
    unsigned sum[2] = {0};
    assert_int_equal(workers_create(&place, &t, NULL), MC_OK);
    workers_run(t, note, sum);
    assert_int_equal(sum[1], 2);
    workers_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_caller_gets_its_cpus_back), /* first: it needs a thread that nothing has bound */
#ifdef __linux__
        cmocka_unit_test(bound_workers_sit_where_the_plan_says),
#endif
        cmocka_unit_test(syncs_order_everything),
        cmocka_unit_test(each_task_is_taken_once),
        cmocka_unit_test(each_task_of_a_share_is_taken_once),
        cmocka_unit_test(near_workers_are_helped_first),
        cmocka_unit_test(groups_meet_like_one_team),
        cmocka_unit_test(runs_follow_each_other),
        cmocka_unit_test(a_team_that_never_ran_can_go),
        cmocka_unit_test(a_worker_that_cannot_be_bound_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
