/* os_map.c - whole files mapped for reading, that survive the loss of their file.
 *
 * Touching a page that the file no longer has (cut short, disk gone) raises SIGBUS. The handler looks the address up in
 * a fixed table of live maps, puts an anonymous zero page there, marks the map damaged and returns, so the reader goes on
 * with zeros and the program can give up at a place of its choosing. Addresses of nobody go to the handler that was there
 * before. The handler makes one bare system call and reads atomics, nothing else.
 *
 * The table, the old handler and the once flag are file-scope state because a signal handler can reach nothing else. A
 * loss inside the last page that still exists reads as zeros without a signal: the kernel does not tell. */
#include "platform/os.h"

#include "platform/linux/os_linux.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAPS_MAX = 1024 };

/* begin: 0 = free, 1 = being filled, else first address. Written by open and close, read by the handler of any thread: the
 * release store of begin in map_register pairs with the acquire load in on_sigbus. */
struct map_slot {
    atomic_uintptr_t begin, end;
    atomic_bool damaged;
};

struct os_map {
    uint8_t *base;
    size_t size;
    struct map_slot *slot;
    int fd; /* for advice alone; -1: none */
};

static struct map_slot slots[MAPS_MAX];
static struct sigaction old_action;
static pthread_once_t install_once = PTHREAD_ONCE_INIT;
static atomic_int install_errno;

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static size_t whole_pages(size_t bytes)
{
    return (bytes + page_bytes() - 1) & ~(page_bytes() - 1);
}

/* mmap without the C library in between, which a signal handler may not rely on (and without the thread sanitizer, for which
 * mapping over a page is a write that races with its readers). */
static bool map_zeros(uintptr_t at, size_t size)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
    return syscall(SYS_mmap, at, size, PROT_READ, flags, -1, 0) != -1;
}

/* Zeros over the lost page; if the process has used up its mappings, over all the rest of the map. */
static bool cover_with_zeros(uintptr_t page, uintptr_t end)
{
    return map_zeros(page, page_bytes()) || map_zeros(page, end - page);
}

static void chain(int sig, siginfo_t *info, void *context)
{
    if (old_action.sa_flags & SA_SIGINFO) {
        old_action.sa_sigaction(sig, info, context);
    } else if (old_action.sa_handler == SIG_DFL || old_action.sa_handler == SIG_IGN) {
        signal(sig, SIG_DFL);
        raise(sig); /* blocked until this handler returns */
    } else {
        old_action.sa_handler(sig);
    }
}

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
    const int saved_errno = errno;
    const uintptr_t at = (uintptr_t)info->si_addr;
    bool handled = false;
    if (info->si_code > 0) { /* a fault, not kill() */
        for (size_t i = 0; i < MAPS_MAX && !handled; i++) {
            const uintptr_t begin = atomic_load_explicit(&slots[i].begin, memory_order_acquire);
            const uintptr_t end = atomic_load_explicit(&slots[i].end, memory_order_relaxed);
            if (begin <= 1 || at < begin || at >= end) continue;
            atomic_store_explicit(&slots[i].damaged, true, memory_order_release);
            handled = cover_with_zeros(at & ~(uintptr_t)(page_bytes() - 1), end);
        }
    }
    if (!handled) chain(sig, info, context);
    errno = saved_errno;
}

static void install(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_sigbus;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGBUS, &action, &old_action)) atomic_store_explicit(&install_errno, errno, memory_order_relaxed);
}

static struct map_slot *map_register(uintptr_t begin, size_t size)
{
    for (size_t i = 0; i < MAPS_MAX; i++) {
        uintptr_t free_slot = 0;
        if (!atomic_compare_exchange_strong_explicit(&slots[i].begin, &free_slot, 1, memory_order_acquire,
                                                     memory_order_relaxed))
            continue;
        atomic_store_explicit(&slots[i].end, begin + size, memory_order_relaxed);
        atomic_store_explicit(&slots[i].damaged, false, memory_order_relaxed);
        atomic_store_explicit(&slots[i].begin, begin, memory_order_release);
        return &slots[i];
    }
    return NULL;
}

