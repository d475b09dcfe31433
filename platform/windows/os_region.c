/* os_region.c - large memory on Windows: large pages for all of it, or ordinary ones.
 *
 * Large pages (2 MiB on x86) need the right "lock pages in memory", which an administrator gives to an account and a program
 * then has to switch on; they are committed at once and are never paged out. There are no transparent ones and no mixture. */
#include "platform/os.h"

#include "platform/windows/utf16.h"

#include <stdio.h>
#include <stdlib.h>
#include <windows.h>

struct os_region {
    uint8_t *data;
    size_t size, mapped;
    enum os_page kind;
    char why[160];
};

const char *os_page_name(enum os_page kind)
{
    static const char *const names[OS_PAGE_KINDS] = {"normal", "thp", "2m", "1g"};
    return (unsigned)kind < OS_PAGE_KINDS ? names[kind] : "unknown";
}

uint64_t os_huge_pool_free_bytes(enum os_hugepages wish)
{
    (void)wish; /* there is no pool apart */
    return 0;
}

/* Switches the right to lock memory on; false when the account does not hold it. */
static bool take_right(void)
{
    HANDLE token;
    TOKEN_PRIVILEGES want = {.PrivilegeCount = 1};
    want.Privileges[0].Attributes = SE_PRIVILEGE_ENABLED;
    if (!OpenProcessToken(GetCurrentProcess(), TOKEN_ADJUST_PRIVILEGES | TOKEN_QUERY, &token)) return false;
    const bool known = LookupPrivilegeValueW(NULL, L"SeLockMemoryPrivilege", &want.Privileges[0].Luid) &&
                       AdjustTokenPrivileges(token, FALSE, &want, 0, NULL, NULL);
    const bool given = known && GetLastError() == ERROR_SUCCESS; /* success with ERROR_NOT_ALL_ASSIGNED means no */
    CloseHandle(token);
    return given;
}

static void try_large(struct os_region *r)
{
    const size_t page = GetLargePageMinimum();
    if (!page) {
        snprintf(r->why, sizeof r->why, "this system has no large pages");
    } else if (!take_right()) {
        snprintf(r->why, sizeof r->why, "the account lacks the right \"Lock pages in memory\" (secpol.msc, Local Policies)");
    } else {
        r->mapped = mc_round_up(r->size, page);
        r->data = VirtualAlloc(NULL, r->mapped, MEM_RESERVE | MEM_COMMIT | MEM_LARGE_PAGES, PAGE_READWRITE);
        if (r->data)
            r->kind = OS_PAGE_2M;
        else
            snprintf(r->why, sizeof r->why, "the system has not enough memory in large pages; a restart helps");
    }
}

enum mc_code os_region_create(size_t size, enum os_hugepages wish, const char *label, struct os_region **out,
                              struct mc_err *err)
{
    if (wish == OS_HUGE_THP || wish == OS_HUGE_1G)
        return mc_fail(err, MC_EUNSUPPORTED, 0, "--hugepages %s: Windows has large pages of 2 MiB only; use --hugepages auto",
                       wish == OS_HUGE_THP ? "thp" : "1g");
    struct os_region *r = calloc(1, sizeof *r);
    if (!r) return mc_fail(err, MC_ENOMEM, 0, "no memory for the %s", label);
    r->size = size;
    if (wish != OS_HUGE_OFF && size >= (size_t)2 << 20) try_large(r);
    if (wish == OS_HUGE_2M && !r->data && r->why[0]) {
        const enum mc_code code = mc_fail(err, MC_ENOMEM, 0, "--hugepages 2m: %s; or use --hugepages auto", r->why);
        free(r);
        return code;
    }
    if (!r->data) {
        void *p = NULL;
        r->mapped = size;
        const enum mc_code code = os_mem_alloc(size, OS_MEM_HUGE, label, &p, err);
        r->data = p;
        if (code || !p) {
            free(r);
            return code ? code : mc_fail(err, MC_ENOMEM, 0, "no memory for the %s (0 bytes)", label);
        }
    }
    *out = r;
    return MC_OK;
}

void os_region_destroy(struct os_region *r)
{
    if (!r) return;
    os_mem_free(r->data, r->mapped);
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

enum mc_code os_region_touch(struct os_region *r, size_t off, size_t size, struct mc_err *err)
{
    (void)r, (void)off, (void)size, (void)err; /* committed memory always arrives */
    return MC_OK;
}

void os_region_facts_get(struct os_region *r, struct os_region_facts *out)
{
    memset(out, 0, sizeof *out);
    out->bytes[r->kind] = r->size;
    snprintf(out->why, sizeof out->why, "%s", r->why);
}
