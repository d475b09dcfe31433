/* os_socket.c - talking to other programs of the same user on Linux: see os.h.
 *
 * Who listens at PATH holds a lock on PATH.lock, so that a socket whose program was killed can be told from a living one; a
 * connection that is answered tells as well, for programs that know nothing of the lock. The lock goes with its process,
 * however that ends; the files do not. */
#include "platform/os.h"

#include "platform/linux/os_linux.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 32, PATH_CAP = 4096, CONNECT_TRIES = 40, CONNECT_PAUSE_MS = 50 };

struct os_listener {
    int fd, wake, lock;
    dev_t device; /* of the socket file, to remove no other */
    ino_t file;
    char path[sizeof((struct sockaddr_un *)0)->sun_path], lock_path[sizeof((struct sockaddr_un *)0)->sun_path + 8];
};

struct os_conn {
    int fd;
};

static enum mc_code address_of(const char *path, struct sockaddr_un *a, struct mc_err *err)
{
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof a->sun_path)
        return mc_fail(err, MC_EARG, 0, "%s: the path of a socket holds at most %zu bytes, this one has %zu", path,
                       sizeof a->sun_path - 1, strlen(path));
    memcpy(a->sun_path, path, strlen(path) + 1);
    return MC_OK;
}

/* ---- the folder ------------------------------------------------------------------------------------------------------- */

/* A folder of ours that nobody else may enter. */
static bool is_private_folder(const char *path)
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const bool ok = fd >= 0 && !fstat(fd, &st) && st.st_uid == geteuid() && !(st.st_mode & (S_IRWXG | S_IRWXO));
    if (fd >= 0) close(fd);
    return ok;
}

static bool is_own_folder(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode) && st.st_uid == geteuid();
}

/* Path of the folder; false when it does not fit or there is no place for it. *there: bytes of it that should be there. */
static bool folder_path(char *buf, size_t cap, size_t *there)
{
    const char *const runtime = getenv("XDG_RUNTIME_DIR"), *const home = getenv("HOME");
    char user[64];
    int n;
    snprintf(user, sizeof user, "/run/user/%u", (unsigned)geteuid());
    const char *base = runtime && runtime[0] == '/' ? runtime : is_own_folder(user) ? user : NULL;
    if (base) {
        *there = strlen(base);
        n = snprintf(buf, cap, "%s/modchip", base);
    } else {
        if (!home || home[0] != '/') return false;
        *there = strlen(home);
        n = snprintf(buf, cap, "%s/.local/state/modchip", home);
    }
    return n > 0 && (size_t)n < cap;
}

/* Locks the file of that name, made if missing; -1 and errno. A lock on a file that was removed meanwhile counts for nothing.
 */
static int lock_file(const char *path)
{
    for (int tries = 0; tries < 100; tries++) {
        struct stat by_name, by_fd;
        const int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0) return -1;
        if (flock(fd, LOCK_EX | LOCK_NB)) {
            const int e = errno;
            close(fd);
            errno = e;
            return -1;
        }
        if (!fstat(fd, &by_fd) && !lstat(path, &by_name) && by_fd.st_ino == by_name.st_ino && by_fd.st_dev == by_name.st_dev)
            return fd;
        close(fd);
    }
    errno = EAGAIN;
    return -1;
}

/* The names in a folder that end so. */
struct names {
    struct dirent **list;
    int n;
};

static void names_free(struct names *names)
{
    for (int i = 0; i < names->n; i++) free(names->list[i]);
    free(names->list);
}

static struct names names_in(const char *folder, const char *end)
{
    struct names all = {NULL, 0};
    all.n = scandir(folder, &all.list, NULL, alphasort);
    int kept = 0;
    for (int i = 0; i < all.n; i++) {
        const size_t n = strlen(all.list[i]->d_name), m = strlen(end);
        if (n > m && !strcmp(all.list[i]->d_name + n - m, end))
            all.list[kept++] = all.list[i];
        else
            free(all.list[i]);
    }
    all.n = kept;
    return all;
}

/* Sockets of killed programs, found by their locks that nobody holds. */
static void sweep(const char *folder)
{
    struct names names = names_in(folder, ".sock.lock");
    for (int i = 0; i < names.n; i++) {
        char path[PATH_CAP];
        if (snprintf(path, sizeof path, "%s/%s", folder, names.list[i]->d_name) >= (int)sizeof path) continue;
        const int lock = lock_file(path);
        if (lock < 0) continue;
        char socket_path[PATH_CAP];
        struct stat st;
        snprintf(socket_path, sizeof socket_path, "%.*s", (int)(strlen(path) - 5), path);
        if (!lstat(socket_path, &st) && S_ISSOCK(st.st_mode)) (void)unlink(socket_path);
        (void)unlink(path);
        close(lock);
    }
    names_free(&names);
}

