/* test_discover.c - the machine as it is found, and machines as they are described.
 *
 * Goal: this machine's list is exactly the allowed CPUs, also for a thread bound to one of them; each described machine comes
 * out with its cores, kinds, nodes, caches and worker groups. Method: the hwloc documents of tests/data/topology beside what
 * hwloc 2.9 itself answers for each (expected.tsv, its columns in the first line); builds without hwloc skip those, and read
 * the captured answers of Windows in test_machines.c. */
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

/* ---- the table ---- */

enum { COLUMN_FILE, PACKAGES, NODES, L3, L2, CORES, PUS, CPUKINDS, PU_LIST, L3_GROUPS, CORES_WITHOUT_L3, COLUMNS };

/* Nodes of these have no CPU and are not seen; L3 caches of those are private and do not count. */
static const char *const with_memory_only_node[] = {"epyc-cxl-memory-only-node.xml", "qemu-memory-only-node.xml"};
static const char *const with_private_l3[] = {"vm-16-sockets-of-1.xml", "vm-2cpu-private-huge-l3.xml"};

static bool is_one_of(const char *name, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(list[i], name)) return true;
    return false;
}

struct text {
    char s[4096];
    size_t n;
};

/* Appends "a-b" or "a". */
static void add_range(struct text *t, unsigned first, unsigned last)
{
    const char *const comma = t->n && t->s[t->n - 1] != ';' ? "," : "";
    t->n += (size_t)(first == last ? snprintf(t->s + t->n, sizeof t->s - t->n, "%s%u", comma, first)
                                   : snprintf(t->s + t->n, sizeof t->s - t->n, "%s%u-%u", comma, first, last));
    assert_true(t->n < sizeof t->s);
}

/* CPUs as "0-2,4": all, or the first of each core; of one L3, or of all. */
static void add_list(struct text *t, const struct machine *m, bool first_of_core, unsigned l3)
{
    unsigned first = OS_CPU_NONE, last = 0;
    for (unsigned i = 0; i < m->n; i++) {
        if ((first_of_core && m->sibling[i]) || (l3 != OS_CPU_NONE && m->cpu[i].l3 != l3)) continue;
        if (first != OS_CPU_NONE && m->cpu[i].cpu == last + 1) {
            last++;
            continue;
        }
        if (first != OS_CPU_NONE) add_range(t, first, last);
        first = last = m->cpu[i].cpu;
    }
    if (first != OS_CPU_NONE) add_range(t, first, last);
}

static unsigned cores_without_l3(const struct machine *m)
{
    unsigned n = 0;
    for (unsigned i = 0; i < m->n; i++) n += m->sibling[i] == 0 && m->cpu[i].l3 == OS_CPU_NONE;
    return n;
}

#define COUNT(m, field) machine_count(m, offsetof(struct os_cpu_row, field))

static void check_row(char *const column[COLUMNS])
{
    static struct machine m;
    struct text cpus = {{0}, 0}, groups = {{0}, 0};
    const char *const name = column[COLUMN_FILE];
    const bool is_private = is_one_of(name, with_private_l3, ARRAY_LEN(with_private_l3));
    const unsigned memory_nodes = is_one_of(name, with_memory_only_node, ARRAY_LEN(with_memory_only_node));
    print_message("%s\n", name);
    assert_true(describe(name, &m));
    assert_int_equal(m.n, strtoul(column[PUS], NULL, 10));
    assert_int_equal(COUNT(&m, core), strtoul(column[CORES], NULL, 10));
    assert_int_equal(COUNT(&m, package), strtoul(column[PACKAGES], NULL, 10));
    assert_int_equal(COUNT(&m, node), strtoul(column[NODES], NULL, 10) - memory_nodes);
    add_list(&cpus, &m, false, OS_CPU_NONE);
    assert_string_equal(cpus.s, column[PU_LIST]);
    if (is_private) {
        assert_int_equal(COUNT(&m, l3), 0);
        assert_int_equal(m.n_groups, 1);
        return;
    }
    const unsigned n_l3 = COUNT(&m, l3), without = cores_without_l3(&m);
    assert_int_equal(n_l3, strtoul(column[L3], NULL, 10));
    assert_int_equal(without, strtoul(column[CORES_WITHOUT_L3], NULL, 10));
    for (unsigned i = 0; i < n_l3; i++) {
        if (i) groups.s[groups.n++] = ';';
        add_list(&groups, &m, true, i);
    }
    assert_string_equal(n_l3 ? groups.s : "-", column[L3_GROUPS]);
    assert_int_equal(m.n_groups, n_l3 + (without > 0));
    for (unsigned i = 1; i < m.n; i++)
        if (n_l3) assert_int_equal(m.group[i] == m.group[0], m.cpu[i].l3 == m.cpu[0].l3);
}

