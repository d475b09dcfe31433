/* os_memory.c - big memory on Windows, and how much of it there is.
 *
 * VirtualAlloc gives zeroed pages on first touch. With OS_MEM_HUGE the start is moved to a 2 MiB boundary inside a larger
 * reservation, of which only the wanted part is committed; freeing asks the system where the reservation began. Large pages
 * proper need a right that ordinary accounts lack and are not asked for. */
#include "platform/os.h"

#include "platform/windows/utf16.h"

#include <windows.h>

#include <psapi.h>

enum { HUGE_BYTES = 2 * 1024 * 1024 };

void os_caps_get(struct os_caps *caps)
{
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    caps->page_bytes = info.dwPageSize;
    caps->map_granularity_bytes = info.dwAllocationGranularity;
    caps->can_advise_hugepages = false;
}

enum mc_code os_mem_alloc(size_t size, enum os_mem_flags flags, const char *label, void **out, struct mc_err *err)
{
    *out = NULL;
    if (size == 0) return MC_OK;
    const size_t extra = (flags & OS_MEM_HUGE) && size >= HUGE_BYTES ? HUGE_BYTES : 0;
    uint8_t *const region = size <= SIZE_MAX / 2 ? VirtualAlloc(NULL, size + extra, MEM_RESERVE, PAGE_READWRITE) : NULL;
    uint8_t *p = region;
    if (region && extra) p += (HUGE_BYTES - (uintptr_t)region % HUGE_BYTES) % HUGE_BYTES;
    if (!region || !VirtualAlloc(p, size, MEM_COMMIT, PAGE_READWRITE)) {
        const DWORD e = GetLastError();
        char text[ERROR_TEXT_CAP];
        if (region) VirtualFree(region, 0, MEM_RELEASE);
        return mc_fail(err, MC_ENOMEM, (int)e, "no memory for the %s (%zu bytes): %s", label, size,
                       windows_error_text(e, text));
    }
    *out = p;
    return MC_OK;
}

void os_mem_free(void *p, size_t size)
{
    (void)size;
    MEMORY_BASIC_INFORMATION info;
    if (p && VirtualQuery(p, &info, sizeof info)) VirtualFree(info.AllocationBase, 0, MEM_RELEASE);
}

enum mc_code os_mem_fence(void *p, size_t size, struct mc_err *err)
{
    DWORD before;
    if (VirtualProtect(p, size, PAGE_NOACCESS, &before)) return MC_OK;
    const DWORD e = GetLastError();
    char text[ERROR_TEXT_CAP];
    return mc_fail(err, MC_ENOMEM, (int)e, "cannot fence off %zu bytes of memory: %s", size, windows_error_text(e, text));
}

uint64_t os_rss_peak_bytes(void)
{
    PROCESS_MEMORY_COUNTERS counters = {.cb = sizeof counters};
    return GetProcessMemoryInfo(GetCurrentProcess(), &counters, sizeof counters) ? counters.PeakWorkingSetSize : 0;
}

uint64_t os_memory_available_bytes(void)
{
    MEMORYSTATUSEX status = {.dwLength = sizeof status};
    return GlobalMemoryStatusEx(&status) ? status.ullAvailPhys : 0;
}
