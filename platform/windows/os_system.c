/* os_system.c - how a Windows is set up. There is no governor and no pool of pages: power plans scale by themselves, and large
 * pages are taken from free memory. */
#include "platform/os.h"

#include <windows.h>

void os_system_get(struct os_system *out)
{
    MEMORYSTATUSEX memory = {.dwLength = sizeof memory};
    memset(out, 0, sizeof *out);
    if (GlobalMemoryStatusEx(&memory)) {
        out->memory_bytes = memory.ullTotalPhys;
        out->machine_free_bytes = memory.ullAvailPhys;
    }
    out->locked_limit_bytes = out->open_files_limit = OS_NOT_LIMITED;
}
