/* utf8.c - see utf8.h */
#include "runtime/text/utf8.h"

enum utf8_status utf8_read(const uint8_t *p, size_t n, uint32_t *cp, size_t *size)
{
    const uint8_t b = p[0];
    *size = 1;
    *cp = b;
    if (b < 0x80) return UTF8_VALID;
    if (b < 0xC2 || b > 0xF4) return UTF8_INVALID;
    const size_t len = b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
    /* Only the second byte has a range of its own: it is where overlong forms, surrogates and too large values show. */
    uint8_t low = b == 0xE0 ? 0xA0 : b == 0xF0 ? 0x90 : 0x80;
    uint8_t high = b == 0xED ? 0x9F : b == 0xF4 ? 0x8F : 0xBF;
    uint32_t v = b & (0x7Fu >> len);
    for (size_t i = 1; i < len; i++) {
        *size = i;
        if (i == n) return UTF8_CUT;
        if (p[i] < low || p[i] > high) return UTF8_INVALID;
        v = v << 6 | (p[i] & 0x3F);
        low = 0x80;
        high = 0xBF;
    }
    *size = len;
    *cp = v;
    return UTF8_VALID;
}

bool utf8_is_valid(struct mc_span s)
{
    for (size_t i = 0, size; i < s.size; i += size) {
        uint32_t cp;
        if (utf8_read(s.data + i, s.size - i, &cp, &size) != UTF8_VALID) return false;
    }
    return true;
}

void utf8_replace_invalid(struct mc_span s, struct text_buf *out, const struct text_range *ranges_in,
                          struct text_range *ranges_out, size_t n_ranges)
{
    size_t from_idx = 0, to_idx = 0;
    for (size_t i = 0, size; i < s.size; i += size) {
        uint32_t cp;
        const size_t at = out->size;
        if (utf8_read(s.data + i, s.size - i, &cp, &size) == UTF8_VALID)
            text_buf_add(out, s.data + i, size);
        else
            text_buf_add_str(out, UTF8_REPLACEMENT_BYTES);
        for (; from_idx < n_ranges && ranges_in[from_idx].from < i + size; from_idx++) ranges_out[from_idx].from = at;
        for (; to_idx < from_idx && ranges_in[to_idx].to <= i + size; to_idx++) ranges_out[to_idx].to = out->size;
    }
    for (; from_idx < n_ranges; from_idx++) ranges_out[from_idx].from = out->size;
    for (; to_idx < n_ranges; to_idx++) ranges_out[to_idx].to = out->size;
}
