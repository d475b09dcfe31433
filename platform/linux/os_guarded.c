/* os_guarded.c - a small file in a folder that everybody may write, on Linux: see os.h.
 *
 * Everything is decided on the descriptor: between a stat of the name and an open of it the file can be exchanged. */
#include "platform/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BYTES_MAX = 4096 };

static void identify(const struct stat *st, struct os_file_id *id)
{
    if (id)
        *id = (struct os_file_id){(uint64_t)st->st_dev, (uint64_t)st->st_ino,
                                  (uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec};
}

static enum os_guard judge(int fd, size_t size, struct stat *st)
{
    if (fstat(fd, st)) return OS_GUARD_FAILED;
    if (!S_ISREG(st->st_mode)) return OS_GUARD_KIND;
    if (st->st_uid != geteuid() && st->st_uid != 0) return OS_GUARD_OWNER;
    if (st->st_mode & (S_IWGRP | S_IWOTH)) return OS_GUARD_MODE;
    if (st->st_nlink != 1) return OS_GUARD_NAMES;
    if (st->st_size > BYTES_MAX) return OS_GUARD_LONG;
    return st->st_size < (off_t)size ? OS_GUARD_SHORT : OS_GUARD_OK;
}

static enum os_guard open_guarded(const char *path, int flags, int *fd)
{
    do *fd = open(path, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY, 0600);
    while (*fd < 0 && errno == EINTR);
    if (*fd >= 0) return OS_GUARD_OK;
    switch (errno) {
    case ENOENT:
        return OS_GUARD_MISSING;
    case EEXIST:
        return OS_GUARD_TAKEN;
    case ELOOP:
        return OS_GUARD_LINK;
    case EISDIR: /* a folder, */
    case ENXIO:  /* a pipe without a reader or a socket, opened to write or at all */
        return OS_GUARD_KIND;
    case EACCES:
    case EPERM:
        return OS_GUARD_OWNER;
    default:
        return OS_GUARD_FAILED;
    }
}

enum os_guard os_guarded_read(const char *path, void *dst, size_t size, struct os_file_id *id)
{
    int fd;
    struct stat st;
    enum os_guard g = open_guarded(path, O_RDONLY, &fd);
    if (g) return g;
    g = judge(fd, size, &st);
    if (g == OS_GUARD_OK || g == OS_GUARD_SHORT) identify(&st, id);
    if (g == OS_GUARD_OK) {
        const ssize_t n = pread(fd, dst, size, 0);
        if (n != (ssize_t)size) g = n < 0 ? OS_GUARD_FAILED : OS_GUARD_SHORT; /* cut since */
    }
    close(fd);
    return g;
}

static enum os_guard write_first(int fd, const void *data, size_t size)
{
    return pwrite(fd, data, size, 0) == (ssize_t)size ? OS_GUARD_OK : OS_GUARD_FAILED;
}

enum os_guard os_guarded_create(const char *path, const void *data, size_t size, struct os_file_id *id)
{
    int fd;
    struct stat st;
    enum os_guard g = open_guarded(path, O_WRONLY | O_CREAT | O_EXCL, &fd);
    if (g) return g;
    g = write_first(fd, data, size);
    if (!g && fstat(fd, &st)) g = OS_GUARD_FAILED;
    if (!g) identify(&st, id);
    close(fd);
    return g;
}

enum os_guard os_guarded_overwrite(const char *path, const void *data, size_t size)
{
    int fd;
    struct stat st;
    enum os_guard g = open_guarded(path, O_WRONLY, &fd);
    if (g) return g;
    g = judge(fd, 0, &st);
    if (!g) g = write_first(fd, data, size);
    close(fd);
    return g;
}

void os_guarded_remove(const char *path, const struct os_file_id *id)
{
    struct stat st;
    if (!lstat(path, &st) && (uint64_t)st.st_dev == id->device && (uint64_t)st.st_ino == id->file) (void)unlink(path);
}

bool os_temp_path(const char *name, char *buf, size_t cap)
{
    const int n = snprintf(buf, cap, "/tmp/%s", name);
    return n > 0 && (size_t)n < cap;
}
