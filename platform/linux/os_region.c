/* os_region.c - large memory made of the largest pages that can be had.
 *
 *   | 1 GiB pages (hugetlb) | 2 MiB pages (hugetlb) .......... | transparent huge pages ...... |
 *   | piece                 | piece | piece | piece | ...                      8 MiB a piece, or one page of 1 GiB
 *
 * The addresses are reserved first, without memory, and then filled from the front with the largest kind that is left. hugetlb
 * memory is mapped without MAP_NORESERVE: the kernel takes the pages out of the pool's free ones at mmap, or says ENOMEM. A
 * reserved page can still fail to arrive (hugetlb limit of a control group, a memory policy whose node has none), and a plain
 * access would then end in SIGBUS. So pieces are made present by MADV_POPULATE_WRITE, which returns the failure; the piece is
 * then mapped anew with lesser pages. Kernels without that call (before 5.14) get no hugetlb pages here.
 *
 * Whether transparent huge pages arrived only /proc/self/smaps tells, so it is asked afterwards. */
#include "platform/os.h"

#include "platform/linux/os_linux.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#ifndef PR_SET_VMA
#define PR_SET_VMA           0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

#define MIB           ((size_t)1 << 20)
#define GIB           ((size_t)1 << 30)
#define ADDRESSES_MAX ((size_t)1 << 47) /* what a process of 64 bits can map */

enum { STRETCHES_MAX = 64, PIECE_BYTES = 8 << 20 };
enum { UNTOUCHED, BEING_TOUCHED, PRESENT, FAILED };

struct piece {
    size_t off, size;
    _Atomic uint32_t state; /* release by the thread that touched it, acquire by who finds it done */
    _Atomic uint32_t kind;  /* enum os_page; changes while BEING_TOUCHED only */
};

struct os_region {
    uint8_t *data;
    size_t size, mapped; /* mapped: size in whole pages of 4 KiB, or of 2 MiB */
    enum os_hugepages wish;
    const char *label;
    struct piece *piece;
    uint32_t n_pieces;
    bool can_thp;
    atomic_bool lost; /* a reserved page did not arrive */
    char why[160];    /* hugetlb or transparent pages do not cover all */
};

const char *os_page_name(enum os_page kind)
{
    static const char *const names[OS_PAGE_KINDS] = {"normal", "thp", "2m", "1g"};
    return (unsigned)kind < OS_PAGE_KINDS ? names[kind] : "unknown";
}

/* ---- what the system offers --------------------------------------------------------------------------------------- */

static uint64_t pool_number(size_t page_bytes, const char *name)
{
    char path[128], text[32];
    snprintf(path, sizeof path, "/sys/kernel/mm/hugepages/hugepages-%zukB/%s", page_bytes / 1024, name);
    return linux_read_text(path, text, sizeof text) ? strtoull(text, NULL, 10) : 0;
}

/* Does the system know hugetlb pages of this size? */
static bool has_pool(size_t page_bytes)
{
    char path[96];
    snprintf(path, sizeof path, "/sys/kernel/mm/hugepages/hugepages-%zukB", page_bytes / 1024);
    return access(path, F_OK) == 0;
}

static uint64_t pool_free_pages(size_t page_bytes)
{
    const uint64_t idle = pool_number(page_bytes, "free_hugepages"), reserved = pool_number(page_bytes, "resv_hugepages");
    return idle > reserved ? idle - reserved : 0;
}

static bool wants(enum os_hugepages wish, enum os_page kind)
{
    switch (wish) {
    case OS_HUGE_OFF:
        return false;
    case OS_HUGE_THP:
        return kind == OS_PAGE_THP;
    case OS_HUGE_2M:
        return kind != OS_PAGE_1G;
    default:
        return true;
    }
}

uint64_t os_huge_pool_free_bytes(enum os_hugepages wish)
{
    return (wants(wish, OS_PAGE_2M) ? pool_free_pages(2 * MIB) * 2 * MIB : 0) +
           (wants(wish, OS_PAGE_1G) ? pool_free_pages(GIB) * GIB : 0);
}