static void described_machines_are_what_hwloc_says(void **state)
{
    (void)state;
    static struct machine m;
    char *text, *line;
    size_t size;
    unsigned n = 0;
    if (!describe("one-cpu-no-caches.xml", &m)) return;
    assert_int_equal(os_file_read_all(MC_TEST_DATA "/topology/expected.tsv", 1 << 20, &text, &size, NULL), MC_OK);
    for (line = strchr(text, '\n') + 1; *line; n++) {
        char *column[COLUMNS];
        for (unsigned c = 0; c < COLUMNS; c++) {
            column[c] = line;
            line += strcspn(line, "\t\n");
            assert_int_equal(*line, c + 1 < COLUMNS ? '\t' : '\n');
            *line++ = '\0';
        }
        check_row(column);
    }
    assert_int_equal(n, 25);
    free(text);
}

static void facts_beyond_the_table(void **state)
{
    (void)state;
    static struct machine m;
    if (!describe("ryzen9-9950x3d.xml", &m)) return;
    assert_int_equal(m.cpu[0].l3_bytes, 96 << 20);
    assert_int_equal(m.cpu[8].l3_bytes, 32 << 20);
    assert_int_equal(m.cpu[0].l2_bytes, 1 << 20);
    assert_int_equal(m.cpu[0].l1d_bytes, 48 << 10);
    assert_true(describe("intel-155h-lp-e-no-l3.xml", &m)); /* three kinds of core */
    assert_true(m.cpu[0].efficiency > m.cpu[12].efficiency && m.cpu[12].efficiency > m.cpu[21].efficiency);
    assert_int_equal(m.cpu[21].l3_bytes, 0);
    assert_true(describe("ryzen9-9955hx-cpuset3-disallowed.xml", &m));
    assert_int_equal(m.n_present, 32);
    assert_int_equal(m.n_cpuset, 3);
    assert_int_equal(m.quota_milli, 0);
    assert_true(describe("ryzen9-7950x-one-ccd-offline.xml", &m));
    assert_int_equal(m.n, 14);
    assert_true(describe("epyc-9654-2s-nps4.xml", &m)); /* eight nodes of three L3 caches */
    assert_int_equal(m.group[95], 11);
    assert_int_equal(m.cpu[95].node, 3);
    assert_int_equal(m.group[96], 12);
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
    assert_int_equal(COUNT(&m, core), 16);
    assert_int_equal(discover_described("no such machine", &m, &err), MC_EARG);
    assert_non_null(strstr(err.msg, "no such machine"));
    assert_int_equal(discover_described(MC_TEST_DATA, &m, &err), MC_EARG);
    assert_int_equal(discover_described("Package:100 L3:4 Core:8 PU:2", &m, &err), MC_EARG);
    assert_non_null(strstr(err.msg, "6400 CPUs; at most 1024"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(this_machine_is_its_allowed_cpus),       cmocka_unit_test(a_mask_of_one_cpu_gives_one_worker),
        cmocka_unit_test(described_machines_are_what_hwloc_says), cmocka_unit_test(facts_beyond_the_table),
        cmocka_unit_test(synthetic_strings_and_nonsense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
