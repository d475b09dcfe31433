/* os_cgroup.c - the memory limits that control groups put on this process.
 *
 * /proc/self/cgroup has a line `id:controllers:path` for each hierarchy: v1 lines name "memory", the v2 line has id 0 and
 * no controllers. A limit may sit on any level, so every folder from the path up to the root is asked. Inside a container
 * the path is often the host's and does not exist under the mount; then only the root answers, which is the
 * container's own group. Absent files limit nothing. */
#include "platform/linux/os_linux.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PATH_CAP = 4096 };

/* The file names of one version of the memory controller. */
struct memory_files {
    const char *mount, *limit, *usage, *inactive_file, *active_file;
};

static const struct memory_files v1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                       "total_inactive_file", "total_active_file"};
static const struct memory_files v2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file", "active_file"};
static const struct memory_files v2_beside_v1 = {"/sys/fs/cgroup/unified", "memory.max", "memory.current", "inactive_file",
                                                 "active_file"};

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

static uint64_t level_available(const char *folder, const struct memory_files *files)
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

/* The least of all levels from `group` up to the mount. */
static uint64_t hierarchy_available(const char *root, const struct memory_files *files, const char *group, size_t group_size)
{
    char folder[PATH_CAP];
    const int base = snprintf(folder, sizeof folder, "%s%s", root, files->mount);
    if (base < 0 || (size_t)base + group_size + 1 > sizeof folder) return UINT64_MAX;
    memcpy(folder + base, group, group_size);
    size_t end = (size_t)base + group_size;
    uint64_t least = UINT64_MAX;
    for (;;) {
        while (end > (size_t)base && folder[end - 1] == '/') end--;
        folder[end] = '\0';
        const uint64_t here = level_available(folder, files);
        if (here < least) least = here;
        if (end == (size_t)base) return least;
        while (end > (size_t)base && folder[end - 1] != '/') end--;
    }
}

/* Is "memory" one of the comma-separated names? */
static bool names_memory(const char *names, size_t size)
{
    static const char want[] = "memory";
    const char *const end = names + size;
    while (names < end) {
        const char *comma = memchr(names, ',', (size_t)(end - names));
        if (!comma) comma = end;
        if ((size_t)(comma - names) == sizeof want - 1 && memcmp(names, want, sizeof want - 1) == 0) return true;
        names = comma + 1;
    }
    return false;
}

uint64_t linux_cgroup_memory_available(const char *root)
{
    char path[PATH_CAP], text[8192];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    if (!linux_read_text(path, text, sizeof text)) return UINT64_MAX;
    uint64_t least = UINT64_MAX;
    for (const char *line = text; *line;) {
        const size_t size = strcspn(line, "\n");
        const char *const names = memchr(line, ':', size);
        const char *const group = names ? memchr(names + 1, ':', size - (size_t)(names + 1 - line)) : NULL;
        if (group) {
            const size_t names_size = (size_t)(group - names - 1), group_size = size - (size_t)(group + 1 - line);
            uint64_t here = UINT64_MAX;
            if (names_size == 0) {
                const uint64_t pure = hierarchy_available(root, &v2, group + 1, group_size);
                const uint64_t mixed = hierarchy_available(root, &v2_beside_v1, group + 1, group_size);
                here = pure < mixed ? pure : mixed;
            } else if (names_memory(names + 1, names_size)) {
                here = hierarchy_available(root, &v1, group + 1, group_size);
            }
            if (here < least) least = here;
        }
        line += size + (line[size] == '\n');
    }
    return least;
}
