/* discover.c - the machine, from hwloc where the build has it and from the seam's rows elsewhere (Windows).
 *
 * hwloc is loaded without its flag RESTRICT_TO_CPUBINDING; instead the CPUs outside os_cpus_allowed are dropped here,
 * which means the same on both systems: taskset, cpusets and process masks are all obeyed. I/O devices are filtered out, they
 * only cost time. NUMA nodes are memory children in hwloc, not ancestors, so the node is read from the CPU's nodeset.
 * Nothing uses the cache sizes: virtual machines report private L3 caches of half a gigabyte. */
#include "topology/discover.h"

#include "platform/base/log.h"

#include <stdlib.h>

#if __has_include(<hwloc.h>)
#include <hwloc.h>

static unsigned logical_index_or_none(hwloc_obj_t obj)
{
    return obj ? obj->logical_index : OS_CPU_NONE;
}

static void read_pu(hwloc_topology_t topology, hwloc_obj_t pu, struct os_cpu_row *row)
{
    const int node = pu->nodeset ? hwloc_bitmap_first(pu->nodeset) : -1;
    const int kind = hwloc_cpukinds_get_by_cpuset(topology, pu->cpuset, 0);
    int efficiency = 0;
    if (kind >= 0 && hwloc_cpukinds_get_info(topology, (unsigned)kind, NULL, &efficiency, NULL, NULL, 0)) efficiency = 0;
    row->cpu = pu->os_index;
    row->core = logical_index_or_none(hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_CORE, pu));
    row->package = logical_index_or_none(hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, pu));
    row->l3 = logical_index_or_none(hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_L3CACHE, pu));
    row->node = node >= 0 ? (unsigned)node : OS_CPU_NONE;
    row->efficiency = efficiency > 0 ? (unsigned)efficiency : 0; /* -1: unknown */
}

static size_t read_topology(hwloc_topology_t topology, struct os_cpu_row *rows, size_t cap)
{
    hwloc_const_bitmap_t all = hwloc_topology_get_allowed_cpuset(topology);
    size_t n = 0;
    int i;
    hwloc_bitmap_foreach_begin(i, all) /* ascending by OS number */
    {
        const hwloc_obj_t pu = hwloc_get_pu_obj_by_os_index(topology, (unsigned)i);
        if (pu && n < cap) read_pu(topology, pu, &rows[n++]);
    }
    hwloc_bitmap_foreach_end();
    return n;
}

/* description NULL: this machine. */
static size_t load_rows(const char *description, struct os_cpu_row *rows, size_t cap)
{
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology)) return 0;
    (void)hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    bool is_set = true;
    if (description)
        is_set = os_file_exists(description) ? hwloc_topology_set_xml(topology, description) == 0
                                             : hwloc_topology_set_synthetic(topology, description) == 0;
    const size_t n = is_set && hwloc_topology_load(topology) == 0 ? read_topology(topology, rows, cap) : 0;
    hwloc_topology_destroy(topology);
    return n;
}

enum mc_code discover_described(const char *description, struct machine *out, struct mc_err *err)
{
    const size_t n = load_rows(description, out->cpu, MACHINE_CPUS_MAX);
    out->n = (unsigned)n;
    if (n > 0) return MC_OK;
    return mc_fail(err, MC_EFORMAT, 0, "machine description '%s' is neither a readable hwloc XML file nor a synthetic string",
                   description);
}

#else

static size_t load_rows(const char *description, struct os_cpu_row *rows, size_t cap)
{
    (void)description;
    return os_cpu_rows(rows, cap);
}

enum mc_code discover_described(const char *description, struct machine *out, struct mc_err *err)
{
    (void)out;
    return mc_fail(err, MC_EUNSUPPORTED, 0, "machine description '%s': this build cannot read one, it has no hwloc",
                   description);
}

#endif

/* Moves the rows of the CPUs in `allowed` to the front; both lists are ascending. */
static size_t keep_allowed(struct os_cpu_row *rows, size_t n, const unsigned *allowed, size_t n_allowed)
{
    size_t kept = 0;
    for (size_t i = 0, a = 0; i < n; i++) {
        while (a < n_allowed && allowed[a] < rows[i].cpu) a++;
        if (a < n_allowed && allowed[a] == rows[i].cpu) rows[kept++] = rows[i];
    }
    return kept;
}

void discover_this_machine(struct machine *out)
{
    unsigned allowed[MACHINE_CPUS_MAX];
    const size_t n_allowed = os_cpus_allowed(allowed, MACHINE_CPUS_MAX);
    out->n = (unsigned)keep_allowed(out->cpu, load_rows(NULL, out->cpu, MACHINE_CPUS_MAX), allowed, n_allowed);
    if (out->n > 0) return;
    mc_log(MC_LOG_WARN, "topology: the system tells nothing about its %zu CPUs, each is taken as a core", n_allowed);
    for (size_t i = 0; i < n_allowed; i++)
        out->cpu[i] = (struct os_cpu_row){
            .cpu = allowed[i], .core = allowed[i], .package = OS_CPU_NONE, .node = OS_CPU_NONE, .l3 = OS_CPU_NONE};
    out->n = (unsigned)n_allowed;
}
