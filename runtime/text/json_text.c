/* json_text.c - see json_text.h */
#include "runtime/text/json_text.h"

#include "platform/base/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

void json_text_escape(struct text_buf *out, struct mc_span s)
{
    static const char short_name[32] = {['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't'};
    size_t done = 0;
    for (size_t i = 0; i < s.size; i++) {
        const uint8_t c = s.data[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        text_buf_add(out, s.data + done, i - done);
        done = i + 1;
        char escape[8];
        if (c >= 0x20 || short_name[c])
            snprintf(escape, sizeof escape, "\\%c", c >= 0x20 ? c : short_name[c]);
        else
            snprintf(escape, sizeof escape, "\\u%04x", c);
        text_buf_add_str(out, escape);
    }
    if (done < s.size) text_buf_add(out, s.data + done, s.size - done);
}

void json_text_string(struct text_buf *out, struct mc_span s)
{
    text_buf_add_char(out, '"');
    json_text_escape(out, s);
    text_buf_add_char(out, '"');
}

/* Python's repr: the shortest digits; plain from 1e-4 up to below 1e16, else with an exponent of at least two digits. */
static void add_real(struct text_buf *out, double v)
{
    char e[40]; /* [-]d.ddde[+-]xx */
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(e, sizeof e, "%.*e", digits - 1, v);
        if (strtod(e, NULL) == v) break;
    }
    char *p = e;
    if (*p == '-') text_buf_add_char(out, *p++);
    char digits[20] = "";
    int n = 0;
    for (; *p && *p != 'e'; p++)
        if (*p != '.') digits[n++] = *p;
    const long exponent = *p ? strtol(p + 1, NULL, 10) : 0;
    if (exponent < -4 || exponent >= 16) {
        text_buf_add_char(out, digits[0]);
        if (n > 1) text_buf_add_char(out, '.');
        text_buf_add(out, digits + 1, (size_t)(n - 1));
        char tail[32];
        snprintf(tail, sizeof tail, "e%c%02ld", exponent < 0 ? '-' : '+', labs(exponent));
        text_buf_add_str(out, tail);
        return;
    }
    for (long at = exponent < 0 ? exponent : 0; at < n || at <= exponent + 1; at++) { /* at: place of a digit, 0 = the first */
        if (at == exponent + 1) text_buf_add_char(out, '.');
        text_buf_add_char(out, at >= 0 && at < n ? digits[at] : '0');
    }
}

static void add_members(struct text_buf *out, const struct mc_json *v)
{
    void *it = NULL;
    struct mc_span key;
    const struct mc_json *value;
    for (bool first = true; mc_json_next(v, &it, &key, &value); first = false) {
        if (!first) text_buf_add_str(out, ", ");
        json_text_string(out, key);
        text_buf_add_str(out, ": ");
        json_text_value(out, value);
    }
}

void json_text_value(struct text_buf *out, const struct mc_json *v)
{
    char number[24];
    switch (mc_json_type(v)) {
    case MC_JSON_NULL:
        text_buf_add_str(out, "null");
        break;
    case MC_JSON_BOOL:
        text_buf_add_str(out, mc_json_bool(v) ? "true" : "false");
        break;
    case MC_JSON_INT:
        snprintf(number, sizeof number, "%" PRId64, mc_json_int(v));
        text_buf_add_str(out, number);
        break;
    case MC_JSON_REAL:
        add_real(out, mc_json_number(v));
        break;
    case MC_JSON_STRING:
        json_text_string(out, mc_json_string(v));
        break;
    case MC_JSON_ARRAY:
        text_buf_add_char(out, '[');
        for (size_t i = 0; i < mc_json_count(v); i++) {
            if (i > 0) text_buf_add_str(out, ", ");
            json_text_value(out, mc_json_item(v, i));
        }
        text_buf_add_char(out, ']');
        break;
    case MC_JSON_OBJECT:
        text_buf_add_char(out, '{');
        add_members(out, v);
        text_buf_add_char(out, '}');
        break;
    }
}
