/* os_thread.c - threads on Linux: pthreads for the life of a thread, futexes for its waiting.
 *
 * The stack is 8 MiB whatever `ulimit -s` says, so a thread that works on one machine works on all. */
#include "platform/os.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { STACK_BYTES = 8 * 1024 * 1024 };

struct os_thread {
    pthread_t handle;
    os_thread_fn fn;
    void *arg;
    char name[16];
};

static void *thread_main(void *p)
{
    struct os_thread *const t = p;
    (void)pthread_setname_np(pthread_self(), t->name);
    t->fn(t->arg);
    return NULL;
}

enum mc_code os_thread_start(os_thread_fn fn, void *arg, const char *name, struct os_thread **out, struct mc_err *err)
{
    struct os_thread *t = calloc(1, sizeof *t);
    if (!t) return mc_fail(err, MC_ENOMEM, 0, "no memory to start thread %s", name);
    t->fn = fn;
    t->arg = arg;
    const size_t n = strlen(name);
    memcpy(t->name, name, n < sizeof t->name ? n : sizeof t->name - 1);
    pthread_attr_t attr;
    int e = pthread_attr_init(&attr);
    if (!e) {
        (void)pthread_attr_setstacksize(&attr, STACK_BYTES);
        e = pthread_create(&t->handle, &attr, thread_main, t);
        pthread_attr_destroy(&attr);
    }
    if (e) {
        free(t);
        return mc_fail(err, MC_EIO, e, "cannot start thread %s (error %d); a limit on processes or memory is likely", name, e);
    }
    *out = t;
    return MC_OK;
}

void os_thread_join(struct os_thread *t)
{
    if (!t) return;
    (void)pthread_join(t->handle, NULL);
    free(t);
}

void os_wait_u32(const _Atomic uint32_t *word, uint32_t expected)
{
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

void os_wake_all_u32(const _Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

void os_cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void os_thread_yield(void)
{
    (void)sched_yield();
}