enum mc_code os_map_open(struct os_file *f, struct os_map **out, struct mc_err *err)
{
    const char *const path = os_file_path(f);
    const uint64_t file_size = os_file_size(f);
    if (file_size == 0) return mc_fail(err, MC_EFORMAT, 0, "%s: the file is empty", path);
    pthread_once(&install_once, install);
    const int e = atomic_load_explicit(&install_errno, memory_order_relaxed);
    if (e) return mc_fail(err, MC_EIO, e, "%s: cannot catch SIGBUS, which mapped files need", path);

    if (file_size > SIZE_MAX - page_bytes()) return mc_fail(err, MC_ENOMEM, 0, "%s: too large to be mapped", path);
    struct os_map *m = calloc(1, sizeof *m);
    if (!m) return mc_fail(err, MC_ENOMEM, 0, "%s: no memory to map the file", path);
    m->size = (size_t)file_size;
    void *const base = mmap(NULL, m->size, PROT_READ, MAP_SHARED, linux_file_fd(f), 0);
    if (base == MAP_FAILED) {
        const enum mc_code code = mc_fail(err, MC_EIO, errno, "%s: cannot map %zu bytes: %m", path, m->size);
        free(m);
        return code;
    }
    m->base = base;
    m->slot = map_register((uintptr_t)base, whole_pages(m->size));
    if (!m->slot) {
        munmap(base, m->size);
        free(m);
        return mc_fail(err, MC_ENOMEM, 0, "%s: more than %d mapped files at once", path, MAPS_MAX);
    }
    m->fd = fcntl(linux_file_fd(f), F_DUPFD_CLOEXEC, 0);
    *out = m;
    return MC_OK;
}

void os_map_close(struct os_map *m)
{
    if (!m) return;
    atomic_store_explicit(&m->slot->begin, 0, memory_order_release); /* before the addresses can be somebody else's */
    munmap(m->base, m->size);
    if (m->fd >= 0) close(m->fd);
    free(m);
}

struct mc_span os_map_bytes(const struct os_map *m)
{
    return (struct mc_span){m->base, m->size};
}

bool os_map_damaged(const struct os_map *m)
{
    return atomic_load_explicit(&m->slot->damaged, memory_order_acquire);
}

void os_map_not_needed(const struct os_map *m, uint64_t off, uint64_t size)
{
    if (off >= m->size || size == 0) return;
    const size_t from =
        ((size_t)off + page_bytes() - 1) & ~(page_bytes() - 1); /* whole pages only: the edges belong to others too */
    const size_t to = (size > m->size - off ? m->size : (size_t)(off + size)) & ~(page_bytes() - 1);
    if (from < to) (void)madvise(m->base + from, to - from, MADV_DONTNEED);
}

void os_map_forget(const struct os_map *m, uint64_t off, uint64_t size)
{
    if (off >= m->size || size == 0) return;
    if (size > m->size - off) size = m->size - off;
    os_map_not_needed(m, off, size);
    if (m->fd >= 0) (void)posix_fadvise(m->fd, (off_t)off, (off_t)size, POSIX_FADV_DONTNEED);
}

double os_map_cached(const struct os_map *m, uint64_t off, uint64_t size)
{
    enum { SPOTS = 64, SPOT_PAGES = 64 };
    unsigned char present[SPOT_PAGES];
    if (off >= m->size || size == 0) return 0;
    const size_t page = page_bytes(), first = (size_t)off / page;
    const size_t end = size > m->size - off ? m->size : (size_t)(off + size), pages = whole_pages(end) / page - first;
    const size_t spots = pages < SPOTS * SPOT_PAGES ? (pages + SPOT_PAGES - 1) / SPOT_PAGES : SPOTS;
    size_t seen = 0, cached = 0;
    for (size_t i = 0; i < spots; i++) {
        const size_t at = pages * i / spots, next = pages * (i + 1) / spots;
        const size_t n = next - at < SPOT_PAGES ? next - at : SPOT_PAGES;
        if (mincore(m->base + (first + at) * page, n * page, present)) return 0;
        for (size_t k = 0; k < n; k++) cached += present[k] & 1;
        seen += n;
    }
    return (double)cached / (double)seen;
}

void os_map_will_need(const struct os_map *m, uint64_t off, uint64_t size)
{
    if (off >= m->size || size == 0) return;
    const size_t from = (size_t)off & ~(page_bytes() - 1);
    const size_t to = size > m->size - off ? m->size : (size_t)(off + size);
    (void)madvise(m->base + from, to - from, MADV_WILLNEED);
}
