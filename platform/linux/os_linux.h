/* os_linux.h - what the files of this folder share with each other and nobody else. */
#ifndef PLATFORM_LINUX_OS_LINUX_H
#define PLATFORM_LINUX_OS_LINUX_H

#include "platform/os.h"

/* Descriptor of an open file; stays the file's. */
int linux_file_fd(const struct os_file *f);
int linux_source_fd(const struct os_source *s);

/* Bytes the process may still take according to the memory controllers of its control groups, v1 and v2, every level up
 * to the root; UINT64_MAX when nothing limits it. File cache counts as free, for the kernel gives it up. `root` is put
 * before /proc and /sys: "" on a real machine, a folder of files in tests. */
uint64_t linux_cgroup_memory_available(const char *root);

/* The least CPU quota of its control groups in thousandths of a CPU, at least 1; UINT64_MAX when nothing limits it. */
uint64_t linux_cgroup_cpu_milli(const char *root);

/* Value of the line `name value` (or `name: value kB`) in a text of such lines; false when there is none. */
bool linux_find_number(const char *text, const char *name, uint64_t *value);

/* mkdir of every part of path behind its first `there` bytes, for this user alone; those that are there stay as they are. */
void linux_make_folders(char *path, size_t there);

/* The beginning of a small file as a string; false when it cannot be read. */
bool linux_read_text(const char *path, char *buf, size_t cap);

#endif
