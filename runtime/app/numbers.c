/* numbers.c - strict reading of numbers and lists. See numbers.h. */
#include "runtime/app/numbers.h"

#include "platform/os.h"

#include <errno.h>
#include <stdlib.h>

enum { LIST_BYTES_MAX = 256 << 20 };

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool number_i64(const char *text, int64_t min, int64_t max, int64_t *out)
{
    const char *const digits = text + (*text == '-' && min < 0);
    if (!is_digit(*digits)) return false;
    char *end;
    errno = 0;
    const long long v = strtoll(text, &end, 10);
    if (errno || *end || v < min || v > max) return false;
    *out = v;
    return true;
}

bool number_u64(const char *text, uint64_t *out)
{
    if (!is_digit(*text)) return false;
    char *end;
    errno = 0;
    const unsigned long long v = strtoull(text, &end, 10);
    if (errno || *end) return false;
    *out = v;
    return true;
}

bool number_f64(const char *text, double min, double max, double *out)
{
    if (!*text || text[strspn(text, "0123456789+-.eE")]) return false;
    char *end;
    const double v = strtod(text, &end); /* out of range gives infinity or something tiny: the limits decide */
    if (end == text || *end || !(v >= min && v <= max)) return false;
    *out = v;
    return true;
}

bool number_size(const char *text, uint64_t *out)
{
    static const char prefixes[] = "KMGT";
    if (!is_digit(*text)) return false;
    char *unit;
    double v = strtod(text, &unit);
    if (unit != text + strspn(text, "0123456789.")) return false; /* no exponent, no hexadecimal */
    if (*unit) {
        const char *const prefix = strchr(prefixes, *unit);
        const bool is_decimal = !strcmp(unit + 1, "B");
        if (!prefix || (unit[1] && !is_decimal && strcmp(unit + 1, "iB") != 0)) return false;
        for (const char *p = prefixes; p <= prefix; p++) v *= is_decimal ? 1000 : 1024;
    }
    if (v > 4611686018427387904.0) return false;
    *out = (uint64_t)v;
    return true;
}

static bool is_separator(uint8_t c)
{
    return c == ',' || c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* One number that ends at a separator or at the end. */
static bool read_entry(struct mc_span text, size_t *pos, int32_t min, int32_t max, int32_t *out)
{
    char digits[16];
    size_t n = 0;
    while (*pos < text.size && !is_separator(text.data[*pos])) {
        if (n + 1 == sizeof digits) return false;
        digits[n++] = (char)text.data[(*pos)++];
    }
    digits[n] = '\0';
    int64_t v;
    if (memchr(digits, '\0', n) || !number_i64(digits, min, max, &v)) return false;
    *out = (int32_t)v;
    return true;
}

enum mc_code number_list(struct mc_span text, const char *what, int32_t min, int32_t max, int32_t **out, size_t *n,
                         struct mc_err *err)
{
    while (text.size && is_separator(text.data[text.size - 1])) text.size--;
    size_t pos = 0;
    while (pos < text.size && is_separator(text.data[pos]) && text.data[pos] != ',') pos++;
    if (pos < text.size && text.data[pos] == '[') {
        if (text.data[text.size - 1] != ']') return mc_fail(err, MC_EARG, 0, "%s: '[' without ']' at the end", what);
        pos++, text.size--;
    }
    size_t count = 0, cap = 0;
    int32_t *list = NULL;
    for (bool comma = true;; comma = false) { /* a comma must follow a number; the last one may be left hanging */
        for (; pos < text.size && is_separator(text.data[pos]); pos++) {
            if (text.data[pos] == ',' && comma) {
                free(list);
                return mc_fail(err, MC_EARG, 0, "%s: entry %zu is empty", what, count + 1);
            }
            comma = comma || text.data[pos] == ',';
        }
        if (pos >= text.size) break;
        if (count == cap) {
            cap = cap ? 2 * cap : 64;
            int32_t *grown = realloc(list, cap * sizeof *list);
            if (!grown) {
                free(list);
                return mc_fail(err, MC_ENOMEM, 0, "%s: no memory for %zu numbers", what, cap);
            }
            list = grown;
        }
        const size_t start = pos;
        if (!read_entry(text, &pos, min, max, &list[count])) {
            free(list);
            const size_t shown = text.size - start < 20 ? text.size - start : 20;
            return mc_fail(err, MC_EARG, 0, "%s: entry %zu ('%.*s') is not an integer from %d to %d", what, count + 1,
                           (int)shown, (const char *)text.data + start, (int)min, (int)max);
        }
        count++;
    }
    *out = list;
    *n = count;
    return MC_OK;
}

enum mc_code number_list_arg(const char *value, const char *what, int32_t min, int32_t max, int32_t **out, size_t *n,
                             struct mc_err *err)
{
    if (value[0] != '@')
        return number_list((struct mc_span){(const uint8_t *)value, strlen(value)}, what, min, max, out, n, err);
    if (!value[1]) return mc_fail(err, MC_EARG, 0, "%s @: the name of a file must follow the @", what);
    char *text;
    size_t size;
    enum mc_code code = os_file_read_all(value + 1, LIST_BYTES_MAX, &text, &size, err);
    if (code) return code;
    code = number_list((struct mc_span){(const uint8_t *)text, size}, what, min, max, out, n, err);
    free(text);
    return code;
}
