/* os_cgroup.c - the limits of memory and CPU time that control groups put on this process.
 *
 * /proc/self/cgroup has a line `id:controllers:path` for each hierarchy: v1 lines name the controller, the v2 line has id
 * 0 and no controllers. A limit may sit on any level, so every folder from the path up to the root is asked. Inside a container
 * the path is often the host's and does not exist under the mount; then only the root answers, which is the
 * container's own group. Absent files limit nothing. */
#include "platform/linux/os_linux.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PATH_CAP = 4096, CONTROLLER_MOUNTS = 2 };

/* What one folder of a controller allows; UINT64_MAX: anything. */
typedef uint64_t (*level_fn)(const char *folder);

/* One controller: its name in the lines of v1, where v1 mounts it, and how a folder of either version is read. */
struct controller {
    const char *name, *mounts_v1[CONTROLLER_MOUNTS]; /* NULL: one fewer */
    level_fn v1, v2;
};

/* v2 alone, and beside v1. */
static const char *const mounts_v2[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};

bool linux_read_text(const char *path, char *buf, size_t cap)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    size_t used = 0;
    for (;;) {
        const ssize_t n = read(fd, buf + used, cap - 1 - used);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        used += (size_t)n;
    }
    close(fd);
    buf[used] = '\0';
    return used > 0;
}

bool linux_find_number(const char *text, const char *name, uint64_t *value)
{
    const size_t n = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (strncmp(line, name, n) != 0 || line[n] != ' ') continue;
        char *end;
        const char *const digits = line + n + strspn(line + n, " ");
        if (*digits < '0' || *digits > '9') return false;
        *value = strtoull(digits, &end, 10);
        return true;
    }
    return false;
}

/* A file holding one number; "max" and anything else that is no number is false. */
static bool read_number(const char *folder, const char *name, uint64_t *value)
{
    char path[PATH_CAP + 64], text[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!linux_read_text(path, text, sizeof text) || text[0] < '0' || text[0] > '9') return false;
    *value = strtoull(text, NULL, 10);
    return true;
}

/* The file names of one version of the memory controller. */
struct memory_files {
    const char *limit, *usage, *inactive_file, *active_file;
};

static uint64_t memory_level(const char *folder, const struct memory_files *files)
{
    uint64_t limit, usage = 0, inactive = 0, active = 0;
    if (!read_number(folder, files->limit, &limit)) return UINT64_MAX;
    if (limit >= (uint64_t)INT64_MAX / 2) return UINT64_MAX; /* v1 writes "none" as a huge number */
    (void)read_number(folder, files->usage, &usage);
    char path[PATH_CAP + 64], text[8192];
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    if (linux_read_text(path, text, sizeof text)) {
        (void)linux_find_number(text, files->inactive_file, &inactive);
        (void)linux_find_number(text, files->active_file, &active);
    }
    const uint64_t cache = inactive + active < usage ? inactive + active : usage;
    const uint64_t held = usage - cache;
    return held < limit ? limit - held : 0;
}

static uint64_t memory_level_v1(const char *folder)
{
    static const struct memory_files files = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
                                              "total_active_file"};
    return memory_level(folder, &files);
}

static uint64_t memory_level_v2(const char *folder)
{
    static const struct memory_files files = {"memory.max", "memory.current", "inactive_file", "active_file"};
    return memory_level(folder, &files);
}

/* Both in microseconds. A quota is never so small that nothing may run. */
static uint64_t milli_of(uint64_t quota, uint64_t period)
{
    if (period == 0 || quota > UINT64_MAX / 1000) return UINT64_MAX;
    const uint64_t milli = quota * 1000 / period;
    return milli > 0 ? milli : 1;
}

static uint64_t cpu_level_v1(const char *folder)
{
    uint64_t quota, period; /* "-1", no quota, is no number here */
    if (!read_number(folder, "cpu.cfs_quota_us", &quota) || !read_number(folder, "cpu.cfs_period_us", &period))
        return UINT64_MAX;
    return milli_of(quota, period);
}

/* cpu.max: "QUOTA PERIOD" or "max PERIOD". */
static uint64_t cpu_level_v2(const char *folder)
{
    char path[PATH_CAP + 64], text[64], *end;
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    if (!linux_read_text(path, text, sizeof text) || text[0] < '0' || text[0] > '9') return UINT64_MAX;
    const uint64_t quota = strtoull(text, &end, 10);
    return milli_of(quota, strtoull(end, NULL, 10));
}

/* The least of all levels from `group` up to the mount. */
static uint64_t hierarchy_least(const char *root, const char *mount, level_fn level, const char *group, size_t group_size)
{
    char folder[PATH_CAP];
    const int base = snprintf(folder, sizeof folder, "%s%s", root, mount);
    if (base < 0 || (size_t)base + group_size + 1 > sizeof folder) return UINT64_MAX;
    memcpy(folder + base, group, group_size);
    size_t end = (size_t)base + group_size;
    uint64_t least = UINT64_MAX;
    for (;;) {
        while (end > (size_t)base && folder[end - 1] == '/') end--;
        folder[end] = '\0';
        const uint64_t here = level(folder);
        if (here < least) least = here;
        if (end == (size_t)base) return least;
        while (end > (size_t)base && folder[end - 1] != '/') end--;
    }
}

/* Is `want` one of the comma-separated names? */
static bool has_name(const char *names, size_t size, const char *want)
{
    const size_t n = strlen(want);
    const char *const end = names + size;
    while (names < end) {
        const char *comma = memchr(names, ',', (size_t)(end - names));
        if (!comma) comma = end;
        if ((size_t)(comma - names) == n && memcmp(names, want, n) == 0) return true;
        names = comma + 1;
    }
    return false;
}

/* The least that any of this process's groups allows. */
static uint64_t least_limit(const char *root, const struct controller *c)
{
    char path[PATH_CAP], text[8192];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    if (!linux_read_text(path, text, sizeof text)) return UINT64_MAX;
    uint64_t least = UINT64_MAX;
    for (const char *line = text; *line;) {
        const size_t size = strcspn(line, "\n");
        const char *const names = memchr(line, ':', size);
        const char *const group = names ? memchr(names + 1, ':', size - (size_t)(names + 1 - line)) : NULL;
        const size_t names_size = group ? (size_t)(group - names - 1) : 0;
        const bool is_v2 = group && names_size == 0;
        const bool is_v1 = group && has_name(names + 1, names_size, c->name);
        for (unsigned i = 0; i < CONTROLLER_MOUNTS && (is_v1 || is_v2); i++) {
            const char *const mount = is_v2 ? mounts_v2[i] : c->mounts_v1[i];
            if (!mount) break;
            const uint64_t here =
                hierarchy_least(root, mount, is_v2 ? c->v2 : c->v1, group + 1, size - (size_t)(group + 1 - line));
            if (here < least) least = here;
        }
        line += size + (line[size] == '\n');
    }
    return least;
}

uint64_t linux_cgroup_memory_available(const char *root)
{
    static const struct controller memory = {"memory", {"/sys/fs/cgroup/memory"}, memory_level_v1, memory_level_v2};
    return least_limit(root, &memory);
}

uint64_t linux_cgroup_cpu_milli(const char *root)
{
    static const struct controller cpu = {
        "cpu", {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"}, cpu_level_v1, cpu_level_v2};
    return least_limit(root, &cpu);
}
