/* unicode_classes.c - see unicode_classes.h */
#include "runtime/text/unicode_classes.h"

#include "platform/base/compiler.h"
#include "runtime/text/unicode_ranges.h"

enum unicode_class unicode_class_of(uint32_t cp)
{
    if (cp < 128) return (enum unicode_class)unicode_ascii[cp];
    if (cp > 0x10FFFF) return UNICODE_OTHER;
    size_t low = 0, n = ARRAY_LEN(unicode_ranges); /* the last run that begins at or before cp is in [low, low + n) */
    while (n > 1) {
        const size_t half = n / 2;
        if (unicode_ranges[low + half] >> 3 <= cp) low += half;
        n -= half;
    }
    return (enum unicode_class)(unicode_ranges[low] & 7);
}