enum mc_code os_listener_path(char *buf, size_t cap, struct mc_err *err)
{
    char folder[PATH_CAP];
    size_t there;
    if (!folder_path(folder, sizeof folder, &there))
        return mc_fail(err, MC_EIO, 0, "no folder for the control socket: neither XDG_RUNTIME_DIR nor HOME is set");
    linux_make_folders(folder, there);
    if (!is_private_folder(folder))
        return mc_fail(err, MC_EIO, errno, "%s: cannot be made, or is not a folder that this user alone may enter (mode 0700)",
                       folder);
    sweep(folder);
    const int n = snprintf(buf, cap, "%s/%ld.sock", folder, (long)getpid());
    return n > 0 && (size_t)n < cap ? MC_OK : mc_fail(err, MC_EARG, 0, "the path of the control socket is too long");
}

void os_listener_each(void (*fn)(void *user, const char *path), void *user)
{
    char folder[PATH_CAP], path[PATH_CAP], own[32];
    size_t there;
    if (!folder_path(folder, sizeof folder, &there) || !is_private_folder(folder)) return;
    struct names names = names_in(folder, ".sock");
    snprintf(own, sizeof own, "%ld.sock", (long)getpid());
    for (int i = 0; i < names.n; i++)
        if (strcmp(names.list[i]->d_name, own) != 0 &&
            snprintf(path, sizeof path, "%s/%s", folder, names.list[i]->d_name) < (int)sizeof path)
            fn(user, path);
    names_free(&names);
}

/* ---- listening -------------------------------------------------------------------------------------------------------- */

static int connect_to(const struct sockaddr_un *a)
{
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    if (!connect(fd, (const struct sockaddr *)a, sizeof *a)) return fd;
    const int e = errno;
    close(fd);
    errno = e;
    return -1;
}

/* Makes the name free if what is there is the socket of a program that has ended. */
static enum mc_code make_room(const struct sockaddr_un *a, struct mc_err *err)
{
    struct stat st;
    if (lstat(a->sun_path, &st)) {
        if (errno == ENOENT) return MC_OK;
        return mc_fail(err, MC_EIO, errno, "%s: %m", a->sun_path);
    }
    if (!S_ISSOCK(st.st_mode))
        return mc_fail(err, MC_EIO, 0, "%s: there is something that is no socket; it is left alone, choose another path",
                       a->sun_path);
    const int fd = connect_to(a);
    if (fd >= 0) close(fd);
    if (fd >= 0 || errno != ECONNREFUSED)
        return mc_fail(err, MC_EBUSY, 0, "%s: another program listens there; choose another path", a->sun_path);
    if (unlink(a->sun_path) && errno != ENOENT) return mc_fail(err, MC_EIO, errno, "%s: cannot be replaced: %m", a->sun_path);
    return MC_OK;
}

/* The rights are those of the descriptor before bind, so there is no moment in which others could connect. */
static enum mc_code bind_socket(struct os_listener *l, const struct sockaddr_un *a, struct mc_err *err)
{
    struct stat st;
    l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    l->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (l->fd < 0 || l->wake < 0 || fchmod(l->fd, 0600) || bind(l->fd, (const struct sockaddr *)a, sizeof *a))
        return mc_fail(err, MC_EIO, errno, "%s: cannot be made: %m", a->sun_path);
    if (lstat(a->sun_path, &st)) return mc_fail(err, MC_EIO, errno, "%s: %m", a->sun_path);
    l->device = st.st_dev;
    l->file = st.st_ino;
    if (chmod(a->sun_path, 0600) || listen(l->fd, BACKLOG)) return mc_fail(err, MC_EIO, errno, "%s: %m", a->sun_path);
    return MC_OK;
}

enum mc_code os_listener_open(const char *path, struct os_listener **out, struct mc_err *err)
{
    struct sockaddr_un a;
    enum mc_code code = address_of(path, &a, err);
    if (code) return code;
    struct os_listener *l = calloc(1, sizeof *l);
    if (!l) return mc_fail(err, MC_ENOMEM, 0, "no memory for the control socket");
    l->fd = l->wake = -1;
    memcpy(l->path, a.sun_path, sizeof l->path);
    snprintf(l->lock_path, sizeof l->lock_path, "%s.lock", l->path);
    l->lock = lock_file(l->lock_path);
    if (l->lock < 0)
        code = errno == EWOULDBLOCK ? mc_fail(err, MC_EBUSY, 0, "%s: another program listens there; choose another path", path)
                                    : mc_fail(err, MC_EIO, errno, "%s: cannot be made: %m", l->lock_path);
    if (!code) code = make_room(&a, err);
    if (!code) code = bind_socket(l, &a, err);
    if (code) {
        os_listener_close(l);
        return code;
    }
    *out = l;
    return MC_OK;
}

