/* os_read.c - positioned reads on Windows that can pass the file cache by (FILE_FLAG_NO_BUFFERING).
 *
 * ReOpenFile gives a second handle of the same file. Each read brings its own event and position (the handle is overlapped), so
 * that several threads read at the same time. There is no queue of reads in the kernel here. */
#include "platform/os.h"

#include "platform/windows/os_windows.h"
#include "platform/windows/utf16.h"

#include <inttypes.h>
#include <stdlib.h>
#include <windows.h>

enum { CALL_BYTES_MAX = 1 << 30 };

struct os_source {
    HANDLE handle;
    bool direct;
    uint64_t size; /* when the file was opened */
    char path[];
};

enum mc_code os_source_open(const struct os_file *f, bool direct, struct os_source **out, struct mc_err *err)
{
    const char *const path = os_file_path(f);
    const size_t path_size = strlen(path) + 1;
    struct os_source *s = malloc(sizeof *s + path_size);
    if (!s) return mc_fail(err, MC_ENOMEM, 0, "%s: no memory to open the file", path);
    memcpy(s->path, path, path_size);
    s->direct = direct;
    s->size = os_file_size(f);
    s->handle = ReOpenFile(windows_file_handle(f), GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE,
                           FILE_FLAG_OVERLAPPED | (direct ? FILE_FLAG_NO_BUFFERING : 0));
    if (s->handle == INVALID_HANDLE_VALUE) {
        const DWORD e = GetLastError();
        char text[ERROR_TEXT_CAP];
        free(s);
        return mc_fail(err, direct ? MC_EUNSUPPORTED : MC_EIO, (int)e, "%s: cannot open a second time: %s", path,
                       windows_error_text(e, text));
    }
    *out = s;
    return MC_OK;
}

void os_source_close(struct os_source *s)
{
    if (!s) return;
    CloseHandle(s->handle);
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
    OVERLAPPED at = {.Offset = (DWORD)off, .OffsetHigh = (DWORD)(off >> 32), .hEvent = CreateEventW(NULL, TRUE, FALSE, NULL)};
    DWORD n = 0, e = 0;
    if (!at.hEvent) return -(int64_t)GetLastError();
    if (!ReadFile(s->handle, dst, (DWORD)(size < CALL_BYTES_MAX ? size : CALL_BYTES_MAX), NULL, &at) &&
        GetLastError() != ERROR_IO_PENDING)
        e = GetLastError();
    if (!e && !GetOverlappedResult(s->handle, &at, &n, TRUE)) e = GetLastError();
    CloseHandle(at.hEvent);
    return e == ERROR_HANDLE_EOF ? 0 : e ? -(int64_t)e : (int64_t)n;
}

bool os_read_again(int64_t result)
{
    return result == -(int64_t)ERROR_OPERATION_ABORTED || result == -(int64_t)ERROR_NO_SYSTEM_RESOURCES;
}

enum mc_code os_source_fail(const struct os_source *s, uint64_t off, int64_t result, struct mc_err *err)
{
    char text[ERROR_TEXT_CAP];
    if (result < 0)
        return mc_fail(err, MC_EIO, (int)-result, "%s: cannot read at byte %" PRIu64 ": %s", s->path, off,
                       windows_error_text((DWORD)-result, text));
    return mc_fail(err, MC_EIO, 0, "%s: ends at byte %" PRIu64 "; it had %" PRIu64 " bytes when it was opened", s->path, off,
                   s->size);
}

void os_source_forget(struct os_source *s, uint64_t off, size_t size)
{
    (void)s, (void)off, (void)size; /* the system has no such call */
}

/* ---- no queue in the kernel ------------------------------------------------------------------------------------------ */

enum mc_code os_ring_create(unsigned entries, struct os_ring **out, struct mc_err *err)
{
    (void)entries, (void)out;
    return mc_fail(err, MC_EUNSUPPORTED, 0, "io_uring is Linux only");
}

void os_ring_destroy(struct os_ring *r)
{
    (void)r;
}

enum mc_code os_ring_read(struct os_ring *r, struct os_source *s, uint64_t off, void *dst, size_t size, uint64_t tag,
                          struct mc_err *err)
{
    (void)r, (void)s, (void)off, (void)dst, (void)size, (void)tag;
    return mc_fail(err, MC_EUNSUPPORTED, 0, "io_uring is Linux only");
}

void os_ring_wake(struct os_ring *r)
{
    (void)r;
}

enum mc_code os_ring_wait(struct os_ring *r, uint64_t *tag, int64_t *result, struct mc_err *err)
{
    (void)r, (void)tag, (void)result;
    return mc_fail(err, MC_EUNSUPPORTED, 0, "io_uring is Linux only");
}
