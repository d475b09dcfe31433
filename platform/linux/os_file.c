/* os_file.c - plain files on Linux: positioned reads, small files whole, one buffered writer.
 *
 * Opening for positioned reads uses O_NONBLOCK, so a FIFO or a device named by mistake is refused at once instead of
 * hanging in open; for the regular file that is left the flag means nothing. os_file_read_all is different on purpose: a
 * prompt may come from a pipe (`<(command)`, /dev/stdin), so it takes whatever read() gives, up to its limit.
 *
 * The writer keeps 64 KiB so that callers may write line by line. A regular file is written under another name beside its place
 * and renamed at the end, so that whatever ends the process leaves an older file whole. Nothing is synced to the disk: a full
 * disk shows in write() or close(), and none of our outputs has to survive a power cut. */
#include "platform/os.h"

#include "platform/linux/os_linux.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WRITER_BUFFER_BYTES = 64 * 1024, READ_STEP_BYTES = 64 * 1024, LINKS_MAX = 40, PARTS_MAX = 100 };

struct os_file {
    int fd;
    uint64_t size;
    char path[]; /* NUL-terminated copy */
};

struct os_writer {
    int fd;
    size_t n_used;
    char *path;            /* as the caller named it */
    char target[PATH_MAX]; /* the same without symbolic links */
    char part[PATH_MAX];   /* what is written; empty when the target is (devices, pipes, standard output) */
    char buffer[WRITER_BUFFER_BYTES];
};

/* The kind of thing at `path` that is no regular file. */
static const char *kind_name(mode_t mode)
{
    if (S_ISDIR(mode)) return "a directory";
    if (S_ISFIFO(mode)) return "a pipe";
    if (S_ISSOCK(mode)) return "a socket";
    if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
    return "not a regular file";
}

enum mc_code os_file_open(const char *path, struct os_file **out, struct mc_err *err)
{
    const size_t path_size = strlen(path) + 1;
    struct os_file *f = malloc(sizeof *f + path_size);
    if (!f) return mc_fail(err, MC_ENOMEM, 0, "%s: no memory to open the file", path);
    memcpy(f->path, path, path_size);
    do f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    while (f->fd < 0 && errno == EINTR);
    if (f->fd < 0) {
        const int e = errno;
        free(f);
        errno = e;
        return mc_fail(err, MC_EIO, e, "%s: cannot open: %m", path);
    }
    struct stat st;
    enum mc_code code = MC_OK;
    if (fstat(f->fd, &st))
        code = mc_fail(err, MC_EIO, errno, "%s: cannot read its size: %m", path);
    else if (!S_ISREG(st.st_mode))
        code = mc_fail(err, MC_EIO, S_ISDIR(st.st_mode) ? EISDIR : EINVAL, "%s: is %s; a regular file is needed", path,
                       kind_name(st.st_mode));
    if (code) {
        os_file_close(f);
        return code;
    }
    f->size = (uint64_t)st.st_size;
    *out = f;
    return MC_OK;
}

void os_file_close(struct os_file *f)
{
    if (!f) return;
    close(f->fd);
    free(f);
}

uint64_t os_file_size(const struct os_file *f)
{
    return f->size;
}

const char *os_file_path(const struct os_file *f)
{
    return f->path;
}

int linux_file_fd(const struct os_file *f)
{
    return f->fd;
}

enum mc_code os_file_read_at(struct os_file *f, uint64_t off, void *dst, size_t size, struct mc_err *err)
{
    uint64_t end;
    if (!mc_add_u64(off, size, &end) || end > INT64_MAX)
        return mc_fail(err, MC_EARG, 0, "%s: read of %zu bytes at %" PRIu64 " lies beyond any file", f->path, size, off);
    uint8_t *p = dst;
    while (size > 0) {
        const ssize_t n = pread(f->fd, p, size, (off_t)off);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return mc_fail(err, MC_EIO, errno, "%s: cannot read %zu bytes at %" PRIu64 ": %m", f->path, size, off);
        if (n == 0)
            return mc_fail(err, MC_EIO, 0,
                           "%s: ends at byte %" PRIu64 ", %zu bytes more were expected; it had %" PRIu64
                           " bytes when it was opened",
                           f->path, off, size, f->size);
        p += n;
        off += (uint64_t)n;
        size -= (size_t)n;
    }
    return MC_OK;
}

