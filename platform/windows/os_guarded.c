/* os_guarded.c - a small file that other programs of the same user write, on Windows: see os.h.
 *
 * A reparse point is opened as itself, and the owner is asked of the handle. TEMP is the user's own folder as a rule, so rights
 * of others are the folder's business. */
#include "platform/os.h"

#include "platform/windows/utf16.h"

#include <stdio.h>
#include <stdlib.h>
#include <windows.h>

enum { BYTES_MAX = 4096, SID_CAP = 256 };

static void identify(const BY_HANDLE_FILE_INFORMATION *f, struct os_file_id *id)
{
    if (id)
        *id = (struct os_file_id){f->dwVolumeSerialNumber, (uint64_t)f->nFileIndexHigh << 32 | f->nFileIndexLow,
                                  ((uint64_t)f->ftLastWriteTime.dwHighDateTime << 32 | f->ftLastWriteTime.dwLowDateTime) * 100};
}

/* Is the owner of h this process's user, or the group that owns what its user makes (administrators)? */
static bool owned_by_us(HANDLE h)
{
    union {
        SECURITY_DESCRIPTOR d;
        uint8_t bytes[sizeof(SECURITY_DESCRIPTOR) + 4 * SID_CAP];
    } security;
    union {
        TOKEN_USER user;
        TOKEN_OWNER owner;
        uint8_t bytes[sizeof(TOKEN_USER) + SID_CAP];
    } us;
    PSID owner = NULL;
    BOOL by_default;
    DWORD n;
    HANDLE token;
    if (!GetKernelObjectSecurity(h, OWNER_SECURITY_INFORMATION, &security.d, sizeof security, &n) ||
        !GetSecurityDescriptorOwner(&security.d, &owner, &by_default) || !owner ||
        !OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &token))
        return false;
    bool same = GetTokenInformation(token, TokenUser, &us, sizeof us, &n) && EqualSid(owner, us.user.User.Sid);
    if (!same) same = GetTokenInformation(token, TokenOwner, &us, sizeof us, &n) && EqualSid(owner, us.owner.Owner);
    CloseHandle(token);
    return same;
}

static enum os_guard judge(HANDLE h, size_t size, BY_HANDLE_FILE_INFORMATION *f)
{
    if (GetFileType(h) != FILE_TYPE_DISK) return OS_GUARD_KIND;
    if (!GetFileInformationByHandle(h, f)) return OS_GUARD_FAILED;
    if (f->dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT) return OS_GUARD_LINK;
    if (f->dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) return OS_GUARD_KIND;
    if (!owned_by_us(h)) return OS_GUARD_OWNER;
    if (f->nNumberOfLinks != 1) return OS_GUARD_NAMES;
    if (f->nFileSizeHigh || f->nFileSizeLow > BYTES_MAX) return OS_GUARD_LONG;
    return f->nFileSizeLow < size ? OS_GUARD_SHORT : OS_GUARD_OK;
}

static enum os_guard open_guarded(const char *path, DWORD access, DWORD disposition, HANDLE *h)
{
    wchar_t *const wide = utf16_path(path);
    if (!wide) return OS_GUARD_FAILED;
    /* BACKUP_SEMANTICS opens a folder too, so that it is judged as one. */
    *h = CreateFileW(wide, access, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL, disposition,
                     FILE_FLAG_OPEN_REPARSE_POINT | FILE_FLAG_BACKUP_SEMANTICS, NULL);
    const DWORD e = GetLastError();
    free(wide);
    if (*h != INVALID_HANDLE_VALUE) return OS_GUARD_OK;
    switch (e) {
    case ERROR_FILE_NOT_FOUND:
    case ERROR_PATH_NOT_FOUND:
        return OS_GUARD_MISSING;
    case ERROR_FILE_EXISTS:
    case ERROR_ALREADY_EXISTS:
        return OS_GUARD_TAKEN;
    case ERROR_ACCESS_DENIED:
        return OS_GUARD_OWNER;
    default:
        return OS_GUARD_FAILED;
    }
}

enum os_guard os_guarded_read(const char *path, void *dst, size_t size, struct os_file_id *id)
{
    HANDLE h;
    BY_HANDLE_FILE_INFORMATION f;
    DWORD n = 0;
    enum os_guard g = open_guarded(path, GENERIC_READ, OPEN_EXISTING, &h);
    if (g) return g;
    g = judge(h, size, &f);
    if (g == OS_GUARD_OK || g == OS_GUARD_SHORT) identify(&f, id);
    if (g == OS_GUARD_OK && !ReadFile(h, dst, (DWORD)size, &n, NULL))
        g = OS_GUARD_FAILED;
    else if (g == OS_GUARD_OK && n != size)
        g = OS_GUARD_SHORT;
    CloseHandle(h);
    return g;
}

static enum os_guard write_first(HANDLE h, const void *data, size_t size)
{
    DWORD n = 0;
    return WriteFile(h, data, (DWORD)size, &n, NULL) && n == size ? OS_GUARD_OK : OS_GUARD_FAILED;
}

enum os_guard os_guarded_create(const char *path, const void *data, size_t size, struct os_file_id *id)
{
    HANDLE h;
    BY_HANDLE_FILE_INFORMATION f;
    enum os_guard g = open_guarded(path, GENERIC_WRITE, CREATE_NEW, &h);
    if (g) return g;
    g = write_first(h, data, size);
    if (!g && !GetFileInformationByHandle(h, &f)) g = OS_GUARD_FAILED;
    if (!g) identify(&f, id);
    CloseHandle(h);
    return g;
}

enum os_guard os_guarded_overwrite(const char *path, const void *data, size_t size)
{
    HANDLE h;
    BY_HANDLE_FILE_INFORMATION f;
    enum os_guard g = open_guarded(path, GENERIC_READ | GENERIC_WRITE, OPEN_EXISTING, &h);
    if (g) return g;
    g = judge(h, 0, &f);
    if (!g) g = write_first(h, data, size);
    CloseHandle(h);
    return g;
}

void os_guarded_remove(const char *path, const struct os_file_id *id)
{
    HANDLE h;
    BY_HANDLE_FILE_INFORMATION f;
    if (open_guarded(path, GENERIC_READ, OPEN_EXISTING, &h)) return;
    struct os_file_id now = {0};
    if (GetFileInformationByHandle(h, &f)) identify(&f, &now);
    CloseHandle(h);
    wchar_t *const wide = now.device == id->device && now.file == id->file ? utf16_path(path) : NULL;
    if (wide) (void)DeleteFileW(wide);
    free(wide);
}

bool os_temp_path(const char *name, char *buf, size_t cap)
{
    wchar_t folder[MAX_PATH + 2];
    const DWORD got = GetTempPathW(MAX_PATH + 1, folder); /* ends with a backslash */
    if (got == 0 || got > MAX_PATH) return false;
    char *const utf8 = utf8_from_utf16(folder);
    if (!utf8) return false;
    const int n = snprintf(buf, cap, "%s%s", utf8, name);
    free(utf8);
    return n > 0 && (size_t)n < cap;
}
