/* test_discover.c - the machine as it is found, and machines as they are described.
 *
 * Goal: this machine's list is exactly the allowed CPUs, also for a thread bound to one of them; each described machine comes
 * out with its cores, kinds, nodes and L3 groups. Method: hwloc documents in tests/data/topology; builds without hwloc skip
 * those. */
#include "topology/discover.h"
#include "topology/placement.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void this_machine_is_its_allowed_cpus(void **state)
{
    (void)state;
    static struct machine m;
    unsigned cpus[MACHINE_CPUS_MAX];
    discover_this_machine(&m);
    assert_int_equal(m.n, os_cpus_allowed(cpus, MACHINE_CPUS_MAX));
    for (unsigned i = 0; i < m.n; i++) assert_int_equal(m.cpu[i].cpu, cpus[i]);
}

/* Under a mask of one CPU there is one worker. Windows keeps its list by process, so there only the first holds. */
static void a_mask_of_one_cpu_gives_one_worker(void **state)
{
    (void)state;
    static struct machine m;
    static struct placement p;
    unsigned all[MACHINE_CPUS_MAX], one[2];
    const size_t n = os_cpus_allowed(all, MACHINE_CPUS_MAX);
    struct os_affinity before;
    os_thread_affinity_get(&before);
    assert_int_equal(os_thread_bind(all[n - 1], NULL), MC_OK);
    if (os_cpus_allowed(one, 2) == 1) {
        discover_this_machine(&m);
        assert_int_equal(m.n, 1);
        assert_int_equal(m.cpu[0].cpu, all[n - 1]);
        assert_int_equal(placement_plan(&m, &(struct placement_wish){0}, &p, NULL), MC_OK);
        assert_int_equal(p.n, 1);
        assert_int_equal(p.cpu[0], all[n - 1]);
    } else {
        puts("skipped: a thread's mask is not the process's here");
    }
    os_thread_affinity_set(&before);
}

/* False in builds without hwloc. */
static bool describe(const char *name, struct machine *m)
{
    char path[1024];
    struct mc_err err;
    snprintf(path, sizeof path, "%s/topology/%s", MC_TEST_DATA, name);
    const enum mc_code code = discover_described(path, m, &err);
    if (code == MC_EUNSUPPORTED) {
        printf("skipped: %s\n", err.msg);
        return false;
    }
    assert_int_equal(code, MC_OK);
    return true;
}

static unsigned count_different(const struct machine *m, size_t field_off)
{
    unsigned n = 0;
    for (unsigned i = 0; i < m->n; i++) {
        unsigned id, other, k = 0;
        memcpy(&id, (const char *)&m->cpu[i] + field_off, sizeof id);
        for (; k < i; k++) {
            memcpy(&other, (const char *)&m->cpu[k] + field_off, sizeof other);
            if (other == id) break;
        }
        n += k == i && id != OS_CPU_NONE;
    }
    return n;
}

struct shape {
    const char *name;
    unsigned cpus, cores, packages, nodes, l3, workers; /* nodes: those with CPUs */
};

/* The numbers are those that hwloc 2.9 answers for these documents. */
static void described_machines_have_their_shapes(void **state)
{
    (void)state;
    static const struct shape shapes[] = {
        {"ryzen9-9955hx.xml", 32, 16, 1, 1, 2, 16},
        {"ryzen9-9955hx-windows-order.xml", 32, 16, 1, 1, 2, 16},
        {"ryzen9-9955hx-cpuset3-disallowed.xml", 3, 3, 1, 1, 2, 3},
        {"ryzen9-9955hx-cpuset-siblings.xml", 4, 3, 1, 1, 2, 3},
        {"intel-13900k-hybrid.xml", 32, 24, 1, 1, 1, 8},
        {"qemu-2s-smt.xml", 16, 8, 2, 2, 2, 8},
        {"qemu-memory-only-node.xml", 8, 8, 1, 1, 1, 8},
        {"vm-2cpu-no-caches.xml", 2, 2, 1, 1, 0, 2},
        {"one-cpu-no-caches.xml", 1, 1, 1, 1, 0, 1},
    };
    static struct machine m;
    static struct placement p;
    for (size_t k = 0; k < ARRAY_LEN(shapes); k++) {
        const struct shape *const s = &shapes[k];
        if (!describe(s->name, &m)) return;
        print_message("%s\n", s->name);
        assert_int_equal(m.n, s->cpus);
        assert_int_equal(count_different(&m, offsetof(struct os_cpu_row, core)), s->cores);
        assert_int_equal(count_different(&m, offsetof(struct os_cpu_row, package)), s->packages);
        assert_int_equal(count_different(&m, offsetof(struct os_cpu_row, node)), s->nodes);
        assert_int_equal(count_different(&m, offsetof(struct os_cpu_row, l3)), s->l3);
        assert_int_equal(placement_plan(&m, &(struct placement_wish){0}, &p, NULL), MC_OK);
        assert_int_equal(p.n, s->workers);
    }
}

static void the_first_workers_sit_on_different_cores(void **state)
{
    (void)state;
    static struct machine m;
    static struct placement p;
    if (!describe("ryzen9-9955hx-windows-order.xml", &m)) return;
    assert_int_equal(placement_plan(&m, &(struct placement_wish){0}, &p, NULL), MC_OK);
    for (unsigned i = 0; i < p.n; i++) assert_int_equal(p.cpu[i], 2 * i);
    assert_true(describe("ryzen9-9955hx-cpuset-siblings.xml", &m));
    assert_int_equal(placement_plan(&m, &(struct placement_wish){0}, &p, NULL), MC_OK);
    const unsigned want[] = {0, 17, 24};
    assert_memory_equal(p.cpu, want, sizeof want);
}

static void synthetic_strings_and_nonsense(void **state)
{
    (void)state;
    static struct machine m;
    struct mc_err err;
    const enum mc_code code = discover_described("Package:2 L3:2 Core:4 PU:2", &m, &err);
    if (code == MC_EUNSUPPORTED) {
        printf("skipped: %s\n", err.msg);
        return;
    }
    assert_int_equal(code, MC_OK);
    assert_int_equal(m.n, 32);
    assert_int_equal(count_different(&m, offsetof(struct os_cpu_row, core)), 16);
    assert_int_equal(discover_described("no such machine", &m, &err), MC_EFORMAT);
    assert_non_null(strstr(err.msg, "no such machine"));
    assert_int_equal(discover_described(MC_TEST_DATA, &m, &err), MC_EFORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(this_machine_is_its_allowed_cpus),     cmocka_unit_test(a_mask_of_one_cpu_gives_one_worker),
        cmocka_unit_test(described_machines_have_their_shapes), cmocka_unit_test(the_first_workers_sit_on_different_cores),
        cmocka_unit_test(synthetic_strings_and_nonsense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
