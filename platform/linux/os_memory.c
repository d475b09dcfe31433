/* os_memory.c - big memory on Linux, and how much of it there is.
 *
 * Everything comes from anonymous mmap: zeroed, page aligned, given back whole. With OS_MEM_HUGE the start is moved to a
 * 2 MiB boundary and the kernel is asked for transparent huge pages before the first touch (asked later, they come late or
 * never). Each region carries its label in /proc/self/smaps where the kernel can name anonymous memory. */
#include "platform/os.h"

#include "platform/linux/os_linux.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#ifndef PR_SET_VMA
#define PR_SET_VMA           0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

enum { HUGE_BYTES = 2 * 1024 * 1024 };

void os_caps_get(struct os_caps *caps)
{
    char text[128];
    caps->page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    caps->map_granularity_bytes = caps->page_bytes;
    caps->can_advise_hugepages =
        linux_read_text("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text) && !strstr(text, "[never]");
}

enum mc_code os_mem_alloc(size_t size, enum os_mem_flags flags, const char *label, void **out, struct mc_err *err)
{
    *out = NULL;
    if (size == 0) return MC_OK;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const bool huge = (flags & OS_MEM_HUGE) && size >= HUGE_BYTES;
    const size_t extra = huge ? HUGE_BYTES : 0;
    if (size > SIZE_MAX / 2) return mc_fail(err, MC_ENOMEM, ENOMEM, "no memory for the %s (%zu bytes)", label, size);
    const size_t length = mc_round_up(size, page);
    uint8_t *p = mmap(NULL, length + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return mc_fail(err, MC_ENOMEM, errno, "no memory for the %s (%zu bytes): %m", label, size);
    if (huge) { /* cut the unaligned head and what is then too much at the end */
        const size_t head = (HUGE_BYTES - (uintptr_t)p % HUGE_BYTES) % HUGE_BYTES;
        if (head) munmap(p, head);
        if (extra - head) munmap(p + head + length, extra - head);
        p += head;
        (void)madvise(p, length, MADV_HUGEPAGE);
    }
    (void)prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, p, length, label);
    *out = p;
    return MC_OK;
}

void os_mem_free(void *p, size_t size)
{
    if (p) munmap(p, mc_round_up(size, (size_t)sysconf(_SC_PAGESIZE)));
}

enum mc_code os_mem_fence(void *p, size_t size, struct mc_err *err)
{
    if (mprotect(p, size, PROT_NONE)) return mc_fail(err, MC_ENOMEM, errno, "cannot fence off %zu bytes of memory: %m", size);
    return MC_OK;
}

uint64_t os_rss_peak_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) ? 0 : (uint64_t)usage.ru_maxrss * 1024;
}

uint64_t os_memory_available_bytes(void)
{
    char text[8192];
    uint64_t kib = 0;
    if (!linux_read_text("/proc/meminfo", text, sizeof text) || !linux_find_number(text, "MemAvailable:", &kib)) return 0;
    const uint64_t capped = linux_cgroup_memory_available("");
    return kib * 1024 < capped ? kib * 1024 : capped;
}
