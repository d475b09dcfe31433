/* test_placement.c - which CPUs the workers get, on machines that are only described.
 *
 * Goal: one worker a physical core inside the allowed set, siblings last, the fast kind first, clear refusals. Method: machines
 * written down here by a few numbers each; nothing of the real machine is asked. */
#include "topology/placement.h"

#include "platform/base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static unsigned n_warnings;

static void count_warnings(void *user, enum mc_log_level level, const char *line)
{
    (void)user;
    (void)line;
    n_warnings += level == MC_LOG_WARN;
}

/* n_cores cores with CPU numbers c and c + n_cores (Linux' order) or 2c and 2c + 1 (Windows'). */
static struct machine smt_machine(unsigned n_cores, bool adjacent)
{
    struct machine m = {.n = 2 * n_cores};
    for (unsigned i = 0; i < m.n; i++) m.cpu[i] = (struct os_cpu_row){.cpu = i, .core = adjacent ? i / 2 : i % n_cores};
    machine_index(&m);
    return m;
}

static void check_plan(const struct machine *m, struct placement_wish wish, bool pinned, unsigned n, const unsigned *cpus)
{
    static struct placement p;
    struct mc_err err;
    assert_int_equal(placement_plan(m, &wish, &p, &err), MC_OK);
    assert_int_equal(p.n, n);
    assert_int_equal(p.pinned, pinned);
    if (pinned) assert_memory_equal(p.cpu, cpus, n * sizeof *cpus);
}

static void one_worker_a_core(void **state)
{
    (void)state;
    const struct machine linux_order = smt_machine(4, false), windows_order = smt_machine(4, true);
    check_plan(&linux_order, (struct placement_wish){0}, true, 4, (const unsigned[]){0, 1, 2, 3});
    check_plan(&windows_order, (struct placement_wish){0}, true, 4, (const unsigned[]){0, 2, 4, 6});
    check_plan(&windows_order, (struct placement_wish){.n_threads = 3}, true, 3, (const unsigned[]){0, 2, 4});
    check_plan(&windows_order, (struct placement_wish){.pin = PLACEMENT_PIN_OFF}, false, 4, NULL);
    assert_int_equal(n_warnings, 0);
}

static void siblings_come_last(void **state)
{
    (void)state;
    const struct machine linux_order = smt_machine(4, false), windows_order = smt_machine(4, true);
    check_plan(&linux_order, (struct placement_wish){.n_threads = 6}, true, 6, (const unsigned[]){0, 1, 2, 3, 4, 5});
    check_plan(&windows_order, (struct placement_wish){.n_threads = 6}, true, 6, (const unsigned[]){0, 2, 4, 6, 1, 3});
    check_plan(&windows_order, (struct placement_wish){.n_threads = 8}, true, 8, (const unsigned[]){0, 2, 4, 6, 1, 3, 5, 7});
}

static void only_allowed_cpus_are_used(void **state)
{
    (void)state;
    struct machine one = {.n = 1, .cpu = {{.cpu = 17, .core = 1}}};
    machine_index(&one);
    check_plan(&one, (struct placement_wish){0}, true, 1, (const unsigned[]){17});
    /* one whole core, two half ones */
    struct machine holes = {
        .n = 4, .cpu = {{.cpu = 0, .core = 0}, {.cpu = 16, .core = 0}, {.cpu = 17, .core = 1}, {.cpu = 24, .core = 8}}};
    machine_index(&holes);
    check_plan(&holes, (struct placement_wish){0}, true, 3, (const unsigned[]){0, 17, 24});
    check_plan(&holes, (struct placement_wish){.n_threads = 4}, true, 4, (const unsigned[]){0, 17, 24, 16});
    struct machine unknown = {.n = 2, .cpu = {{.cpu = 3, .core = OS_CPU_NONE}, {.cpu = 5, .core = OS_CPU_NONE}}};
    machine_index(&unknown);
    check_plan(&unknown, (struct placement_wish){0}, true, 2, (const unsigned[]){3, 5});
}

static void fast_cores_come_first(void **state)
{
    (void)state;
    struct machine m = {.n = 6}; /* two slow cores, two fast ones with siblings */
    const unsigned core[] = {0, 1, 2, 2, 3, 3};
    for (unsigned i = 0; i < 6; i++) m.cpu[i] = (struct os_cpu_row){.cpu = i, .core = core[i], .efficiency = core[i] >= 2};
    machine_index(&m);
    check_plan(&m, (struct placement_wish){0}, true, 2, (const unsigned[]){2, 4});
    check_plan(&m, (struct placement_wish){.n_threads = 6}, true, 6, (const unsigned[]){2, 4, 0, 1, 3, 5});
}

