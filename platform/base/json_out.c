/* json_out.c - the ordered JSON writer. See json_out.h. */
#include "platform/base/json_out.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void json_out_init(struct json_out *j)
{
    memset(j, 0, sizeof *j);
}

void json_out_deinit(struct json_out *j)
{
    free(j->text);
    memset(j, 0, sizeof *j);
}

static void add(struct json_out *j, const void *bytes, size_t size)
{
    if (j->failed || size == 0) return;
    if (size > j->cap - j->size) {
        size_t cap = j->cap ? j->cap : 1024;
        while (cap - j->size < size && cap <= SIZE_MAX / 4) cap *= 2;
        char *grown = cap - j->size < size ? NULL : realloc(j->text, cap);
        if (!grown) {
            j->failed = true;
            return;
        }
        j->text = grown;
        j->cap = cap;
    }
    memcpy(j->text + j->size, bytes, size);
    j->size += size;
}

static void add_str(struct json_out *j, const char *s)
{
    add(j, s, strlen(s));
}

/* Length of the valid UTF-8 sequence at s, 0 if there is none. */
static size_t utf8_length(const uint8_t *s, size_t n)
{
    const uint8_t c = s[0];
    const size_t len = c < 0x80 ? 1 : c >= 0xC2 && c < 0xE0 ? 2 : (c & 0xF0) == 0xE0 ? 3 : c >= 0xF0 && c < 0xF5 ? 4 : 0;
    if (len == 0 || len > n) return 0;
    for (size_t i = 1; i < len; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    if ((c == 0xE0 && s[1] < 0xA0) || (c == 0xED && s[1] > 0x9F) || (c == 0xF0 && s[1] < 0x90) || (c == 0xF4 && s[1] > 0x8F))
        return 0;
    return len;
}

static void add_quoted(struct json_out *j, const uint8_t *s, size_t n)
{
    add_str(j, "\"");
    for (size_t i = 0; i < n;) {
        const size_t len = utf8_length(s + i, n - i);
        char escape[8];
        if (len == 0) {
            add_str(j, "\xEF\xBF\xBD");
        } else if (s[i] == '"' || s[i] == '\\') {
            escape[0] = '\\', escape[1] = (char)s[i];
            add(j, escape, 2);
        } else if (s[i] == '\n' || s[i] == '\t' || s[i] == '\r') {
            add_str(j, s[i] == '\n' ? "\\n" : s[i] == '\t' ? "\\t" : "\\r");
        } else if (s[i] < 0x20 || s[i] == 0x7F) {
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned)s[i]);
            add_str(j, escape);
        } else {
            add(j, s + i, len);
        }
        i += len ? len : 1;
    }
    add_str(j, "\"");
}

static void begin_value(struct json_out *j, const char *key)
{
    if (j->comma) add_str(j, ", ");
    j->comma = true;
    if (!key) return;
    add_quoted(j, (const uint8_t *)key, strlen(key));
    add_str(j, ": ");
}

void json_out_object(struct json_out *j, const char *key)
{
    begin_value(j, key);
    add_str(j, "{");
    j->comma = false;
}

void json_out_object_end(struct json_out *j)
{
    add_str(j, "}");
    j->comma = true;
}

void json_out_array(struct json_out *j, const char *key)
{
    begin_value(j, key);
    add_str(j, "[");
    j->comma = false;
}

void json_out_array_end(struct json_out *j)
{
    add_str(j, "]");
    j->comma = true;
}

void json_out_bytes(struct json_out *j, const char *key, const void *text, size_t size)
{
    begin_value(j, key);
    add_quoted(j, text, size);
}

void json_out_text(struct json_out *j, const char *key, const char *text)
{
    if (text)
        json_out_bytes(j, key, text, strlen(text));
    else
        json_out_null(j, key);
}

void json_out_int(struct json_out *j, const char *key, int64_t v)
{
    char buf[24];
    begin_value(j, key);
    snprintf(buf, sizeof buf, "%" PRId64, v);
    add_str(j, buf);
}

void json_out_uint(struct json_out *j, const char *key, uint64_t v)
{
    char buf[24];
    begin_value(j, key);
    snprintf(buf, sizeof buf, "%" PRIu64, v);
    add_str(j, buf);
}

/* With as many digits as it takes for the number to come back: as a float, or as a double. */
static void add_number(struct json_out *j, const char *key, double v, bool is_float)
{
    char buf[40];
    if (!isfinite(v)) {
        json_out_null(j, key);
        return;
    }
    begin_value(j, key);
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(buf, sizeof buf, "%.*g", digits, v);
        const double back = is_float ? (double)strtof(buf, NULL) : strtod(buf, NULL);
        if (back <= v && back >= v) break;
    }
    add_str(j, buf);
}

void json_out_num(struct json_out *j, const char *key, double v)
{
    add_number(j, key, v, false);
}

void json_out_float(struct json_out *j, const char *key, float v)
{
    add_number(j, key, (double)v, true);
}

void json_out_bool(struct json_out *j, const char *key, bool v)
{
    begin_value(j, key);
    add_str(j, v ? "true" : "false");
}

void json_out_null(struct json_out *j, const char *key)
{
    begin_value(j, key);
    add_str(j, "null");
}

void json_out_splice(struct json_out *j, const char *key, const struct json_out *value)
{
    begin_value(j, key);
    add(j, value->text, value->size);
    j->failed = j->failed || value->failed;
}
