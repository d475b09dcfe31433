/* gguf_value.c - typed reads of metadata. Writers disagree about the width of integers, so any integer type is accepted
 * where the value fits; floats and integers are not mixed. */
#include "io/gguf/gguf_dir.h"

#include <inttypes.h>

static const char *const type_names[GGUF_TYPE_COUNT] = {
    [GGUF_U8] = "u8",   [GGUF_I8] = "i8",   [GGUF_U16] = "u16",   [GGUF_I16] = "i16",       [GGUF_U32] = "u32",
    [GGUF_I32] = "i32", [GGUF_F32] = "f32", [GGUF_BOOL] = "bool", [GGUF_STRING] = "string", [GGUF_ARRAY] = "array",
    [GGUF_U64] = "u64", [GGUF_I64] = "i64", [GGUF_F64] = "f64",
};

const char *gguf_type_name(enum gguf_type t)
{
    return (unsigned)t < GGUF_TYPE_COUNT ? type_names[t] : "unknown";
}

/* An integer as sign and magnitude: the one form that holds both u64 and i64. */
struct integer {
    bool negative;
    uint64_t magnitude;
};

static struct integer of_signed(int64_t v)
{
    return (struct integer){v < 0, v < 0 ? 0 - (uint64_t)v : (uint64_t)v};
}

/* Element i of a value whose elements have type v->item_type; false: not an integer type. */
static bool integer_at(const struct gguf_value *v, uint64_t i, struct integer *out)
{
    const uint8_t *p = v->data.data;
    switch (v->item_type) {
    case GGUF_U8:
        *out = (struct integer){false, p[i]};
        return true;
    case GGUF_U16:
        *out = (struct integer){false, mc_load_u16(p + 2 * i)};
        return true;
    case GGUF_U32:
        *out = (struct integer){false, mc_load_u32(p + 4 * i)};
        return true;
    case GGUF_U64:
        *out = (struct integer){false, mc_load_u64(p + 8 * i)};
        return true;
    case GGUF_I8:
        *out = of_signed((int8_t)p[i]);
        return true;
    case GGUF_I16:
        *out = of_signed((int16_t)mc_load_u16(p + 2 * i));
        return true;
    case GGUF_I32:
        *out = of_signed((int32_t)mc_load_u32(p + 4 * i));
        return true;
    case GGUF_I64:
        *out = of_signed((int64_t)mc_load_u64(p + 8 * i));
        return true;
    default:
        return false;
    }
}

static bool float_at(const struct gguf_value *v, uint64_t i, double *out)
{
    switch (v->item_type) {
    case GGUF_F32:
        *out = (double)mc_load_f32(v->data.data + 4 * i);
        return true;
    case GGUF_F64:
        *out = mc_load_f64(v->data.data + 8 * i);
        return true;
    default:
        return false;
    }
}

bool gguf_value_u64(const struct gguf_value *v, uint64_t *out)
{
    struct integer n;
    if (v->type == GGUF_ARRAY || !integer_at(v, 0, &n) || n.negative) return false;
    *out = n.magnitude;
    return true;
}

static enum mc_code fail_missing(const struct gguf *g, const char *key, struct mc_err *err)
{
    return mc_fail(err, MC_EFORMAT, 0, "%s: key '%s' is missing from the metadata", gguf_path_tail(g->parts[0].dir.path), key);
}

static enum mc_code fail_type(const struct gguf *g, const struct gguf_value *v, const char *want, struct mc_err *err)
{
    const bool array = v->type == GGUF_ARRAY;
    return mc_fail(err, MC_EFORMAT, 0, "%s: key '%.*s' is %s%s, expected %s", gguf_path_tail(g->parts[0].dir.path),
                   gguf_shown(v->key), gguf_text(v->key), array ? "an array of " : "of type ", gguf_type_name(v->item_type),
                   want);
}

enum mc_code gguf_get_u64_or(const struct gguf *g, const char *key, uint64_t dflt, uint64_t *out, struct mc_err *err)
{
    const struct gguf_value *v = gguf_find(g, key);
    struct integer n = {false, dflt};
    if (v && (v->type == GGUF_ARRAY || !integer_at(v, 0, &n))) return fail_type(g, v, "an integer", err);
    if (n.negative)
        return mc_fail(err, MC_EFORMAT, 0, "%s: key '%s' is -%" PRIu64 ", expected 0 or more",
                       gguf_path_tail(g->parts[0].dir.path), key, n.magnitude);
    *out = n.magnitude;
    return MC_OK;
}

enum mc_code gguf_get_u64(const struct gguf *g, const char *key, uint64_t *out, struct mc_err *err)
{
    return gguf_find(g, key) ? gguf_get_u64_or(g, key, 0, out, err) : fail_missing(g, key, err);
}

enum mc_code gguf_get_f64_or(const struct gguf *g, const char *key, double dflt, double *out, struct mc_err *err)
{
    const struct gguf_value *v = gguf_find(g, key);
    double x = dflt;
    if (v && (v->type == GGUF_ARRAY || !float_at(v, 0, &x))) return fail_type(g, v, "f32 or f64", err);
    *out = x;
    return MC_OK;
}

enum mc_code gguf_get_f64(const struct gguf *g, const char *key, double *out, struct mc_err *err)
{
    return gguf_find(g, key) ? gguf_get_f64_or(g, key, 0, out, err) : fail_missing(g, key, err);
}

enum mc_code gguf_get_bool_or(const struct gguf *g, const char *key, bool dflt, bool *out, struct mc_err *err)
{
    const struct gguf_value *v = gguf_find(g, key);
    if (v && v->type != GGUF_BOOL) return fail_type(g, v, "bool", err);
    *out = v ? v->data.data[0] != 0 : dflt;
    return MC_OK;
}

enum mc_code gguf_get_string(const struct gguf *g, const char *key, struct mc_span *out, struct mc_err *err)
{
    const struct gguf_value *v = gguf_find(g, key);
    if (!v) return fail_missing(g, key, err);
    if (v->type != GGUF_STRING) return fail_type(g, v, "string", err);
    *out = v->data;
    return MC_OK;
}

enum mc_code gguf_item_i64(const struct gguf *g, const struct gguf_value *v, uint64_t i, int64_t *out, struct mc_err *err)
{
    struct integer n;
    if (!integer_at(v, i, &n)) return fail_type(g, v, "integers", err);
    if (n.magnitude > (uint64_t)INT64_MAX + (n.negative ? 1 : 0))
        return mc_fail(err, MC_EFORMAT, 0, "%s: key '%.*s': element %" PRIu64 " is %" PRIu64 ", expected at most %" PRId64,
                       gguf_path_tail(g->parts[0].dir.path), gguf_shown(v->key), gguf_text(v->key), i, n.magnitude, INT64_MAX);
    *out = (int64_t)(n.negative ? 0 - n.magnitude : n.magnitude);
    return MC_OK;
}

enum mc_code gguf_item_f64(const struct gguf *g, const struct gguf_value *v, uint64_t i, double *out, struct mc_err *err)
{
    return float_at(v, i, out) ? MC_OK : fail_type(g, v, "f32 or f64", err);
}

bool gguf_next_string(const struct gguf_value *v, size_t *pos, struct mc_span *out)
{
    if (v->type != GGUF_ARRAY || v->item_type != GGUF_STRING || *pos >= v->data.size) return false;
    const uint8_t *p = v->data.data + *pos;
    *out = (struct mc_span){p + 8, (size_t)mc_load_u64(p)};
    *pos += 8 + out->size;
    return true;
}