/* Two L3 groups of two cores with siblings, interleaved by number: every other core belongs to the other cache. */
static struct machine two_caches(void)
{
    struct machine m = smt_machine(4, false);
    for (unsigned i = 0; i < m.n; i++) m.cpu[i].l3 = m.cpu[i].core % 2;
    machine_index(&m);
    return m;
}

static void neighbours_share_a_cache(void **state)
{
    (void)state;
    const struct machine m = two_caches();
    static struct placement p;
    check_plan(&m, (struct placement_wish){0}, true, 4, (const unsigned[]){0, 2, 1, 3});
    check_plan(&m, (struct placement_wish){.n_threads = 3}, true, 3, (const unsigned[]){0, 2, 1});
    check_plan(&m, (struct placement_wish){.n_threads = 8}, true, 8, (const unsigned[]){0, 2, 4, 6, 1, 3, 5, 7});
    assert_int_equal(placement_plan(&m, &(struct placement_wish){.n_threads = 3}, &p, NULL), MC_OK);
    assert_int_equal(p.n_groups, 2);
    assert_memory_equal(p.group, ((const unsigned[]){0, 0, 1}), 3 * sizeof(unsigned));
    /* a list keeps its order, and only the caches in it count */
    static const unsigned list[] = {3, 0, 1}, one_cache[] = {7, 1};
    struct placement_wish wish = {.pin = PLACEMENT_PIN_LIST, .list = list, .n_list = 3};
    assert_int_equal(placement_plan(&m, &wish, &p, NULL), MC_OK);
    assert_int_equal(p.n_groups, 2);
    assert_memory_equal(p.group, ((const unsigned[]){0, 1, 0}), 3 * sizeof(unsigned));
    wish = (struct placement_wish){.pin = PLACEMENT_PIN_LIST, .list = one_cache, .n_list = 2};
    assert_int_equal(placement_plan(&m, &wish, &p, NULL), MC_OK);
    assert_int_equal(p.n_groups, 1);
    /* who is not bound has no cache */
    assert_int_equal(placement_plan(&m, &(struct placement_wish){.pin = PLACEMENT_PIN_OFF}, &p, NULL), MC_OK);
    assert_int_equal(p.n_groups, 1);
    assert_int_equal(p.group[3], 0);
}

/* Of several caches for one core each nothing is believed; one core of each of two real caches is something else. */
static void private_caches_are_not_believed(void **state)
{
    (void)state;
    struct machine m = {.n = 4};
    for (unsigned i = 0; i < m.n; i++) m.cpu[i] = (struct os_cpu_row){.cpu = i, .core = i / 2, .l3 = i / 2};
    machine_distrust_l3(&m);
    machine_index(&m);
    assert_int_equal(m.cpu[0].l3, OS_CPU_NONE);
    assert_int_equal(m.n_groups, 1);
    m = two_caches();
    machine_distrust_l3(&m);
    m.n = 2; /* what an affinity mask leaves of it */
    machine_index(&m);
    assert_int_equal(m.cpu[1].l3, 1);
    assert_int_equal(m.n_groups, 2);
    m = (struct machine){.n = 1};
    machine_distrust_l3(&m);
    assert_int_equal(m.cpu[0].l3, 0);
}

static void a_quota_limits_the_default(void **state)
{
    (void)state;
    static const struct {
        unsigned milli, workers;
    } rows[] = {{0, 4}, {1, 1}, {999, 1}, {1000, 1}, {2999, 2}, {4000, 4}, {64000, 4}};
    struct machine m = smt_machine(4, false);
    static struct placement p;
    n_warnings = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        m.quota_milli = rows[i].milli;
        assert_int_equal(placement_plan(&m, &(struct placement_wish){0}, &p, NULL), MC_OK);
        assert_int_equal(p.n, rows[i].workers);
        assert_int_equal(p.pinned, rows[i].milli == 0 || rows[i].milli >= 4000); /* else others may have chosen the same */
        assert_false(p.shared);
    }
    assert_int_equal(n_warnings, 0);
    m.quota_milli = 2500; /* the user's number is followed */
    assert_int_equal(placement_plan(&m, &(struct placement_wish){.n_threads = 3}, &p, NULL), MC_OK);
    assert_int_equal(p.n, 3);
    assert_int_equal(n_warnings, 1);
}

