/* os_affinity.c - which CPUs this process may use, and binding a thread to one of them.
 *
 * sched_getaffinity is the only honest source: it follows taskset and cpusets, where sysconf counts the whole machine. The
 * masks have room for 8192 CPUs, the most a kernel can be built for; a smaller mask makes the call fail with EINVAL. */
#include "platform/linux/os_linux.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>

enum { CPUS_MAX = 8192 };

_Static_assert(sizeof(struct os_affinity) * 8 == CPUS_MAX, "room for every CPU a kernel can have");

static bool mask_has(const struct os_affinity *mask, unsigned cpu)
{
    return mask->bits[cpu / 64] >> (cpu % 64) & 1;
}

size_t os_cpus_allowed(unsigned *cpus, size_t cap)
{
    struct os_affinity mask;
    size_t n = 0;
    os_thread_affinity_get(&mask);
    for (unsigned cpu = 0; cpu < CPUS_MAX && n < cap; cpu++)
        if (mask_has(&mask, cpu)) cpus[n++] = cpu;
    return n;
}

enum mc_code os_thread_bind(unsigned cpu, struct mc_err *err)
{
    struct os_affinity mask = {{0}};
    if (cpu >= CPUS_MAX) return mc_fail(err, MC_EARG, EINVAL, "CPU %u does not exist", cpu);
    mask.bits[cpu / 64] = (uint64_t)1 << (cpu % 64);
    if (sched_setaffinity(0, sizeof mask, (const cpu_set_t *)&mask))
        return mc_fail(err, MC_EIO, errno, "cannot bind a thread to CPU %u: %m", cpu);
    return MC_OK;
}

void os_thread_affinity_get(struct os_affinity *out)
{
    memset(out, 0, sizeof *out);
    if (sched_getaffinity(0, sizeof *out, (cpu_set_t *)out)) out->bits[0] = 1; /* cannot fail with this size; CPU 0 exists */
}

void os_thread_affinity_set(const struct os_affinity *saved)
{
    (void)sched_setaffinity(0, sizeof *saved, (const cpu_set_t *)saved);
}

unsigned os_cpu_quota_milli(void)
{
    const uint64_t milli = linux_cgroup_cpu_milli("");
    return milli > UINT_MAX ? 0 : (unsigned)milli;
}
