/* settings_json.c - see settings_json.h. */
#include "runtime/control/settings_json.h"

#include <stdio.h>
#include <string.h>

static const char *const modes[] = {"none", "l2", "l1"}, *const scopes[] = {"decode", "all"};

void settings_value_to_json(enum settings_key key, const struct moe_settings *s, struct json_out *j, const char *name)
{
    switch (key) {
    case SETTINGS_TOP_K:
        json_out_uint(j, name, s->top_k);
        break;
    case SETTINGS_INNER_K:
        json_out_uint(j, name, s->inner_k);
        break;
    case SETTINGS_MIN_WEIGHT:
        json_out_float(j, name, s->min_weight);
        break;
    case SETTINGS_BAND:
        json_out_array(j, name);
        json_out_uint(j, NULL, s->band_first);
        json_out_uint(j, NULL, s->band_end);
        json_out_array_end(j);
        break;
    case SETTINGS_RESCALE:
        if (s->rescale != MOE_RESCALE_RHO) {
            json_out_text(j, name, modes[s->rescale]);
            break;
        }
        json_out_object(j, name);
        json_out_float(j, "rho", s->rho);
        json_out_object_end(j);
        break;
    case SETTINGS_ROWS_EXPS:
        json_out_uint(j, name, s->rows_exps);
        break;
    case SETTINGS_ROWS_SHEXP:
        json_out_uint(j, name, s->rows_shexp);
        break;
    case SETTINGS_SCOPE:
        json_out_text(j, name, scopes[s->scope]);
        break;
    case SETTINGS_KEYS:
        break;
    }
}

void settings_to_json(const struct moe_settings *s, struct json_out *j, const char *name)
{
    json_out_object(j, name);
    for (int key = 0; key < SETTINGS_KEYS; key++)
        settings_value_to_json((enum settings_key)key, s, j, settings_key_name((enum settings_key)key));
    json_out_object_end(j);
}

/* ---- reading ---------------------------------------------------------------------------------------------------------- */

static bool refuse(struct settings_refusal *why, const char *code, struct mc_span key, const char *text)
{
    why->code = code;
    snprintf(why->key, sizeof why->key, "%.*s", (int)(key.size < 60 ? key.size : 60), (const char *)key.data);
    snprintf(why->text, sizeof why->text, "%s", text);
    return false;
}

static struct mc_span span_of(const char *s)
{
    return (struct mc_span){(const uint8_t *)s, strlen(s)};
}

static bool is(struct mc_span a, const char *b)
{
    return a.size == strlen(b) && !memcmp(a.data, b, a.size);
}

/* Place of a string value in a list of names; n: it is not there. */
static uint32_t place_of(const struct mc_json *v, const char *const *names, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && !(mc_json_type(v) == MC_JSON_STRING && is(mc_json_string(v), names[i]))) i++;
    return i;
}

/* An integer that fits 31 bits; its range is settings_valid's to judge. */
static bool read_uint(const struct mc_json *v, uint32_t *out)
{
    if (mc_json_type(v) != MC_JSON_INT || mc_json_int(v) < 0 || mc_json_int(v) > INT32_MAX) return false;
    *out = (uint32_t)mc_json_int(v);
    return true;
}

static bool read_float(const struct mc_json *v, float *out)
{
    if (mc_json_type(v) != MC_JSON_INT && mc_json_type(v) != MC_JSON_REAL) return false;
    *out = (float)mc_json_number(v);
    return true;
}

static bool read_rescale(const struct mc_json *v, struct moe_settings *s)
{
    if (mc_json_type(v) == MC_JSON_OBJECT) {
        s->rescale = MOE_RESCALE_RHO;
        return mc_json_count(v) == 1 && read_float(mc_json_get(v, "rho"), &s->rho);
    }
    s->rho = 0;
    return (s->rescale = place_of(v, modes, 3)) < 3;
}

