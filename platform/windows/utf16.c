/* utf16.c - see utf16.h */
#include "platform/windows/utf16.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

enum { PLAIN_PATH_MAX = 247 }; /* MAX_PATH less the 8.3 name that a folder must have room for */

wchar_t *utf16_from_utf8(const char *text)
{
    const int n = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text, -1, NULL, 0);
    wchar_t *const wide = n > 0 ? malloc((size_t)n * sizeof *wide) : NULL;
    if (wide) MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text, -1, wide, n);
    return wide;
}

char *utf8_from_utf16(const wchar_t *text)
{
    /* Lone surrogates, which Windows allows in names, become U+FFFD: the text is then for showing only. */
    const int n = WideCharToMultiByte(CP_UTF8, 0, text, -1, NULL, 0, NULL, NULL);
    char *const narrow = n > 0 ? malloc((size_t)n) : NULL;
    if (narrow) WideCharToMultiByte(CP_UTF8, 0, text, -1, narrow, n, NULL, NULL);
    return narrow;
}

wchar_t *utf16_path(const char *path)
{
    wchar_t *const plain = utf16_from_utf8(path);
    if (!plain || wcslen(plain) <= PLAIN_PATH_MAX || wcsncmp(plain, L"\\\\?\\", 4) == 0) return plain;
    const DWORD cap = GetFullPathNameW(plain, 0, NULL, NULL); /* with the NUL; also turns / into \ */
    wchar_t *const full = cap ? malloc((cap + 8) * sizeof *full) : NULL;
    if (full) {
        wchar_t *const tail = full + 8;
        const DWORD n = GetFullPathNameW(plain, cap, tail, NULL);
        const bool is_share = n > 2 && tail[0] == L'\\' && tail[1] == L'\\'; /* \\server\share -> \\?\UNC\server\share */
        const wchar_t *const prefix = is_share ? L"\\\\?\\UNC" : L"\\\\?\\";
        const wchar_t *const rest = tail + (is_share ? 1 : 0);
        const size_t n_prefix = wcslen(prefix);
        memcpy(full, prefix, n_prefix * sizeof *full);
        memmove(full + n_prefix, rest, (wcslen(rest) + 1) * sizeof *full);
    }
    free(plain);
    return full;
}

const char *windows_error_text(unsigned long e, char buf[ERROR_TEXT_CAP])
{
    wchar_t wide[ERROR_TEXT_CAP / 2];
    DWORD n = FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, NULL, e, 0, wide,
                             (DWORD)ARRAY_LEN(wide), NULL);
    while (n > 0 && (wide[n - 1] <= L' ' || wide[n - 1] == L'.')) n--;
    const int size = n ? WideCharToMultiByte(CP_UTF8, 0, wide, (int)n, buf, ERROR_TEXT_CAP - 1, NULL, NULL) : 0;
    if (size > 0)
        buf[size] = '\0';
    else
        snprintf(buf, ERROR_TEXT_CAP, "Windows error %lu", e);
    return buf;
}
