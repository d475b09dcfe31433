/* os_file.c - plain files on Windows: positioned reads, small files whole, one buffered writer.
 *
 * Files are opened by their UTF-16 name and shared with everybody, as on Linux. What CreateFile opens need not be on a disk
 * (CON, a named pipe); GetFileType tells, and nothing here waits for such a thing. A positioned read is ReadFile with an
 * OVERLAPPED offset on a plain handle: right from any number of threads, though the system does them one by one. */
#include "platform/os.h"

#include "platform/windows/os_windows.h"
#include "platform/windows/utf16.h"

#include <inttypes.h>
#include <stdlib.h>
#include <windows.h>

enum { WRITER_BUFFER_BYTES = 64 * 1024, READ_STEP_BYTES = 64 * 1024, CALL_BYTES_MAX = 1 << 30 };

struct os_file {
    HANDLE handle;
    uint64_t size;
    char path[]; /* NUL-terminated copy */
};

struct os_writer {
    HANDLE handle;
    bool is_regular; /* only such a file is removed by abort */
    size_t n_used;
    char *path;
    char buffer[WRITER_BUFFER_BYTES];
};

/* `verb` fills "cannot <verb>". */
static enum mc_code file_fail(struct mc_err *err, DWORD e, const char *path, const char *verb)
{
    char text[ERROR_TEXT_CAP];
    return mc_fail(err, MC_EIO, (int)e, "%s: cannot %s: %s", path, verb, windows_error_text(e, text));
}

/* CreateFileW by UTF-8 name; on failure INVALID_HANDLE_VALUE, the error filled. */
static HANDLE open_handle(const char *path, DWORD access, DWORD disposition, const char *verb, struct mc_err *err)
{
    wchar_t *const wide = utf16_path(path);
    if (!wide) {
        mc_err_set(err, MC_EARG, 0, "%s: cannot %s: the name is not UTF-8", path, verb);
        return INVALID_HANDLE_VALUE;
    }
    const DWORD attributes = GetFileAttributesW(wide);
    if (attributes != INVALID_FILE_ATTRIBUTES && (attributes & FILE_ATTRIBUTE_DIRECTORY)) {
        free(wide);
        mc_err_set(err, MC_EIO, ERROR_DIRECTORY, "%s: is a directory; a regular file is needed", path);
        return INVALID_HANDLE_VALUE;
    }
    const HANDLE h = CreateFileW(wide, access, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL, disposition,
                                 FILE_ATTRIBUTE_NORMAL, NULL);
    const DWORD e = GetLastError();
    free(wide);
    if (h == INVALID_HANDLE_VALUE) file_fail(err, e, path, verb);
    return h;
}

enum mc_code os_file_open(const char *path, struct os_file **out, struct mc_err *err)
{
    const size_t path_size = strlen(path) + 1;
    struct os_file *f = malloc(sizeof *f + path_size);
    if (!f) return mc_fail(err, MC_ENOMEM, 0, "%s: no memory to open the file", path);
    memcpy(f->path, path, path_size);
    struct mc_err why = {.code = MC_OK};
    f->handle = open_handle(path, GENERIC_READ, OPEN_EXISTING, "open", &why);
    if (f->handle == INVALID_HANDLE_VALUE) {
        free(f);
        if (err) *err = why;
        return why.code;
    }
    const DWORD type = GetFileType(f->handle);
    LARGE_INTEGER size;
    enum mc_code code = MC_OK;
    if (type != FILE_TYPE_DISK)
        code = mc_fail(err, MC_EIO, ERROR_BAD_FILE_TYPE, "%s: is %s; a regular file is needed", path,
                       type == FILE_TYPE_PIPE ? "a pipe" : "a device");
    else if (!GetFileSizeEx(f->handle, &size))
        code = file_fail(err, GetLastError(), path, "read its size");
    if (code) {
        os_file_close(f);
        return code;
    }
    f->size = (uint64_t)size.QuadPart;
    *out = f;
    return MC_OK;
}

