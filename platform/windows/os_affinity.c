/* os_affinity.c - which CPUs this process may use on Windows, and binding a thread to one of them.
 *
 * CPUs come in processor groups of at most 64; our number is 64 * group + index. A process whose mask is the whole of its
 * group has not been restricted by anybody, so all groups are its own (its threads may be bound to any). One with a
 * smaller mask keeps to it. The process's mask counts, not the thread's: Windows has no cpusets to be inherited. */
#include "platform/os.h"

#include "platform/windows/utf16.h"

#include <windows.h>

enum { GROUP_CPUS = 64 };

static size_t add_mask(unsigned group, uint64_t mask, unsigned *cpus, size_t n, size_t cap)
{
    for (unsigned i = 0; i < GROUP_CPUS && n < cap; i++)
        if (mask >> i & 1) cpus[n++] = group * GROUP_CPUS + i;
    return n;
}

size_t os_cpus_allowed(unsigned *cpus, size_t cap)
{
    DWORD_PTR own = 0, whole = 0;
    USHORT groups[64], n_groups = ARRAY_LEN(groups);
    const HANDLE process = GetCurrentProcess();
    if (!GetProcessAffinityMask(process, &own, &whole)) own = whole = 0;
    if (!GetProcessGroupAffinity(process, &n_groups, groups) || n_groups == 0) {
        n_groups = 1;
        groups[0] = 0;
    }
    const WORD n_all = GetActiveProcessorGroupCount();
    if (n_all <= 1 || (n_groups == 1 && own != whole)) {
        const size_t n = add_mask(n_all <= 1 ? 0 : groups[0], own ? own : 1, cpus, 0, cap);
        return n;
    }
    size_t n = 0;
    for (WORD g = 0; g < n_all; g++) {
        const DWORD count = GetActiveProcessorCount(g);
        n = add_mask(g, count >= GROUP_CPUS ? UINT64_MAX : ((uint64_t)1 << count) - 1, cpus, n, cap);
    }
    return n;
}

enum mc_code os_thread_bind(unsigned cpu, struct mc_err *err)
{
    GROUP_AFFINITY want = {.Mask = (KAFFINITY)1 << (cpu % GROUP_CPUS), .Group = (WORD)(cpu / GROUP_CPUS)};
    if (cpu / GROUP_CPUS >= GetActiveProcessorGroupCount()) return mc_fail(err, MC_EARG, 0, "CPU %u does not exist", cpu);
    if (SetThreadGroupAffinity(GetCurrentThread(), &want, NULL)) return MC_OK;
    const DWORD e = GetLastError();
    char text[ERROR_TEXT_CAP];
    return mc_fail(err, MC_EIO, (int)e, "cannot bind a thread to CPU %u: %s", cpu, windows_error_text(e, text));
}

void os_thread_affinity_get(struct os_affinity *out)
{
    GROUP_AFFINITY now = {.Mask = 0};
    memset(out, 0, sizeof *out);
    if (!GetThreadGroupAffinity(GetCurrentThread(), &now)) return;
    out->bits[0] = now.Mask;
    out->bits[1] = now.Group;
}

void os_thread_affinity_set(const struct os_affinity *saved)
{
    const GROUP_AFFINITY was = {.Mask = (KAFFINITY)saved->bits[0], .Group = (WORD)saved->bits[1]};
    if (was.Mask) (void)SetThreadGroupAffinity(GetCurrentThread(), &was, NULL);
}

unsigned os_cpu_quota_milli(void)
{
    return 0;
}
