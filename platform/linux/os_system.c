/* os_system.c - how a Linux is set up, from /sys and /proc. */
#include "platform/os.h"

#include "platform/linux/os_linux.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

static uint64_t number_in(const char *path)
{
    char text[64];
    return linux_read_text(path, text, sizeof text) ? strtoull(text, NULL, 10) : 0;
}

/* The first word of a file, without the rest. */
static bool word_in(const char *path, char *word, size_t cap)
{
    if (!linux_read_text(path, word, cap)) return false;
    word[strcspn(word, " \t\n")] = '\0';
    return word[0] != '\0';
}

static void look_at_cpu(long cpu, struct os_system *out)
{
    char path[128], governor[32], available[256];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%ld/cpufreq/scaling_governor", cpu);
    if (!word_in(path, governor, sizeof governor)) return;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%ld/cpufreq/scaling_available_governors", cpu);
    const bool is_fast = !strcmp(governor, "performance");
    if (!is_fast && linux_read_text(path, available, sizeof available) && strstr(available, "performance")) out->n_slow_cpus++;
    if (!is_fast || !out->governor[0]) memcpy(out->governor, governor, sizeof governor);
}

static void huge_pages(struct os_system *out)
{
    static const unsigned kib[2] = {2048, 1048576};
    char path[128], text[128];
    for (unsigned i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "/sys/kernel/mm/hugepages/hugepages-%ukB/nr_hugepages", kib[i]);
        out->pool_bytes[i] = number_in(path) * kib[i] * 1024;
        snprintf(path, sizeof path, "/sys/kernel/mm/hugepages/hugepages-%ukB/free_hugepages", kib[i]);
        out->pool_free_bytes[i] = number_in(path) * kib[i] * 1024;
    }
    if (!linux_read_text("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text)) return;
    const char *const begin = strchr(text, '['), *const end = begin ? strchr(begin, ']') : NULL;
    if (end) snprintf(out->transparent, sizeof out->transparent, "%.*s", (int)(end - begin - 1), begin + 1);
}

static uint64_t limit_of(int resource)
{
    struct rlimit r;
    return getrlimit((__rlimit_resource_t)resource, &r) || r.rlim_cur == RLIM_INFINITY ? OS_NOT_LIMITED : (uint64_t)r.rlim_cur;
}

void os_system_get(struct os_system *out)
{
    char text[8192];
    uint64_t kib;
    memset(out, 0, sizeof *out);
    for (long cpu = 0; cpu < sysconf(_SC_NPROCESSORS_CONF); cpu++) look_at_cpu(cpu, out);
    huge_pages(out);
    if (linux_read_text("/proc/meminfo", text, sizeof text)) {
        if (linux_find_number(text, "MemTotal:", &kib)) out->memory_bytes = kib * 1024;
        if (linux_find_number(text, "MemAvailable:", &kib)) out->machine_free_bytes = kib * 1024;
    }
    out->locked_limit_bytes = limit_of(RLIMIT_MEMLOCK);
    out->open_files_limit = limit_of(RLIMIT_NOFILE);
}