void os_file_close(struct os_file *f)
{
    if (!f) return;
    CloseHandle(f->handle);
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

void *windows_file_handle(const struct os_file *f)
{
    return f->handle;
}

enum mc_code os_file_read_at(struct os_file *f, uint64_t off, void *dst, size_t size, struct mc_err *err)
{
    uint64_t end;
    if (!mc_add_u64(off, size, &end) || end > INT64_MAX)
        return mc_fail(err, MC_EARG, 0, "%s: read of %zu bytes at %" PRIu64 " lies beyond any file", f->path, size, off);
    uint8_t *p = dst;
    while (size > 0) {
        OVERLAPPED at = {.Offset = (DWORD)off, .OffsetHigh = (DWORD)(off >> 32)};
        DWORD n = 0;
        if (!ReadFile(f->handle, p, (DWORD)(size < CALL_BYTES_MAX ? size : CALL_BYTES_MAX), &n, &at)) {
            const DWORD e = GetLastError();
            if (e != ERROR_HANDLE_EOF) return file_fail(err, e, f->path, "read");
            n = 0;
        }
        if (n == 0)
            return mc_fail(err, MC_EIO, 0,
                           "%s: ends at byte %" PRIu64 ", %zu bytes more were expected; it had %" PRIu64
                           " bytes when it was opened",
                           f->path, off, size, f->size);
        p += n;
        off += n;
        size -= n;
    }
    return MC_OK;
}

/* Reads a handle until its end into a growing buffer. */
static enum mc_code read_to_end(HANDLE h, const char *name, size_t max_bytes, char **data, size_t *size, struct mc_err *err)
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
        const size_t room = cap - used - 1;
        DWORD n = 0;
        if (!ReadFile(h, buf + used, (DWORD)(room < CALL_BYTES_MAX ? room : CALL_BYTES_MAX), &n, NULL)) {
            const DWORD e = GetLastError();
            if (e != ERROR_BROKEN_PIPE && e != ERROR_HANDLE_EOF) { /* a pipe's end comes as an error */
                code = file_fail(err, e, name, "read");
                break;
            }
            n = 0;
        }
        used += n;
        if (used > max_bytes) {
            code = mc_fail(err, MC_EFORMAT, 0, "%s: longer than the %zu bytes allowed here", name, max_bytes);
            break;
        }
        if (n == 0 && os_interrupted()) {
            code = mc_fail(err, MC_ECANCELLED, 0, "%s: reading was interrupted", name);
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
    if (strcmp(path, "-") == 0)
        return read_to_end(GetStdHandle(STD_INPUT_HANDLE), "standard input", max_bytes, data, size, err);
    struct mc_err why = {.code = MC_OK};
    const HANDLE h = open_handle(path, GENERIC_READ, OPEN_EXISTING, "open", &why);
    if (h == INVALID_HANDLE_VALUE) {
        if (err) *err = why;
        return why.code;
    }
    const enum mc_code code = read_to_end(h, path, max_bytes, data, size, err);
    CloseHandle(h);
    return code;
}

enum mc_code os_writer_create(const char *path, struct os_writer **out, struct mc_err *err)
{
    struct os_writer *w = malloc(sizeof *w);
    char *const copy = strdup(path);
    if (!w || !copy) {
        free(w);
        free(copy);
        return mc_fail(err, MC_ENOMEM, 0, "%s: no memory to write the file", path);
    }
    struct mc_err why = {.code = MC_OK};
    w->handle = open_handle(path, GENERIC_WRITE, CREATE_ALWAYS, "create", &why);
    if (w->handle == INVALID_HANDLE_VALUE) {
        free(w);
        free(copy);
        if (err) *err = why;
        return why.code;
    }
    w->is_regular = GetFileType(w->handle) == FILE_TYPE_DISK;
    w->n_used = 0;
    w->path = copy;
    *out = w;
    return MC_OK;
}

static enum mc_code write_all(struct os_writer *w, const char *p, size_t size, struct mc_err *err)
{
    while (size > 0) {
        DWORD n = 0;
        if (!WriteFile(w->handle, p, (DWORD)(size < CALL_BYTES_MAX ? size : CALL_BYTES_MAX), &n, NULL))
            return file_fail(err, GetLastError(), w->path, "write");
        p += n;
        size -= n;
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

static void writer_close(struct os_writer *w, bool remove_file)
{
    CloseHandle(w->handle);
    if (remove_file && w->is_regular) {
        wchar_t *const wide = utf16_path(w->path);
        if (wide) (void)DeleteFileW(wide);
        free(wide);
    }
    free(w->path);
    free(w);
}

enum mc_code os_writer_finish(struct os_writer *w, struct mc_err *err)
{
    const enum mc_code code = writer_flush(w, err);
    writer_close(w, code != MC_OK);
    return code;
}

void os_writer_abort(struct os_writer *w)
{
    if (w) writer_close(w, true);
}

bool os_file_exists(const char *path)
{
    wchar_t *const wide = utf16_path(path);
    const bool exists = wide && GetFileAttributesW(wide) != INVALID_FILE_ATTRIBUTES;
    free(wide);
    return exists;
}