static void an_inherited_mask_of_one_cpu_is_told(void **state)
{
    (void)state;
    struct machine m = {.n = 1, .cpu = {{.cpu = 3}}, .n_present = 8, .n_cpuset = 8};
    static struct placement p;
    machine_index(&m);
    n_warnings = 0;
    assert_int_equal(placement_plan(&m, &(struct placement_wish){0}, &p, NULL), MC_OK);
    assert_int_equal(n_warnings, 1);
    assert_int_equal(placement_plan(&m, &(struct placement_wish){.n_threads = 2}, &p, NULL), MC_OK);
    assert_int_equal(n_warnings, 2); /* once, though they share as well */
    assert_int_equal(placement_plan(&m, &(struct placement_wish){.n_threads = 1}, &p, NULL), MC_OK);
    m.n_cpuset = 1; /* a container of one CPU is no accident */
    assert_int_equal(placement_plan(&m, &(struct placement_wish){0}, &p, NULL), MC_OK);
    assert_int_equal(n_warnings, 2);
}

static void too_many_threads_share_and_are_told(void **state)
{
    (void)state;
    const struct machine m = smt_machine(1, true);
    static struct placement p;
    n_warnings = 0;
    assert_int_equal(placement_plan(&m, &(struct placement_wish){.n_threads = 3}, &p, NULL), MC_OK);
    assert_int_equal(p.n, 3);
    assert_true(p.shared);
    assert_false(p.pinned);
    assert_int_equal(n_warnings, 1);
    struct mc_err err;
    assert_int_equal(placement_plan(&m, &(struct placement_wish){.n_threads = PLACEMENT_MAX + 1}, &p, &err), MC_EARG);
    assert_non_null(strstr(err.msg, "513"));
}

static void a_list_is_followed(void **state)
{
    (void)state;
    const struct machine m = smt_machine(4, false);
    static const unsigned list[] = {5, 1, 7}, foreign[] = {1, 9}, twice[] = {2, 2};
    static struct placement p;
    struct mc_err err;
    struct placement_wish wish = {.pin = PLACEMENT_PIN_LIST, .list = list, .n_list = 3};
    check_plan(&m, wish, true, 3, list);
    wish.n_threads = 2;
    check_plan(&m, wish, true, 2, list);
    n_warnings = 0;
    wish.n_threads = 4;
    check_plan(&m, wish, true, 4, (const unsigned[]){5, 1, 7, 5});
    assert_int_equal(n_warnings, 1);
    wish = (struct placement_wish){.pin = PLACEMENT_PIN_LIST, .list = twice, .n_list = 2};
    assert_int_equal(placement_plan(&m, &wish, &p, &err), MC_OK);
    assert_true(p.shared && p.pinned);
    wish.list = foreign;
    assert_int_equal(placement_plan(&m, &wish, &p, &err), MC_EARG);
    assert_non_null(strstr(err.msg, "CPU 9"));
    wish.n_list = 0;
    assert_int_equal(placement_plan(&m, &wish, &p, &err), MC_EARG);
}

/* The largest machine that is described and more cores than workers can be. */
static void huge_machines_fit(void **state)
{
    (void)state;
    static struct machine m;
    static struct placement p;
    m = smt_machine(MACHINE_CPUS_MAX / 2, false);
    assert_int_equal(placement_plan(&m, &(struct placement_wish){0}, &p, NULL), MC_OK);
    assert_int_equal(p.n, MACHINE_CPUS_MAX / 2);
    for (unsigned i = 0; i < m.n; i++) m.cpu[i].core = i;
    machine_index(&m);
    assert_int_equal(placement_plan(&m, &(struct placement_wish){0}, &p, NULL), MC_OK);
    assert_int_equal(p.n, PLACEMENT_MAX);
}

int main(void)
{
    mc_log_set(count_warnings, NULL, MC_LOG_WARN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_worker_a_core),
        cmocka_unit_test(siblings_come_last),
        cmocka_unit_test(only_allowed_cpus_are_used),
        cmocka_unit_test(fast_cores_come_first),
        cmocka_unit_test(neighbours_share_a_cache),
        cmocka_unit_test(private_caches_are_not_believed),
        cmocka_unit_test(a_quota_limits_the_default),
        cmocka_unit_test(an_inherited_mask_of_one_cpu_is_told),
        cmocka_unit_test(too_many_threads_share_and_are_told),
        cmocka_unit_test(a_list_is_followed),
        cmocka_unit_test(huge_machines_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
