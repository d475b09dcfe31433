/* test_machines.c - the placement on machines that are not here.
 *
 * Goal: each described machine gets the workers that the rules of placement.h give it, written down here by hand: one a core of
 * the fastest kind, on its lowest allowed CPU, neighbours under one L3. Method: the hwloc documents of tests/data/topology
 * where the build has hwloc; on Windows the captured answers of the system for machines of the same shape. */
#include "topology/discover.h"
#include "topology/placement.h"
#ifdef _WIN32
#include "platform/windows/os_windows.h"
#endif

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* `n` workers on CPUs first, first + step ...; under one group. */
struct run {
    unsigned first, n, step;
};

enum { RUNS_MAX = 32 };

struct expectation {
    const char *name;
    unsigned quota_milli, threads;     /* 0: none, default */
    struct run run[RUNS_MAX];          /* in the order of the workers, a group each; the first of n 0 ends the list */
    unsigned more, more_n, cores_each; /* then `more` groups of more_n workers, whose CPUs follow; cores_each apart */
};

/* Fills *m; false where this build cannot read it. */
static bool load(const char *name, struct machine *m)
{
    char path[1024];
    struct mc_err err;
    snprintf(path, sizeof path, "%s/topology/%s", MC_TEST_DATA, name);
#ifdef _WIN32
    char *data;
    size_t size;
    if (!strstr(name, ".bin")) return false;
    assert_int_equal(os_file_read_all(path, 1 << 20, &data, &size, NULL), MC_OK);
    memset(m, 0, sizeof *m);
    m->n = (unsigned)windows_cpu_rows_parse((struct mc_span){(const uint8_t *)data, size}, m->cpu, MACHINE_CPUS_MAX);
    m->n_present = m->n_cpuset = m->n;
    machine_distrust_l3(m);
    machine_index(m);
    free(data);
    (void)err;
#else
    if (strstr(name, ".bin")) return false;
    if (discover_described(path, m, &err)) fail_msg("%s", err.msg);
#endif
    return true;
}

static const struct expectation expectations[] = {
    {"ryzen9-9955hx.xml", 0, 0, {{0, 8, 1}, {8, 8, 1}}, 0, 0, 0},
    {"ryzen9-9955hx.xml", 0, 4, {{0, 4, 1}}, 0, 0, 0},
    {"ryzen9-9955hx.xml", 0, 10, {{0, 8, 1}, {8, 2, 1}}, 0, 0, 0},
    {"ryzen9-9955hx.xml", 0, 20, {{0, 8, 1}, {16, 4, 1}, {8, 8, 1}}, 0, 0, 0}, /* four siblings, beside their cores */
    {"ryzen9-9955hx.xml", 12000, 0, {{0, 8, 1}, {8, 4, 1}}, 0, 0, 0},
    {"ryzen9-9955hx-smt-off.xml", 0, 0, {{0, 8, 1}, {8, 8, 1}}, 0, 0, 0},
    {"ryzen9-9955hx-windows-order.xml", 0, 0, {{0, 8, 2}, {16, 8, 2}}, 0, 0, 0},
    {"ryzen9-9955hx-cpuset3.xml", 0, 0, {{6, 2, 1}, {8, 1, 1}}, 0, 0, 0},
    {"ryzen9-9955hx-cpuset3-disallowed.xml", 0, 0, {{6, 2, 1}, {8, 1, 1}}, 0, 0, 0},
    {"ryzen9-9955hx-cpuset-siblings.xml", 0, 0, {{0, 2, 17}, {24, 1, 1}}, 0, 0, 0},
    {"ryzen9-9955hx-cpuset-siblings.xml", 0, 4, {{0, 2, 17}, {16, 1, 1}, {24, 1, 1}}, 0, 0, 0},
    {"ryzen9-9950x3d.xml", 0, 0, {{0, 8, 1}, {8, 8, 1}}, 0, 0, 0},
    {"ryzen9-7950x-one-ccd-offline.xml", 0, 0, {{0, 3, 1}, {4, 4, 1}}, 0, 0, 0},
    {"threadripper-7980x.xml", 0, 0, {{0, 0, 0}}, 8, 8, 8},
    {"epyc-9654-1s-nps1.xml", 0, 0, {{0, 0, 0}}, 12, 8, 8},
    {"epyc-9654-1s-nps1.xml", 7650, 0, {{0, 7, 1}}, 0, 0, 0}, /* 96 cores, a quota of 7.65 */
    {"epyc-9654-1s-nps1.xml", 650, 0, {{0, 1, 1}}, 0, 0, 0},
    {"epyc-9654-2s-nps1.xml", 0, 0, {{0, 0, 0}}, 24, 8, 8},
    {"epyc-9654-2s-nps4.xml", 0, 0, {{0, 0, 0}}, 24, 8, 8},
    {"epyc-7742-2s-ccx4.xml", 0, 0, {{0, 0, 0}}, 32, 4, 4},
    {"epyc-9755-1s-16ccd.xml", 0, 0, {{0, 0, 0}}, 16, 8, 8},
    {"epyc-9755-1s-16ccd.xml", 0, 96, {{0, 0, 0}}, 12, 8, 8},
    {"epyc-cxl-memory-only-node.xml", 0, 0, {{0, 0, 0}}, 4, 8, 8},
    {"xeon-8480-2s.xml", 0, 0, {{0, 0, 0}}, 2, 56, 56},
    {"intel-13900k-hybrid.xml", 0, 0, {{0, 8, 2}}, 0, 0, 0},               /* P cores only */
    {"intel-13900k-hybrid.xml", 0, 24, {{0, 8, 2}, {16, 16, 1}}, 0, 0, 0}, /* then E cores, before any sibling */
    {"intel-155h-lp-e-no-l3.xml", 0, 0, {{0, 6, 2}}, 0, 0, 0},
    {"intel-155h-lp-e-no-l3.xml", 0, 16, {{0, 6, 2}, {12, 8, 1}, {20, 2, 1}}, 0, 0, 0},
    {"vm-16-sockets-of-1.xml", 0, 0, {{0, 16, 1}}, 0, 0, 0},
    {"vm-2cpu-private-huge-l3.xml", 0, 0, {{0, 2, 1}}, 0, 0, 0},
    {"vm-2cpu-no-caches.xml", 0, 0, {{0, 2, 1}}, 0, 0, 0},
    {"one-cpu-no-caches.xml", 0, 0, {{0, 1, 1}}, 0, 0, 0},
    {"qemu-2s-4nodes-16cpu.xml", 0, 0, {{0, 0, 0}}, 4, 4, 4},
    {"qemu-2s-smt.xml", 0, 0, {{0, 4, 2}, {8, 4, 2}}, 0, 0, 0},
    {"qemu-memory-only-node.xml", 0, 0, {{0, 8, 1}}, 0, 0, 0},
    {"windows/win-ryzen9-9955hx.bin", 0, 0, {{0, 8, 2}, {16, 8, 2}}, 0, 0, 0},
    {"windows/win-ryzen9-9955hx-unknown-relations.bin", 0, 0, {{0, 8, 2}, {16, 8, 2}}, 0, 0, 0},
    {"windows/win-ryzen9-9955hx-smt-off.bin", 0, 0, {{0, 8, 1}, {8, 8, 1}}, 0, 0, 0},
    {"windows/win-13900k-hybrid.bin", 0, 0, {{0, 8, 2}}, 0, 0, 0},
    {"windows/win-one-cpu-no-caches.bin", 0, 0, {{0, 1, 1}}, 0, 0, 0},
    {"windows/wine8-2cpu.bin", 0, 0, {{0, 2, 1}}, 0, 0, 0},
};

