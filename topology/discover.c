/* discover.c - the machine, from hwloc where the build has it and from the seam's rows elsewhere (Windows).
 *
 * hwloc leaves out what is offline and what the cpuset forbids, but knows how many there are. It is loaded without its flag
 * RESTRICT_TO_CPUBINDING; instead the CPUs outside os_cpus_allowed are dropped here, which means the same on both systems:
 * taskset, cpusets and process masks are all obeyed. I/O devices are filtered out, they only cost time. NUMA nodes are memory
 * children in hwloc, not ancestors, so the node is read from the CPU's nodeset, and nodes without CPUs never show up. */
#include "topology/discover.h"

#include "platform/base/log.h"

#include <stdlib.h>
#include <string.h>

#if __has_include(<hwloc.h>)
#include <hwloc.h>

enum { SYNTHETIC_CPUS_MAX = 1 << 16 }; /* hwloc takes a second for this many, and minutes for more */

/* CPUs of a synthetic string: the product of its counts, "2" or "Core:2"; what stands in brackets counts nothing. Stops above
 * the limit. */
static uint64_t synthetic_cpus(const char *text)
{
    uint64_t cpus = 1;
    while (*text && cpus <= SYNTHETIC_CPUS_MAX) {
        if (*text == '(' || *text == '[') {
            const char *const end = strchr(text, *text == '(' ? ')' : ']');
            if (!end) break;
            text = end + 1;
        } else if (*text >= '0' && *text <= '9') {
            char *end;
            const unsigned long long n = strtoull(text, &end, 10);
            if (n > SYNTHETIC_CPUS_MAX) return n;
            cpus *= n;
            text = end;
        } else if ((*text | 32) == 'l' && text[1] >= '0' && text[1] <= '9') {
            text += 2; /* "L3:2": the name of a cache */
        } else {
            text++;
        }
    }
    return cpus;
}

static unsigned logical_index_or_none(hwloc_obj_t obj)
{
    return obj ? obj->logical_index : OS_CPU_NONE;
}

static uint64_t cache_bytes(hwloc_topology_t topology, hwloc_obj_type_t level, hwloc_obj_t pu)
{
    const hwloc_obj_t cache = hwloc_get_ancestor_obj_by_type(topology, level, pu);
    return cache ? cache->attr->cache.size : 0;
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
    row->l1d_bytes = cache_bytes(topology, HWLOC_OBJ_L1CACHE, pu);
    row->l2_bytes = cache_bytes(topology, HWLOC_OBJ_L2CACHE, pu);
    row->l3_bytes = cache_bytes(topology, HWLOC_OBJ_L3CACHE, pu);
}

static void read_topology(hwloc_topology_t topology, struct machine *m)
{
    hwloc_const_bitmap_t all = hwloc_topology_get_allowed_cpuset(topology);
    const int n_present = hwloc_bitmap_weight(hwloc_topology_get_complete_cpuset(topology));
    int i;
    if (hwloc_bitmap_weight(all) < 0) return; /* infinite: a broken description */
    hwloc_bitmap_foreach_begin(i, all)        /* ascending by OS number */
    {
        const hwloc_obj_t pu = hwloc_get_pu_obj_by_os_index(topology, (unsigned)i);
        if (pu && m->n < MACHINE_CPUS_MAX) read_pu(topology, pu, &m->cpu[m->n++]);
    }
    hwloc_bitmap_foreach_end();
    m->n_present = n_present > (int)m->n ? (unsigned)n_present : m->n;
}

/* description NULL: this machine. m->n is 0 where that fails. */
static void load(const char *description, struct machine *m)
{
    hwloc_topology_t topology;
    memset(m, 0, sizeof *m);
    if (hwloc_topology_init(&topology)) return;
    (void)hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    bool is_set = true;
    if (description)
        is_set = os_file_exists(description) ? hwloc_topology_set_xml(topology, description) == 0
                                             : hwloc_topology_set_synthetic(topology, description) == 0;
    if (is_set && hwloc_topology_load(topology) == 0) read_topology(topology, m);
    if (m->n && !description && !hwloc_topology_is_thissystem(topology))
        mc_log(MC_LOG_WARN,
               "topology: variables in the environment (HWLOC_XMLFILE, HWLOC_SYNTHETIC, HWLOC_FSROOT) make hwloc "
               "describe another machine than this one; workers are placed by that. Unset them, or use --topology to look");
    hwloc_topology_destroy(topology);
    m->n_cpuset = m->n;
    machine_distrust_l3(m);
}

enum mc_code discover_described(const char *description, struct machine *out, struct mc_err *err)
{
    struct os_file *f = NULL;
    struct mc_err why = {.code = MC_OK};
    if (os_file_exists(description) && os_file_open(description, &f, &why)) /* a device would be read without end */
        return mc_fail(err, MC_EARG, 0, "machine description: %s", why.msg);
    os_file_close(f);
    if (!f && synthetic_cpus(description) > SYNTHETIC_CPUS_MAX)
        return mc_fail(err, MC_EARG, 0, "machine description '%s' has far more CPUs than are possible (%d)", description,
                       MACHINE_CPUS_MAX);
    load(description, out);
    if (out->n == 0)
        return mc_fail(err, MC_EARG, 0, "machine description '%s' is neither a readable hwloc XML file nor a synthetic string",
                       description);
    if (out->n == MACHINE_CPUS_MAX && out->n_present > out->n)
        return mc_fail(err, MC_EARG, 0, "machine description '%s' has %u CPUs; at most %d are possible", description,
                       out->n_present, MACHINE_CPUS_MAX);
    machine_index(out);
    return MC_OK;
}

#else

static void load(const char *description, struct machine *m)
{
    (void)description;
    memset(m, 0, sizeof *m);
    m->n = m->n_present = m->n_cpuset = (unsigned)os_cpu_rows(m->cpu, MACHINE_CPUS_MAX);
    machine_distrust_l3(m);
}

enum mc_code discover_described(const char *description, struct machine *out, struct mc_err *err)
{
    (void)out;
    return mc_fail(err, MC_EUNSUPPORTED, 0, "machine description '%s': this build cannot read one, it has no hwloc",
                   description);
}

#endif

/* Moves the rows of the CPUs in `allowed` to the front; both lists are ascending. */
static void keep_allowed(struct machine *m, const unsigned *allowed, size_t n_allowed)
{
    unsigned kept = 0;
    for (size_t i = 0, a = 0; i < m->n; i++) {
        while (a < n_allowed && allowed[a] < m->cpu[i].cpu) a++;
        if (a < n_allowed && allowed[a] == m->cpu[i].cpu) m->cpu[kept++] = m->cpu[i];
    }
    m->n = kept;
}

void discover_this_machine(struct machine *out)
{
    unsigned allowed[MACHINE_CPUS_MAX];
    const size_t n_allowed = os_cpus_allowed(allowed, MACHINE_CPUS_MAX);
    load(NULL, out);
    keep_allowed(out, allowed, n_allowed);
    if (out->n == 0) {
        mc_log(MC_LOG_WARN, "topology: the system tells nothing about its %zu CPUs, each is taken as a core", n_allowed);
        for (size_t i = 0; i < n_allowed; i++)
            out->cpu[i] = (struct os_cpu_row){
                .cpu = allowed[i], .core = allowed[i], .package = OS_CPU_NONE, .node = OS_CPU_NONE, .l3 = OS_CPU_NONE};
        out->n = out->n_present = out->n_cpuset = (unsigned)n_allowed;
    }
    out->quota_milli = os_cpu_quota_milli();
    machine_index(out);
}
