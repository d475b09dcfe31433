/* os_map.c - whole files as read-only memory on Windows: a view ends with the page of the file's last byte, padded with zeros.
 *
 * The system refuses to shorten a file that somebody has mapped, so a map is never damaged by another program. */
#include "platform/os.h"

#include "platform/windows/os_windows.h"
#include "platform/windows/utf16.h"

#include <stdlib.h>
#include <windows.h>

struct os_map {
    uint8_t *base;
    size_t size;
};

static enum mc_code view_file(struct os_map *m, struct os_file *f, struct mc_err *err)
{
    const HANDLE section = CreateFileMappingW(windows_file_handle(f), NULL, PAGE_READONLY, 0, 0, NULL);
    m->base = section ? MapViewOfFile(section, FILE_MAP_READ, 0, 0, m->size) : NULL;
    const DWORD e = GetLastError();
    if (section) CloseHandle(section); /* the view keeps it alive */
    if (m->base) return MC_OK;
    char text[ERROR_TEXT_CAP];
    return mc_fail(err, MC_EIO, (int)e, "%s: cannot map %zu bytes: %s", os_file_path(f), m->size, windows_error_text(e, text));
}

enum mc_code os_map_open(struct os_file *f, struct os_map **out, struct mc_err *err)
{
    const char *const path = os_file_path(f);
    const uint64_t size = os_file_size(f);
    if (size == 0) return mc_fail(err, MC_EFORMAT, 0, "%s: the file is empty", path);
    if (size > SIZE_MAX / 2) return mc_fail(err, MC_ENOMEM, 0, "%s: too large to be mapped", path);
    struct os_map *m = calloc(1, sizeof *m);
    if (!m) return mc_fail(err, MC_ENOMEM, 0, "%s: no memory to map the file", path);
    m->size = (size_t)size;
    const enum mc_code code = view_file(m, f, err);
    if (code) {
        free(m);
        return code;
    }
    *out = m;
    return MC_OK;
}

void os_map_close(struct os_map *m)
{
    if (!m) return;
    UnmapViewOfFile(m->base);
    free(m);
}

struct mc_span os_map_bytes(const struct os_map *m)
{
    return (struct mc_span){m->base, m->size};
}

bool os_map_damaged(const struct os_map *m)
{
    (void)m;
    return false;
}

double os_map_cached(const struct os_map *m, uint64_t off, uint64_t size)
{
    (void)m, (void)off, (void)size; /* the system does not tell what its cache holds */
    return 0;
}

void os_map_not_needed(const struct os_map *m, uint64_t off, uint64_t size)
{
    if (off >= m->size || size == 0) return;
    /* Unlocking pages that are not locked fails, and takes them out of the working set: that is what we are after. */
    (void)VirtualUnlock(m->base + off, size > m->size - off ? m->size - (size_t)off : (size_t)size);
}

void os_map_forget(const struct os_map *m, uint64_t off, uint64_t size)
{
    os_map_not_needed(m, off, size); /* pages that nobody holds are free for whoever wants them */
}

void os_map_will_need(const struct os_map *m, uint64_t off, uint64_t size)
{
    if (off >= m->size || size == 0) return;
    WIN32_MEMORY_RANGE_ENTRY range = {m->base + off, size > m->size - off ? m->size - (size_t)off : (size_t)size};
    (void)PrefetchVirtualMemory(GetCurrentProcess(), 1, &range, 0);
}
