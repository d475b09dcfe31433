/* utf16.h - between the seam's UTF-8 and the system's UTF-16, and the system's errors as words. Only for this folder. */
#ifndef PLATFORM_WINDOWS_UTF16_H
#define PLATFORM_WINDOWS_UTF16_H

#include "platform/base/err.h"

#include <wchar.h>

/* malloc'ed copies for the caller to free; NULL when memory ran out or the text is not valid in its coding. */
wchar_t *utf16_from_utf8(const char *text);
char *utf8_from_utf16(const wchar_t *text);

/* The same for a file name; one that is too long for the plain calls (260) comes as an absolute \\?\ path. */
wchar_t *utf16_path(const char *path);

/* What the system says about error number e, in buf; returns buf. */
enum { ERROR_TEXT_CAP = 200 };
const char *windows_error_text(unsigned long e, char buf[ERROR_TEXT_CAP]);

#endif
