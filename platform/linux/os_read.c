/* os_read.c - positioned reads on Linux that can pass the page cache by (O_DIRECT).
 *
 * The file is opened a second time through /proc/self/fd, so that it is the same file whatever has happened to its name. File
 * systems without direct reads refuse at open (EINVAL) or, some of them, at the first read; so one block is read here. */
#include "platform/os.h"

#include "platform/linux/os_linux.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct os_source {
    int fd;
    bool direct;
    uint64_t size; /* when the file was opened */
    char path[];
};

int linux_source_fd(const struct os_source *s)
{
    return s->fd;
}

/* Does a direct read of the first block work? An errno, 0 when it does. */
static int try_direct(int fd)
{
    void *block;
    if (posix_memalign(&block, OS_READ_ALIGN, OS_READ_ALIGN)) return ENOMEM;
    ssize_t n;
    do n = pread(fd, block, OS_READ_ALIGN, 0);
    while (n < 0 && errno == EINTR);
    const int e = n < 0 ? errno : 0;
    free(block);
    return e;
}

static int open_again(const struct os_file *f, int flags)
{
    char name[64];
    int fd;
    snprintf(name, sizeof name, "/proc/self/fd/%d", linux_file_fd(f));
    do fd = open(name, O_RDONLY | O_CLOEXEC | flags);
    while (fd < 0 && errno == EINTR);
    return fd;
}

enum mc_code os_source_open(const struct os_file *f, bool direct, struct os_source **out, struct mc_err *err)
{
    const char *const path = os_file_path(f);
    const size_t path_size = strlen(path) + 1;
    struct os_source *s = malloc(sizeof *s + path_size);
    if (!s) return mc_fail(err, MC_ENOMEM, 0, "%s: no memory to open the file", path);
    memcpy(s->path, path, path_size);
    s->direct = direct;
    s->size = os_file_size(f);
    s->fd = open_again(f, direct ? O_DIRECT : 0);
    int e = s->fd < 0 ? errno : 0;
    if (direct && !e) e = try_direct(s->fd);
    if (!e) {
        *out = s;
        return MC_OK;
    }
    os_source_close(s);
    if (direct && (e == EINVAL || e == EOPNOTSUPP))
        return mc_fail(err, MC_EUNSUPPORTED, e, "%s: its file system has no direct reads", path);
    return mc_fail(err, MC_EIO, e, "%s: cannot open%s: %s", path, direct ? " for direct reads" : "", strerror(e));
}

void os_source_close(struct os_source *s)
{
    if (!s) return;
    if (s->fd >= 0) close(s->fd);
    free(s);
}

bool os_source_is_direct(const struct os_source *s)
{
    return s->direct;
}

const char *os_source_path(const struct os_source *s)
{
    return s->path;
}

int64_t os_source_read(struct os_source *s, uint64_t off, void *dst, size_t size)
{
    const ssize_t n = pread(s->fd, dst, size, (off_t)off);
    return n < 0 ? -errno : n;
}

bool os_read_again(int64_t result)
{
    return result == -EINTR || result == -EAGAIN;
}

enum mc_code os_source_fail(const struct os_source *s, uint64_t off, int64_t result, struct mc_err *err)
{
    if (result < 0)
        return mc_fail(err, MC_EIO, (int)-result, "%s: cannot read at byte %" PRIu64 ": %s", s->path, off,
                       strerror((int)-result));
    return mc_fail(err, MC_EIO, 0, "%s: ends at byte %" PRIu64 "; it had %" PRIu64 " bytes when it was opened", s->path, off,
                   s->size);
}

void os_source_forget(struct os_source *s, uint64_t off, size_t size)
{
    (void)posix_fadvise(s->fd, (off_t)off, (off_t)size, POSIX_FADV_DONTNEED);
}