/* Reads fd until its end into a growing buffer. */
static enum mc_code read_to_end(int fd, const char *name, size_t max_bytes, char **data, size_t *size, struct mc_err *err)
{
    char *buf = NULL;
    size_t cap = 0, used = 0;
    enum mc_code code = MC_OK;
    for (;;) {
        if (cap - used < 2) { /* one byte to read, one for the NUL */
            const size_t grown = cap < READ_STEP_BYTES ? READ_STEP_BYTES : 2 * cap;
            char *const p = realloc(buf, grown);
            if (!p) {
                code = mc_fail(err, MC_ENOMEM, 0, "%s: no memory for its %zu bytes", name, grown);
                break;
            }
            buf = p;
            cap = grown;
        }
        const ssize_t n = read(fd, buf + used, cap - used - 1);
        if (n < 0 && errno == EINTR && os_interrupted()) {
            code = mc_fail(err, MC_ECANCELLED, 0, "%s: reading was interrupted", name);
            break;
        }
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            code = mc_fail(err, MC_EIO, errno, "%s: cannot read: %m", name);
            break;
        }
        used += (size_t)n;
        if (used > max_bytes) {
            code = mc_fail(err, MC_EFORMAT, 0, "%s: longer than the %zu bytes allowed here", name, max_bytes);
            break;
        }
        if (n == 0) {
            buf[used] = '\0';
            *data = buf;
            *size = used;
            return MC_OK;
        }
    }
    free(buf);
    return code;
}

enum mc_code os_file_read_all(const char *path, size_t max_bytes, char **data, size_t *size, struct mc_err *err)
{
    if (strcmp(path, "-") == 0) return read_to_end(STDIN_FILENO, "standard input", max_bytes, data, size, err);
    int fd;
    do fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    while (fd < 0 && errno == EINTR && !os_interrupted());
    if (fd < 0) return mc_fail(err, MC_EIO, errno, "%s: cannot open: %m", path);
    const enum mc_code code = read_to_end(fd, path, max_bytes, data, size, err);
    close(fd);
    return code;
}

/* `path` with the links that its last part may be followed, also where they lead to nothing yet. */
static enum mc_code follow_links(const char *path, char out[PATH_MAX], struct mc_err *err)
{
    char link[PATH_MAX];
    size_t n = strlen(path);
    if (n >= PATH_MAX) return mc_fail(err, MC_EIO, ENAMETOOLONG, "%s: cannot create: the name is too long", path);
    memcpy(out, path, n + 1);
    for (int hop = 0; hop < LINKS_MAX; hop++) {
        const ssize_t got = readlink(out, link, sizeof link);
        if (got < 0) return MC_OK; /* no link; or nothing, or nothing to be seen: creating will tell */
        const char *const slash = strrchr(out, '/');
        const size_t keep = link[0] == '/' || !slash ? 0 : (size_t)(slash - out) + 1;
        n = keep + (size_t)got;
        if (n >= PATH_MAX) return mc_fail(err, MC_EIO, ENAMETOOLONG, "%s: cannot create: it links to a name too long", path);
        memcpy(out + keep, link, (size_t)got);
        out[n] = '\0';
    }
    return mc_fail(err, MC_EIO, ELOOP, "%s: cannot create: its links lead in a circle", path);
}

