/* utf8.h - one code point at a time; what is invalid, and how long the invalid part is, as the WHATWG standard has it:
 * overlong forms, surrogates and values above U+10FFFF are wrong at their first impossible byte. */
#ifndef RUNTIME_TEXT_UTF8_H
#define RUNTIME_TEXT_UTF8_H

#include "runtime/text/text_buf.h"

#define UTF8_REPLACEMENT       0xFFFDu
#define UTF8_REPLACEMENT_BYTES "\xEF\xBF\xBD"

enum utf8_status { UTF8_VALID, UTF8_INVALID, UTF8_CUT };

/* Looks at the front of n >= 1 bytes. VALID: *cp and its *size. INVALID: *size is the length of the maximal invalid part.
 * CUT: all n bytes are the beginning of a code point. */
enum utf8_status utf8_read(const uint8_t *p, size_t n, uint32_t *cp, size_t *size);

/* The same where the text is known to be valid. */
static inline uint32_t utf8_read_valid(const uint8_t *p, size_t *size)
{
    if (p[0] < 0x80) {
        *size = 1;
        return p[0];
    }
    if (p[0] < 0xE0) {
        *size = 2;
        return (uint32_t)(p[0] & 0x1F) << 6 | (p[1] & 0x3F);
    }
    if (p[0] < 0xF0) {
        *size = 3;
        return (uint32_t)(p[0] & 0x0F) << 12 | (uint32_t)(p[1] & 0x3F) << 6 | (p[2] & 0x3F);
    }
    *size = 4;
    return (uint32_t)(p[0] & 0x07) << 18 | (uint32_t)(p[1] & 0x3F) << 12 | (uint32_t)(p[2] & 0x3F) << 6 | (p[3] & 0x3F);
}

bool utf8_is_valid(struct mc_span s);
/* Appends s with every maximal invalid part (a cut code point at the end included) replaced by U+FFFD. If ranges are given,
 * out[i] becomes the run of the result that holds what in[i] touched. in and out: n sorted disjoint ranges. */
void utf8_replace_invalid(struct mc_span s, struct text_buf *out, const struct text_range *ranges_in,
                          struct text_range *ranges_out, size_t n_ranges);

#endif