/* NULL, or why there are no transparent huge pages. */
static const char *thp_obstacle(void)
{
    char text[128];
    if (!linux_read_text("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text))
        return "this kernel has no transparent huge pages";
    if (strstr(text, "[never]"))
        return "transparent huge pages are set to never (echo madvise > /sys/kernel/mm/transparent_hugepage/enabled)";
    if (prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) > 0) return "transparent huge pages are switched off for this process";
    return NULL;
}

/* Does the kernel tell a failed touch instead of sending SIGBUS? Of no bytes at all: nothing is touched. */
static bool can_populate(void)
{
    return madvise(NULL, 0, MADV_POPULATE_WRITE) == 0;
}

/* ---- mapping --------------------------------------------------------------------------------------------------------- */

/* Pages of one kind at a fixed place inside the reservation. */
static bool map_at(const struct os_region *r, uint8_t *at, size_t size, enum os_page kind)
{
    const int log2 = kind == OS_PAGE_1G ? 30 : 21;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    if (kind == OS_PAGE_1G || kind == OS_PAGE_2M) flags |= MAP_HUGETLB | (log2 << MAP_HUGE_SHIFT);
    if (mmap(at, size, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED) return false;
    if (kind == OS_PAGE_THP) (void)madvise(at, size, MADV_HUGEPAGE);
    if (kind == OS_PAGE_NORMAL && r->wish == OS_HUGE_OFF) (void)madvise(at, size, MADV_NOHUGEPAGE);
    if (kind == OS_PAGE_THP || kind == OS_PAGE_NORMAL) (void)prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, at, size, r->label);
    return true;
}

static void add_pieces(struct os_region *r, size_t off, size_t size, enum os_page kind)
{
    const size_t step = kind == OS_PAGE_1G ? GIB : PIECE_BYTES;
    for (size_t at = off; at < off + size; at += step) {
        struct piece *p = &r->piece[r->n_pieces++];
        p->off = at;
        p->size = off + size - at < step ? off + size - at : step;
        atomic_init(&p->kind, kind);
        atomic_init(&p->state, UNTOUCHED);
    }
}

/* Fills [*off, mapped) with as many hugetlb pages of one size as there are: whole stretches as long as they are granted, then
 * ever smaller ones. The limit is for pools that others use up and free at the same time. */
static bool map_pool(struct os_region *r, size_t *off, enum os_page kind, size_t page)
{
    size_t left = (r->mapped - *off) / page, step = left; /* pages */
    for (int i = 0; i < STRETCHES_MAX && left > 0 && step > 0; i++) {
        if (step > left) step = left;
        if (!map_at(r, r->data + *off, step * page, kind)) {
            step /= 2;
            continue;
        }
        add_pieces(r, *off, step * page, kind);
        *off += step * page;
        left -= step;
    }
    return left == 0;
}

/* Notes why hugetlb pages do not cover all, for the report and the error; `left` bytes are missing. */
static void note_pool(struct os_region *r, size_t page, size_t left)
{
    const uint64_t total = pool_number(page, "nr_hugepages"), others = total - pool_free_pages(page);
    const uint64_t need = others + left / page;
    if (page == GIB)
        snprintf(r->why, sizeof r->why,
                 "the pool has %" PRIu64 " pages of 1 GiB, %" PRIu64 " are needed (boot with hugepagesz=1G "
                 "hugepages=%" PRIu64 ")",
                 total, need, need);
    else
        snprintf(r->why, sizeof r->why,
                 "the pool has %" PRIu64 " pages of 2 MiB, %" PRIu64 " are needed (sysctl "
                 "vm.nr_hugepages=%" PRIu64 ")",
                 total, need, need);
}

static enum mc_code refuse(const struct os_region *r, enum mc_code code, const char *name, const char *why, struct mc_err *err)
{
    return mc_fail(err, code, 0, "--hugepages %s: %s for the %s (%zu MiB); or use --hugepages auto", name, why, r->label,
                   r->mapped / MIB);
}

/* Refuses wishes for pages that this system does not know. */
static enum mc_code check_wish(const struct os_region *r, const char *no_thp, struct mc_err *err)
{
    if (r->wish == OS_HUGE_THP && no_thp) return refuse(r, MC_EUNSUPPORTED, "thp", no_thp, err);
    if (r->wish == OS_HUGE_1G && !has_pool(GIB))
        return refuse(r, MC_EUNSUPPORTED, "1g", "this machine has no pages of 1 GiB", err);
    if (r->wish == OS_HUGE_2M && !has_pool(2 * MIB))
        return refuse(r, MC_EUNSUPPORTED, "2m", "this kernel has no hugetlb pages of 2 MiB", err);
    if ((r->wish == OS_HUGE_1G || r->wish == OS_HUGE_2M) && !can_populate())
        return refuse(r, MC_EUNSUPPORTED, r->wish == OS_HUGE_2M ? "2m" : "1g", "Linux 5.14 or later is needed", err);
    return MC_OK;
}

static enum mc_code fill(struct os_region *r, struct mc_err *err)
{
    size_t off = 0;
    const bool pools = r->mapped >= 2 * MIB && can_populate();
    const char *const no_thp = thp_obstacle();
    const enum mc_code code = check_wish(r, no_thp, err);
    if (code) return code;
    r->can_thp = wants(r->wish, OS_PAGE_THP) && !no_thp && r->mapped >= 2 * MIB;
    if (pools && r->mapped >= GIB && has_pool(GIB) && wants(r->wish, OS_PAGE_1G) && !map_pool(r, &off, OS_PAGE_1G, GIB)) {
        note_pool(r, GIB, r->mapped - off);
        if (r->wish == OS_HUGE_1G) return refuse(r, MC_ENOMEM, "1g", r->why, err);
    }
    if (pools && wants(r->wish, OS_PAGE_2M) && off < r->mapped && !map_pool(r, &off, OS_PAGE_2M, 2 * MIB)) {
        note_pool(r, 2 * MIB, r->mapped - off);
        if (r->wish == OS_HUGE_2M) return refuse(r, MC_ENOMEM, "2m", r->why, err);
    }
    if (no_thp && wants(r->wish, OS_PAGE_THP) && off < r->mapped) snprintf(r->why, sizeof r->why, "%s", no_thp);
    if (off == r->mapped) return MC_OK;
    const enum os_page rest = r->can_thp ? OS_PAGE_THP : OS_PAGE_NORMAL;
    if (!map_at(r, r->data + off, r->mapped - off, rest))
        return mc_fail(err, MC_ENOMEM, errno, "no memory for the %s (%zu bytes): %m", r->label, r->size);
    add_pieces(r, off, r->mapped - off, rest);
    return MC_OK;
}

/* Addresses for `size` bytes, aligned; nothing behind them yet. */
static uint8_t *reserve(size_t size, size_t align)
{
    const size_t extra = align > 4096 ? align : 0;
    uint8_t *p = mmap(NULL, size + extra, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED || !extra) return p == MAP_FAILED ? NULL : p;
    const size_t head = (align - (uintptr_t)p % align) % align;
    uint8_t *const begin = p + head, *const end = begin + size;
    if (head) munmap(p, head);
    if (extra > head) munmap(end, extra - head);
    return begin;
}

enum mc_code os_region_create(size_t size, enum os_hugepages wish, const char *label, struct os_region **out,
                              struct mc_err *err)
{
    if (size == 0 || size > ADDRESSES_MAX) return mc_fail(err, MC_ENOMEM, 0, "no memory for the %s (%zu bytes)", label, size);
    struct os_region *r = calloc(1, sizeof *r);
    if (!r) return mc_fail(err, MC_ENOMEM, 0, "no memory for the %s", label);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const bool large = size > 2 * MIB - page;
    r->size = size;
    r->mapped = mc_round_up(size, large ? 2 * MIB : page);
    r->wish = wish;
    r->label = label;
    r->piece =
        calloc(r->mapped / PIECE_BYTES + 2 * STRETCHES_MAX + 1, sizeof *r->piece); /* each stretch may end in a short one */
    const size_t align = !large ? page : r->mapped >= GIB && wants(wish, OS_PAGE_1G) && has_pool(GIB) ? GIB : 2 * MIB;
    r->data = r->piece ? reserve(r->mapped, align) : NULL;
    enum mc_code code = MC_OK;
    if (!r->data)
        code = mc_fail(err, MC_ENOMEM, errno, "no memory for the %s (%zu bytes): %m", label, size);
    else
        code = fill(r, err);
    if (code) {
        os_region_destroy(r);
        return code;
    }
    *out = r;
    return MC_OK;
}

void os_region_destroy(struct os_region *r)
{
    if (!r) return;
    if (r->data) munmap(r->data, r->mapped);
    free(r->piece);
    free(r);
}

uint8_t *os_region_data(const struct os_region *r)
{
    return r->data;
}

size_t os_region_size(const struct os_region *r)
{
    return r->size;
}

bool os_region_prefer(struct os_region *r, unsigned node)
{
    return os_numa_prefer(r->data, r->mapped, node);
}

bool os_region_interleave(struct os_region *r)
{
    return os_numa_interleave(r->data, r->mapped);
}

/* ---- touching -------------------------------------------------------------------------------------------------------- */

static bool populate(uint8_t *at, size_t size)
{
    int rc;
    do rc = madvise(at, size, MADV_POPULATE_WRITE);
    while (rc && (errno == EAGAIN || errno == EINTR));
    if (!rc || errno != EINVAL) return !rc;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE); /* an old kernel: no hugetlb pages here, so nothing can fail */
    for (size_t i = 0; i < size; i += page) *(volatile uint8_t *)(at + i) = 0;
    return true;
}

