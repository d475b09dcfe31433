/* os_ring.c - reads queued in the kernel by io_uring.
 *
 * Nothing is registered (registered buffers count against RLIMIT_MEMLOCK, 8 MiB for ordinary users, and gain nothing at blocks
 * of megabytes) and no polling mode is used. A ring that can be made may still refuse to read (seccomp of containers answers
 * the setup, others answer later), so the first read is the caller's proof. */
#include "platform/os.h"

#include "platform/linux/os_linux.h"

#include <errno.h>
#include <liburing.h>
#include <pthread.h>
#include <stdlib.h>

struct os_ring {
    struct io_uring ring;
    pthread_mutex_t submit; /* the queue of what is asked for; that of the answers belongs to the one who waits */
};

static const char *obstacle(int e)
{
    switch (e) {
    case ENOSYS:
        return "this kernel (or the container's filter) has no io_uring";
    case EPERM:
    case EACCES:
        return "io_uring is forbidden here (sysctl kernel.io_uring_disabled, or the container's filter)";
    case ENOMEM:
        return "no memory for io_uring (limit of locked memory: ulimit -l)";
    default:
        return strerror(e);
    }
}

enum mc_code os_ring_create(unsigned entries, struct os_ring **out, struct mc_err *err)
{
    struct os_ring *r = calloc(1, sizeof *r);
    if (!r) return mc_fail(err, MC_ENOMEM, 0, "no memory for io_uring");
    const int rc = io_uring_queue_init(entries, &r->ring, 0);
    if (rc < 0) {
        free(r);
        return mc_fail(err, MC_EUNSUPPORTED, -rc, "%s", obstacle(-rc));
    }
    pthread_mutex_init(&r->submit, NULL); /* cannot fail for a plain one */
    *out = r;
    return MC_OK;
}

void os_ring_destroy(struct os_ring *r)
{
    if (!r) return;
    io_uring_queue_exit(&r->ring);
    pthread_mutex_destroy(&r->submit);
    free(r);
}

/* Under the lock. */
static int submit(struct os_ring *r)
{
    int rc;
    do rc = io_uring_submit(&r->ring);
    while (rc == -EINTR || rc == -EAGAIN || rc == -EBUSY);
    return rc;
}

enum mc_code os_ring_read(struct os_ring *r, struct os_source *s, uint64_t off, void *dst, size_t size, uint64_t tag,
                          struct mc_err *err)
{
    int rc = -EBUSY;
    pthread_mutex_lock(&r->submit);
    struct io_uring_sqe *const e = io_uring_get_sqe(&r->ring);
    if (e) {
        io_uring_prep_read(e, linux_source_fd(s), dst, (unsigned)size, off);
        io_uring_sqe_set_data64(e, tag);
        rc = submit(r);
    }
    pthread_mutex_unlock(&r->submit);
    if (!e) return mc_fail(err, MC_EBUSY, 0, "more reads in flight than the ring was made for");
    return rc < 0 ? mc_fail(err, MC_EUNSUPPORTED, -rc, "%s", obstacle(-rc)) : MC_OK;
}

void os_ring_wake(struct os_ring *r)
{
    pthread_mutex_lock(&r->submit);
    struct io_uring_sqe *const e = io_uring_get_sqe(&r->ring);
    if (e) {
        io_uring_prep_nop(e);
        io_uring_sqe_set_data64(e, OS_RING_WOKEN);
        (void)submit(r);
    }
    pthread_mutex_unlock(&r->submit);
}

enum mc_code os_ring_wait(struct os_ring *r, uint64_t *tag, int64_t *result, struct mc_err *err)
{
    struct io_uring_cqe *c;
    int rc;
    do rc = io_uring_wait_cqe(&r->ring, &c);
    while (rc == -EINTR || rc == -EAGAIN);
    if (rc < 0) return mc_fail(err, MC_EIO, -rc, "cannot wait for io_uring: %s", strerror(-rc));
    *tag = io_uring_cqe_get_data64(c);
    *result = c->res;
    io_uring_cqe_seen(&r->ring, c);
    return MC_OK;
}