/* Opens a file of a new name beside the target. A name that is taken belongs to another process, or to one that was killed. */
static enum mc_code open_part(struct os_writer *w, struct mc_err *err)
{
    for (int i = 1; i <= PARTS_MAX; i++) {
        const int n = i == 1 ? snprintf(w->part, sizeof w->part, "%s.part", w->target)
                             : snprintf(w->part, sizeof w->part, "%s.%d.part", w->target, i);
        if (n < 0 || (size_t)n >= sizeof w->part)
            return mc_fail(err, MC_EIO, ENAMETOOLONG, "%s: cannot create: the name is too long", w->path);
        do w->fd = open(w->part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0666);
        while (w->fd < 0 && errno == EINTR && !os_interrupted());
        if (w->fd >= 0) return MC_OK;
        if (errno != EEXIST)
            return mc_fail(err, MC_EIO, errno, "%s: cannot create, for it is written as %s first: %m", w->path, w->part);
    }
    return mc_fail(err, MC_EIO, EEXIST, "%s: cannot create: %s is there, and %d more of its kind; remove them", w->path,
                   w->part, PARTS_MAX - 1);
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Decides between writing in place and writing beside, and opens. */
static enum mc_code writer_open(struct os_writer *w, struct mc_err *err)
{
    struct stat st, out;
    const bool exists = stat(w->path, &st) == 0;
    if (exists && S_ISDIR(st.st_mode)) return mc_fail(err, MC_EIO, EISDIR, "%s: cannot create: it is a directory", w->path);
    const bool is_stdout = exists && fstat(STDOUT_FILENO, &out) == 0 && same_file(&st, &out);
    if (is_stdout || (exists && !S_ISREG(st.st_mode))) {
        do w->fd = is_stdout ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3) : open(w->path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
        while (w->fd < 0 && errno == EINTR && !os_interrupted());
        return w->fd < 0 ? mc_fail(err, MC_EIO, errno, "%s: cannot write to it: %m", w->path) : MC_OK;
    }
    if (exists && faccessat(AT_FDCWD, w->path, W_OK, AT_EACCESS))
        return mc_fail(err, MC_EIO, errno, "%s: is there and cannot be replaced: %m", w->path);
    enum mc_code code = follow_links(w->path, w->target, err);
    if (!code) code = open_part(w, err);
    if (!code && exists) { /* the new file is the old one's as far as we may say so */
        if (fchown(w->fd, st.st_uid, st.st_gid)) errno = 0;
        if (fchmod(w->fd, st.st_mode & 0777)) errno = 0;
    }
    return code;
}

enum mc_code os_writer_create(const char *path, struct os_writer **out, struct mc_err *err)
{
    if (!*path) return mc_fail(err, MC_EARG, 0, "the name of the file to write is empty");
    struct os_writer *w = calloc(1, sizeof *w);
    char *const copy = strdup(path);
    if (!w || !copy) {
        free(w);
        free(copy);
        return mc_fail(err, MC_ENOMEM, 0, "%s: no memory to write the file", path);
    }
    w->path = copy;
    const enum mc_code code = writer_open(w, err);
    if (code) {
        free(w);
        free(copy);
        return code;
    }
    *out = w;
    return MC_OK;
}

static enum mc_code write_all(struct os_writer *w, const char *p, size_t size, struct mc_err *err)
{
    while (size > 0) {
        const ssize_t n = write(w->fd, p, size);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return mc_fail(err, MC_EIO, errno, "%s: cannot write: %m", w->path);
        p += n;
        size -= (size_t)n;
    }
    return MC_OK;
}

static enum mc_code writer_flush(struct os_writer *w, struct mc_err *err)
{
    const size_t n = w->n_used;
    w->n_used = 0;
    return write_all(w, w->buffer, n, err);
}

enum mc_code os_writer_write(struct os_writer *w, const void *data, size_t size, struct mc_err *err)
{
    if (size > sizeof w->buffer - w->n_used) {
        const enum mc_code code = writer_flush(w, err);
        if (code) return code;
    }
    if (size > sizeof w->buffer) return write_all(w, data, size, err);
    if (size > 0) memcpy(w->buffer + w->n_used, data, size);
    w->n_used += size;
    return MC_OK;
}

static void writer_free(struct os_writer *w)
{
    free(w->path);
    free(w);
}

enum mc_code os_writer_finish(struct os_writer *w, struct mc_err *err)
{
    enum mc_code code = writer_flush(w, err);
    if (code) {
        os_writer_abort(w);
        return code;
    }
    if (close(w->fd) && errno != EINTR) /* the descriptor is gone in any case */
        code = mc_fail(err, MC_EIO, errno, "%s: cannot finish writing: %m", w->path);
    if (!code && w->part[0] && rename(w->part, w->target))
        code = mc_fail(err, MC_EIO, errno, "%s: cannot put %s into its place: %m", w->path, w->part);
    if (code && w->part[0]) unlink(w->part);
    writer_free(w);
    return code;
}

void os_writer_abort(struct os_writer *w)
{
    if (!w) return;
    if (w->part[0]) unlink(w->part);
    close(w->fd);
    writer_free(w);
}

bool os_file_same(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && S_ISREG(x.st_mode) && same_file(&x, &y);
}

bool os_file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}