static enum mc_code touch_piece(struct os_region *r, struct piece *p, struct mc_err *err)
{
    const enum os_page kind = atomic_load_explicit(&p->kind, memory_order_relaxed);
    uint8_t *const at = r->data + p->off;
    if (populate(at, p->size)) return MC_OK;
    const int e = errno;
    const bool pool = kind == OS_PAGE_2M || kind == OS_PAGE_1G;
    if (pool && r->wish == OS_HUGE_AUTO) {
        const enum os_page rest = r->can_thp ? OS_PAGE_THP : OS_PAGE_NORMAL;
        atomic_store_explicit(&p->kind, rest, memory_order_relaxed);
        atomic_store_explicit(&r->lost, true, memory_order_relaxed);
        if (map_at(r, at, p->size, rest) && populate(at, p->size)) return MC_OK;
    }
    return mc_fail(err, MC_ENOMEM, e, "no memory for the %s: %s pages do not arrive (%s)%s", r->label, os_page_name(kind),
                   strerror(e), pool ? "; a hugetlb limit of the control group is likely, use --hugepages auto" : "");
}

enum mc_code os_region_touch(struct os_region *r, size_t off, size_t size, struct mc_err *err)
{
    enum mc_code code = MC_OK;
    uint32_t low = 0, high = r->n_pieces; /* the first piece that ends behind off */
    while (low < high) {
        const uint32_t mid = (low + high) / 2;
        if (r->piece[mid].off + r->piece[mid].size <= off)
            low = mid + 1;
        else
            high = mid;
    }
    for (uint32_t i = low; !code && i < r->n_pieces && r->piece[i].off < off + size; i++) {
        struct piece *const p = &r->piece[i];
        uint32_t state = UNTOUCHED;
        if (atomic_compare_exchange_strong_explicit(&p->state, &state, BEING_TOUCHED, memory_order_acquire,
                                                    memory_order_acquire)) {
            code = touch_piece(r, p, err);
            atomic_store_explicit(&p->state, code ? FAILED : PRESENT, memory_order_release);
            os_wake_all_u32(&p->state);
            continue;
        }
        for (; state == BEING_TOUCHED; state = atomic_load_explicit(&p->state, memory_order_acquire))
            os_wait_u32(&p->state, BEING_TOUCHED);
        if (state == FAILED) code = mc_fail(err, MC_ENOMEM, ENOMEM, "no memory for the %s", r->label);
    }
    return code;
}

