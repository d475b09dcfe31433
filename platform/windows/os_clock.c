/* os_clock.c - the performance counter in nanoseconds: whole seconds and the rest apart, so that nothing overflows. */
#include "platform/os.h"

#include <windows.h>

uint64_t os_clock_ns(void)
{
    LARGE_INTEGER count, per_second;
    QueryPerformanceCounter(&count);
    QueryPerformanceFrequency(&per_second);
    const uint64_t c = (uint64_t)count.QuadPart, f = (uint64_t)per_second.QuadPart;
    return c / f * 1000000000u + c % f * 1000000000u / f;
}

/* The system counts in 100 ns from the year 1601. */
uint64_t os_date_ms(void)
{
    FILETIME t;
    GetSystemTimeAsFileTime(&t);
    return ((uint64_t)t.dwHighDateTime << 32 | t.dwLowDateTime) / 10000 - UINT64_C(11644473600000);
}

void os_sleep_ms(unsigned ms)
{
    Sleep(ms);
}