/* The CPUs of worker number `at`, as the row says. */
static unsigned expected_cpu(const struct expectation *x, unsigned at)
{
    for (unsigned r = 0; r < RUNS_MAX && x->run[r].n; r++) {
        if (at < x->run[r].n) return x->run[r].first + at * x->run[r].step;
        at -= x->run[r].n;
    }
    return at / x->more_n * x->cores_each + at % x->more_n;
}

static unsigned expected_count(const struct expectation *x)
{
    unsigned n = x->more * x->more_n;
    for (unsigned r = 0; r < RUNS_MAX && x->run[r].n; r++) n += x->run[r].n;
    return n;
}

static unsigned index_of(const struct machine *m, unsigned cpu)
{
    for (unsigned i = 0; i < m->n; i++)
        if (m->cpu[i].cpu == cpu) return i;
    fail_msg("CPU %u is not one of the machine's", cpu);
    return 0;
}

/* What holds on every machine. */
static void check_rules(const struct machine *m, const struct placement *p)
{
    assert_true(p->pinned && !p->shared);
    for (unsigned i = 0; i < p->n; i++) {
        const unsigned at = index_of(m, p->cpu[i]);
        assert_int_equal(p->node[i], m->cpu[at].node);
        if (i > 0) {
            const unsigned before = index_of(m, p->cpu[i - 1]);
            assert_int_equal(p->group[i], p->group[i - 1] + (m->group[at] != m->group[before]));
        }
    }
    assert_int_equal(p->n_groups, p->group[p->n - 1] + 1);
}

static void machines_get_their_workers(void **state)
{
    (void)state;
    static struct machine m;
    static struct placement p;
    unsigned n_read = 0;
    for (size_t k = 0; k < ARRAY_LEN(expectations); k++) {
        const struct expectation *const x = &expectations[k];
        struct mc_err err;
        if (!load(x->name, &m)) continue;
        n_read++;
        print_message("%s, quota %u, threads %u\n", x->name, x->quota_milli, x->threads);
        m.quota_milli = x->quota_milli;
        assert_int_equal(placement_plan(&m, &(struct placement_wish){.n_threads = x->threads}, &p, &err), MC_OK);
        assert_int_equal(p.n, expected_count(x));
        assert_int_equal(p.pinned, x->quota_milli == 0);
        if (x->quota_milli) continue;
        for (unsigned i = 0; i < p.n; i++) assert_int_equal(p.cpu[i], expected_cpu(x, i));
        check_rules(&m, &p);
    }
    assert_true(n_read >= 6);
}

#ifdef _WIN32

/* More than 64 CPUs come in processor groups whose numbers start at multiples of 64; the groups of these machines are full. */
static void machines_of_several_processor_groups(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        unsigned cores, l3, packages;
    } rows[] = {{"windows/win-epyc-9654-1s.bin", 96, 12, 1}, {"windows/win-epyc-9654-2s.bin", 192, 24, 2}};
    static struct machine m;
    static struct placement p;
    for (size_t k = 0; k < ARRAY_LEN(rows); k++) {
        assert_true(load(rows[k].name, &m));
        assert_int_equal(m.n, 2 * rows[k].cores);
        assert_int_equal(m.n_groups, rows[k].l3);
        assert_int_equal(machine_count(&m, offsetof(struct os_cpu_row, package)), rows[k].packages);
        assert_int_equal(placement_plan(&m, &(struct placement_wish){0}, &p, NULL), MC_OK);
        assert_int_equal(p.n, rows[k].cores);
        check_rules(&m, &p);
        for (unsigned i = 0; i < p.n; i++) assert_int_equal(m.sibling[index_of(&m, p.cpu[i])], 0);
    }
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(machines_get_their_workers),
#ifdef _WIN32
        cmocka_unit_test(machines_of_several_processor_groups),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