/* ---- report ---------------------------------------------------------------------------------------------------------- */

/* Bytes of [begin, end) that are mapped by transparent huge pages, by mappings. */
static uint64_t thp_bytes(uintptr_t begin, uintptr_t end)
{
    FILE *const f = fopen("/proc/self/smaps", "re");
    char line[512];
    uintptr_t from = 0, to = 0;
    uint64_t sum = 0, kib;
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2) continue;
        if (from < end && to > begin && sscanf(line, "AnonHugePages: %" SCNu64, &kib) == 1) sum += kib * 1024;
    }
    if (f) fclose(f);
    return sum;
}

void os_region_facts_get(struct os_region *r, struct os_region_facts *out)
{
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < r->n_pieces; i++)
        if (atomic_load_explicit(&r->piece[i].state, memory_order_acquire) == PRESENT)
            out->bytes[atomic_load_explicit(&r->piece[i].kind, memory_order_relaxed)] += r->piece[i].size;
    const uint64_t asked = out->bytes[OS_PAGE_THP], got = thp_bytes((uintptr_t)r->data, (uintptr_t)r->data + r->mapped);
    out->bytes[OS_PAGE_THP] = got < asked ? got : asked;
    out->bytes[OS_PAGE_NORMAL] += asked - out->bytes[OS_PAGE_THP];
    const bool lost = atomic_load_explicit(&r->lost, memory_order_relaxed);
    if (r->wish != OS_HUGE_OFF)
        snprintf(out->why, sizeof out->why, "%s%s%s", lost ? "reserved pages did not arrive, a control group limits them" : "",
                 lost && r->why[0] ? "; " : "", r->why);
}