void os_listener_close(struct os_listener *l)
{
    struct stat st;
    if (!l) return;
    if (l->fd >= 0) close(l->fd);
    if (l->wake >= 0) close(l->wake);
    if (l->file && !lstat(l->path, &st) && st.st_dev == l->device && st.st_ino == l->file) (void)unlink(l->path);
    if (l->lock >= 0) {
        (void)unlink(l->lock_path);
        close(l->lock);
    }
    free(l);
}

void os_listener_wake(struct os_listener *l)
{
    const uint64_t one = 1;
    (void)!write(l->wake, &one, sizeof one);
}

/* Who is at the other end? */
static bool is_ours(int fd)
{
    struct ucred peer;
    socklen_t n = sizeof peer;
    return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) && (peer.uid == geteuid() || peer.uid == 0);
}

static struct os_conn *conn_of(int fd)
{
    struct os_conn *const c = malloc(sizeof *c);
    if (c)
        c->fd = fd;
    else
        close(fd);
    return c;
}

enum os_caller os_listener_accept(struct os_listener *l, struct os_conn **out)
{
    const int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return errno == EAGAIN || errno == EINTR || errno == ECONNABORTED ? OS_CALLER_NONE : OS_CALLER_FAILED;
    if (!is_ours(fd)) {
        close(fd);
        return OS_CALLER_STRANGER;
    }
    struct os_conn *const c = conn_of(fd);
    if (!c) return OS_CALLER_FAILED;
    *out = c;
    return OS_CALLER_OURS;
}

/* ---- connections ------------------------------------------------------------------------------------------------------ */

enum mc_code os_conn_open(const char *path, struct os_conn **out, struct mc_err *err)
{
    struct sockaddr_un a;
    const enum mc_code code = address_of(path, &a, err);
    if (code) return code;
    int fd = connect_to(&a);
    for (int tries = 0; fd < 0 && errno == EAGAIN && tries < CONNECT_TRIES; tries++) { /* many call at once */
        os_sleep_ms(CONNECT_PAUSE_MS);
        fd = connect_to(&a);
    }
    if (fd < 0) return mc_fail(err, MC_EIO, errno, "%s: nobody listens there: %m", path);
    if (!is_ours(fd)) {
        close(fd);
        return mc_fail(err, MC_EIO, 0, "%s: the program that listens there belongs to another user", path);
    }
    struct os_conn *const c = conn_of(fd);
    if (!c) return mc_fail(err, MC_ENOMEM, 0, "no memory for a connection");
    *out = c;
    return MC_OK;
}

void os_conn_close(struct os_conn *c)
{
    if (!c) return;
    close(c->fd);
    free(c);
}

static int64_t judged(ssize_t n)
{
    if (n >= 0) return n;
    return errno == EAGAIN || errno == EINTR ? 0 : -1;
}

int64_t os_conn_read(struct os_conn *c, void *buf, size_t size)
{
    const ssize_t n = recv(c->fd, buf, size, 0);
    return n == 0 && size > 0 ? -1 : judged(n);
}

int64_t os_conn_write(struct os_conn *c, const void *data, size_t size)
{
    return judged(send(c->fd, data, size, MSG_NOSIGNAL));
}

void os_conn_wait(struct os_listener *l, const struct os_conn_wish *wishes, size_t n, int timeout_ms)
{
    struct pollfd p[OS_CONNS_MAX + 2];
    nfds_t at = 0;
    uint64_t ignored;
    if (l) {
        p[at++] = (struct pollfd){.fd = l->wake, .events = POLLIN};
        p[at++] = (struct pollfd){.fd = l->fd, .events = POLLIN};
    }
    for (size_t i = 0; i < n; i++)
        if (wishes[i].read || wishes[i].write)
            p[at++] = (struct pollfd){.fd = wishes[i].conn->fd,
                                      .events = (short)((wishes[i].read ? POLLIN : 0) | (wishes[i].write ? POLLOUT : 0))};
    if (poll(p, at, timeout_ms) > 0 && l && p[0].revents) (void)!read(l->wake, &ignored, sizeof ignored);
}
