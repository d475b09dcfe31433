/* os_file.c - plain files on Windows: positioned reads, small files whole, one buffered writer.
 *
 * Files are opened by their UTF-16 name and shared with everybody, as on Linux. What CreateFile opens need not be on a disk
 * (CON, a named pipe); GetFileType tells, and nothing here waits for such a thing. A positioned read is ReadFile with an
 * OVERLAPPED offset on a plain handle: right from any number of threads, though the system does them one by one.
 *
 * The writer writes a file on a disk under another name beside its place and moves it there at the end, so that whatever ends
 * the process leaves an older file whole. */
#include "platform/os.h"

#include "platform/windows/os_windows.h"
#include "platform/windows/utf16.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <windows.h>

enum { WRITER_BUFFER_BYTES = 64 * 1024, READ_STEP_BYTES = 64 * 1024, CALL_BYTES_MAX = 1 << 30, PARTS_MAX = 100 };

struct os_file {
    HANDLE handle;
    uint64_t size;
    char path[]; /* NUL-terminated copy */
};

struct os_writer {
    HANDLE handle;
    size_t n_used;
    char *path;   /* as the caller named it */
    char *target; /* the same without links; NULL, like part, for devices and pipes */
    char *part;   /* what is written */
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

/* The name that the system has for an open file, links followed; NULL when memory ran out or it does not tell. */
static char *final_name(HANDLE h)
{
    const DWORD cap = GetFinalPathNameByHandleW(h, NULL, 0, FILE_NAME_NORMALIZED);
    wchar_t *const wide = cap ? malloc(((size_t)cap + 1) * sizeof *wide) : NULL;
    const DWORD n = wide ? GetFinalPathNameByHandleW(h, wide, cap + 1, FILE_NAME_NORMALIZED) : 0;
    char *const name = n > 0 && n <= cap ? utf8_from_utf16(wide) : NULL;
    free(wide);
    return name;
}

/* Opens a file of a new name beside the target. A name that is taken belongs to another process, or to one that was killed. */
static enum mc_code open_part(struct os_writer *w, struct mc_err *err)
{
    const size_t cap = strlen(w->target) + 16;
    w->part = malloc(cap);
    if (!w->part) return mc_fail(err, MC_ENOMEM, 0, "%s: no memory to write the file", w->path);
    for (int i = 1; i <= PARTS_MAX; i++) {
        if (i == 1)
            snprintf(w->part, cap, "%s.part", w->target);
        else
            snprintf(w->part, cap, "%s.%d.part", w->target, i);
        wchar_t *const wide = utf16_path(w->part);
        if (!wide) return mc_fail(err, MC_EARG, 0, "%s: cannot create: the name is not UTF-8", w->path);
        w->handle = CreateFileW(wide, GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL, CREATE_NEW,
                                FILE_ATTRIBUTE_NORMAL, NULL);
        const DWORD e = GetLastError();
        free(wide);
        if (w->handle != INVALID_HANDLE_VALUE) return MC_OK;
        if (e != ERROR_FILE_EXISTS) {
            char text[ERROR_TEXT_CAP];
            return mc_fail(err, MC_EIO, (int)e, "%s: cannot create, for it is written as %s first: %s", w->path, w->part,
                           windows_error_text(e, text));
        }
    }
    return mc_fail(err, MC_EIO, ERROR_FILE_EXISTS, "%s: cannot create: %s is there, and %d more of its kind; remove them",
                   w->path, w->part, PARTS_MAX - 1);
}

/* Decides between writing in place and writing beside, and opens. */
static enum mc_code writer_open(struct os_writer *w, struct mc_err *err)
{
    struct mc_err why = {.code = MC_OK};
    const HANDLE h = open_handle(w->path, GENERIC_WRITE, OPEN_EXISTING, "write to it", &why);
    if (h == INVALID_HANDLE_VALUE && why.os_code != ERROR_FILE_NOT_FOUND && why.os_code != ERROR_PATH_NOT_FOUND) {
        if (err) *err = why;
        return why.code;
    }
    if (h != INVALID_HANDLE_VALUE && GetFileType(h) != FILE_TYPE_DISK) {
        w->handle = h;
        return MC_OK;
    }
    if (h != INVALID_HANDLE_VALUE) {
        BY_HANDLE_FILE_INFORMATION info;
        /* for an administrator opening it may succeed all the same */
        const bool locked = GetFileInformationByHandle(h, &info) && (info.dwFileAttributes & FILE_ATTRIBUTE_READONLY);
        w->target = final_name(h);
        CloseHandle(h);
        if (locked)
            return mc_fail(err, MC_EIO, ERROR_ACCESS_DENIED, "%s: is there and cannot be replaced: it is read-only", w->path);
    }
    if (!w->target) w->target = strdup(w->path);
    if (!w->target) return mc_fail(err, MC_ENOMEM, 0, "%s: no memory to write the file", w->path);
    return open_part(w, err);
}

static void writer_free(struct os_writer *w)
{
    free(w->part);
    free(w->target);
    free(w->path);
    free(w);
}

enum mc_code os_writer_create(const char *path, struct os_writer **out, struct mc_err *err)
{
    if (!*path) return mc_fail(err, MC_EARG, 0, "the name of the file to write is empty");
    struct os_writer *w = calloc(1, sizeof *w);
    if (w) w->path = strdup(path);
    if (!w || !w->path) {
        free(w);
        return mc_fail(err, MC_ENOMEM, 0, "%s: no memory to write the file", path);
    }
    const enum mc_code code = writer_open(w, err);
    if (code)
        writer_free(w);
    else
        *out = w;
    return code;
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

/* Moves the finished part into its place, or removes it. */
static enum mc_code move_part(const struct os_writer *w, struct mc_err *err)
{
    enum mc_code code = MC_OK;
    wchar_t *const from = utf16_path(w->part), *const to = utf16_path(w->target);
    if (!from || !to) {
        code = mc_fail(err, MC_ENOMEM, 0, "%s: no memory to rename %s", w->path, w->part);
    } else if (!MoveFileExW(from, to, MOVEFILE_REPLACE_EXISTING)) {
        const DWORD e = GetLastError();
        char text[ERROR_TEXT_CAP];
        code =
            mc_fail(err, MC_EIO, (int)e, "%s: cannot put %s into its place: %s", w->path, w->part, windows_error_text(e, text));
        (void)DeleteFileW(from);
    }
    free(from);
    free(to);
    return code;
}

enum mc_code os_writer_finish(struct os_writer *w, struct mc_err *err)
{
    enum mc_code code = writer_flush(w, err);
    if (code) {
        os_writer_abort(w);
        return code;
    }
    CloseHandle(w->handle);
    if (w->part) code = move_part(w, err);
    writer_free(w);
    return code;
}

void os_writer_abort(struct os_writer *w)
{
    if (!w) return;
    CloseHandle(w->handle);
    wchar_t *const wide = w->part ? utf16_path(w->part) : NULL;
    if (wide) (void)DeleteFileW(wide);
    free(wide);
    writer_free(w);
}

/* What names a file on a disk, whatever its name; false when there is none at `path`. */
static bool file_identity(const char *path, BY_HANDLE_FILE_INFORMATION *out)
{
    const HANDLE h = open_handle(path, 0, OPEN_EXISTING, "open", NULL);
    if (h == INVALID_HANDLE_VALUE) return false;
    const bool known = GetFileType(h) == FILE_TYPE_DISK && GetFileInformationByHandle(h, out);
    CloseHandle(h);
    return known;
}

bool os_file_same(const char *a, const char *b)
{
    BY_HANDLE_FILE_INFORMATION x, y;
    return file_identity(a, &x) && file_identity(b, &y) && x.dwVolumeSerialNumber == y.dwVolumeSerialNumber &&
           x.nFileIndexHigh == y.nFileIndexHigh && x.nFileIndexLow == y.nFileIndexLow;
}

bool os_file_exists(const char *path)
{
    wchar_t *const wide = utf16_path(path);
    const bool exists = wide && GetFileAttributesW(wide) != INVALID_FILE_ATTRIBUTES;
    free(wide);
    return exists;
}