/* NULL: it is of the right type, else what it must be. */
static const char *read_key(enum settings_key key, const struct mc_json *v, struct moe_settings *s)
{
    static const char integer[] = "must be an integer, not negative";
    switch (key) {
    case SETTINGS_TOP_K:
        return read_uint(v, &s->top_k) ? NULL : integer;
    case SETTINGS_INNER_K:
        return read_uint(v, &s->inner_k) ? NULL : integer;
    case SETTINGS_MIN_WEIGHT:
        return read_float(v, &s->min_weight) ? NULL : "must be a number";
    case SETTINGS_BAND:
        return mc_json_type(v) == MC_JSON_ARRAY && mc_json_count(v) == 2 && read_uint(mc_json_item(v, 0), &s->band_first) &&
                       read_uint(mc_json_item(v, 1), &s->band_end)
                   ? NULL
                   : "must be [first, end], two layer numbers";
    case SETTINGS_RESCALE:
        return read_rescale(v, s) ? NULL : "must be \"none\", \"l2\", \"l1\" or {\"rho\": r}";
    case SETTINGS_ROWS_EXPS:
        return read_uint(v, &s->rows_exps) ? NULL : integer;
    case SETTINGS_ROWS_SHEXP:
        return read_uint(v, &s->rows_shexp) ? NULL : integer;
    case SETTINGS_SCOPE:
        return (s->scope = place_of(v, scopes, 2)) < 2 ? NULL : "must be \"decode\" or \"all\"";
    case SETTINGS_KEYS:
        break;
    }
    return NULL;
}

static bool read_profile(const struct mc_json *v, const struct settings_limits *m, struct moe_settings *s)
{
    const struct mc_span name = mc_json_string(v);
    const char *known;
    for (size_t i = 0; (known = settings_profile_name(i)) != NULL; i++)
        if (mc_json_type(v) == MC_JSON_STRING && is(name, known)) return settings_profile(known, m, s);
    return false;
}

static bool is_listed(struct mc_span key, const char *const *names)
{
    for (; names && *names; names++)
        if (is(key, *names)) return true;
    return false;
}

bool settings_from_json(const struct mc_json *values, const struct settings_limits *m, const char *const *read_only,
                        struct moe_settings *s, struct settings_refusal *why)
{
    struct moe_settings next = *s;
    struct mc_span key;
    const struct mc_json *v;
    struct settings_fault fault;
    if (mc_json_type(values) != MC_JSON_OBJECT) return refuse(why, "bad_value", span_of("values"), "must be an object");
    const struct mc_json *const profile = mc_json_get(values, "profile");
    if (profile && !read_profile(profile, m, &next))
        return refuse(why, "bad_value", span_of("profile"), "must be the name of a profile: lossless, top5, top4, ...");
    for (void *it = NULL; mc_json_next(values, &it, &key, &v);) {
        int k = 0;
        if (is(key, "profile")) continue;
        while (k < SETTINGS_KEYS && !is(key, settings_key_name((enum settings_key)k))) k++;
        if (k == SETTINGS_KEYS && is_listed(key, read_only))
            return refuse(why, "read_only", key, "can only be given at the start");
        if (k == SETTINGS_KEYS) return refuse(why, "unknown_key", key, "there is no such setting");
        const char *const must = read_key((enum settings_key)k, v, &next);
        if (must) return refuse(why, "bad_value", key, must);
    }
    if (!settings_valid(&next, m, &fault)) return refuse(why, "bad_value", span_of(fault.key), fault.text);
    next.rows_exps %= SETTINGS_STRATUM;
    next.rows_shexp %= SETTINGS_STRATUM;
    *s = next;
    return true;
}

const char *settings_profile_of(const struct moe_settings *s, const struct settings_limits *m)
{
    const char *name;
    for (size_t i = 0; (name = settings_profile_name(i)) != NULL; i++) {
        struct moe_settings p = *s;
        (void)settings_profile(name, m, &p);
        if (settings_equal(&p, s) || (i == 0 && !settings_lossy(s, m))) return name;
    }
    return NULL;
}
