/* settings.c - limits, the 32-byte form, profiles. See settings.h and the control page of the specification. */
#include "runtime/control/settings.h"

#include "platform/base/bytes.h"

#include <stdio.h>
#include <string.h>

enum { BAND_MAX = 1024, THOUSANDTHS_MAX = 1500 };
#define WEIGHT_BITS_MIN 1e-4f /* smallest minimum weight that is written as the bits of a float */

struct moe_settings settings_lossless(const struct settings_limits *m)
{
    return (struct moe_settings){.top_k = m->n_used,
                                 .inner_k = m->n_used,
                                 .band_first = m->n_hash_layer,
                                 .band_end = m->n_layer,
                                 .rescale = MOE_RESCALE_L2,
                                 .scope = MOE_SCOPE_DECODE};
}

static bool wrong(struct settings_fault *fault, const char *key, int field, double low, double high, double got)
{
    fault->key = key;
    fault->field = field;
    snprintf(fault->text, sizeof fault->text, "must be %g..%g, got %.10g", low, high, got);
    return false;
}

bool settings_valid(const struct moe_settings *s, const struct settings_limits *m, struct settings_fault *fault)
{
    if (s->top_k < 1 || s->top_k > m->n_used) return wrong(fault, "moe_top_k", 0, 1, m->n_used, s->top_k);
    if (s->inner_k < 1 || s->inner_k > m->n_used) return wrong(fault, "moe_inner_k", 1, 1, m->n_used, s->inner_k);
    if (!(s->min_weight >= 0 && s->min_weight <= SETTINGS_WEIGHT_MAX))
        return wrong(fault, "moe_min_weight", 2, 0, (double)SETTINGS_WEIGHT_MAX, (double)s->min_weight);
    if (s->band_first > m->n_layer) return wrong(fault, "moe_band", 3, 0, m->n_layer, s->band_first);
    if (s->band_end < s->band_first || s->band_end > m->n_layer)
        return wrong(fault, "moe_band", 4, s->band_first, m->n_layer, s->band_end);
    if (s->rescale > MOE_RESCALE_RHO) return wrong(fault, "moe_rescale", 5, 0, 2, s->rescale);
    if (s->rescale == MOE_RESCALE_RHO && !(s->rho >= 0 && s->rho < 1)) {
        fault->key = "moe_rescale";
        fault->field = -1;
        snprintf(fault->text, sizeof fault->text, "rho must be at least 0 and below 1, got %g", (double)s->rho);
        return false;
    }
    if (s->rows_exps > SETTINGS_STRATUM) return wrong(fault, "swiglu_exps", 6, 0, SETTINGS_STRATUM, s->rows_exps);
    if (s->rows_shexp > SETTINGS_STRATUM) return wrong(fault, "swiglu_shexp", 7, 0, SETTINGS_STRATUM, s->rows_shexp);
    return true;
}

static bool drops_rows(uint32_t rows)
{
    return rows > 0 && rows < SETTINGS_STRATUM;
}

bool settings_lossy(const struct moe_settings *s, const struct settings_limits *m)
{
    if (m->n_hash_layer >= m->n_layer) return false;
    for (uint32_t il = m->n_hash_layer; il < m->n_layer; il++)
        if (settings_k(s, il) < m->n_used) return true;
    return s->min_weight > 0 || drops_rows(s->rows_exps) || drops_rows(s->rows_shexp);
}

const char *settings_key_name(enum settings_key key)
{
    static const char *const names[SETTINGS_KEYS] = {"moe_top_k",   "moe_inner_k", "moe_min_weight", "moe_band",
                                                     "moe_rescale", "swiglu_exps", "swiglu_shexp",   "moe_scope"};
    return names[key];
}

const char *settings_source_name(uint32_t source)
{
    static const char *const names[] = {"start", "file", "socket"};
    return names[source < ARRAY_LEN(names) ? source : 0];
}

bool settings_key_equal(enum settings_key key, const struct moe_settings *a, const struct moe_settings *b)
{
    switch (key) {
    case SETTINGS_TOP_K:
        return a->top_k == b->top_k;
    case SETTINGS_INNER_K:
        return a->inner_k == b->inner_k;
    case SETTINGS_MIN_WEIGHT:
        return a->min_weight == b->min_weight;
    case SETTINGS_BAND:
        return a->band_first == b->band_first && a->band_end == b->band_end;
    case SETTINGS_RESCALE:
        return a->rescale == b->rescale && a->rho == b->rho;
    case SETTINGS_ROWS_EXPS:
        return a->rows_exps == b->rows_exps;
    case SETTINGS_ROWS_SHEXP:
        return a->rows_shexp == b->rows_shexp;
    case SETTINGS_SCOPE:
        return a->scope == b->scope;
    case SETTINGS_KEYS:
        break;
    }
    return true;
}

bool settings_equal(const struct moe_settings *a, const struct moe_settings *b)
{
    bool equal = true;
    for (int key = 0; key < SETTINGS_KEYS; key++) equal = equal && settings_key_equal((enum settings_key)key, a, b);
    return equal;
}

/* ---- profiles --------------------------------------------------------------------------------------------------------- */

enum { PROFILE_LAYERS = 43, PROFILE_HASH = 3 };

static const struct profile {
    const char *name;
    uint32_t k, inner_k;
    float min_weight;
    uint32_t first, end, rows_exps, rows_shexp;
} profiles[] = {
    {"lossless", 6, 6, 0, PROFILE_HASH, PROFILE_LAYERS, 0, 0},
    {"adaptive", 6, 6, 0.11f, PROFILE_HASH, PROFILE_LAYERS, 0, 0},
    {"rows96", 6, 6, 0, PROFILE_HASH, PROFILE_LAYERS, 96, 96},
    {"rows80", 6, 6, 0, PROFILE_HASH, PROFILE_LAYERS, 80, 80},
    {"rows64", 6, 6, 0, PROFILE_HASH, PROFILE_LAYERS, 64, 64},
    {"top5", 5, 5, 0, PROFILE_HASH, PROFILE_LAYERS, 0, 0},
    {"top5rows96", 5, 5, 0, PROFILE_HASH, PROFILE_LAYERS, 96, 0},
    {"top5rows80", 5, 5, 0, PROFILE_HASH, PROFILE_LAYERS, 80, 80},
    {"hybrid646", 6, 4, 0, 16, 40, 0, 0},
    {"hybrid545", 5, 4, 0, 12, 41, 0, 0},
    {"top4", 4, 4, 0, PROFILE_HASH, PROFILE_LAYERS, 0, 0},
    {"top4rows96", 4, 4, 0, PROFILE_HASH, PROFILE_LAYERS, 96, 96},
    {"top4rows64", 4, 4, 0, PROFILE_HASH, PROFILE_LAYERS, 64, 64},
};

const char *settings_profile_name(size_t i)
{
    return i < ARRAY_LEN(profiles) ? profiles[i].name : NULL;
}

static uint32_t in_proportion(uint32_t layer, const struct settings_limits *m)
{
    const uint32_t at = (2 * layer * m->n_layer + PROFILE_LAYERS) / (2 * PROFILE_LAYERS); /* rounded */
    return at < m->n_hash_layer ? m->n_hash_layer : at;
}

bool settings_profile(const char *name, const struct settings_limits *m, struct moe_settings *s)
{
    for (size_t i = 0; i < ARRAY_LEN(profiles); i++) {
        const struct profile *p = &profiles[i];
        if (strcmp(p->name, name) != 0) continue;
        const uint32_t scope = s->scope;
        *s = settings_lossless(m);
        s->scope = scope;
        s->top_k = p->k < m->n_used ? p->k : m->n_used;
        s->inner_k = p->inner_k < m->n_used ? p->inner_k : m->n_used;
        s->min_weight = p->min_weight;
        s->rows_exps = p->rows_exps;
        s->rows_shexp = p->rows_shexp;
        if (p->first == PROFILE_HASH && p->end == PROFILE_LAYERS) return true; /* all learned layers, whatever their share */
        s->band_first = in_proportion(p->first, m);
        s->band_end = in_proportion(p->end, m);
        return true;
    }
    return false;
}

/* ---- the 32-byte form ------------------------------------------------------------------------------------------------- */

/* 0, thousandths, or the bits of a float: the ranges do not meet. */
static bool weight_of_wire(int32_t v, float *out)
{
    float f;
    if (v >= 0 && v <= THOUSANDTHS_MAX) {
        *out = (float)v / 1000.0f;
        return true;
    }
    memcpy(&f, &v, sizeof f);
    if (!(f >= WEIGHT_BITS_MIN && f <= SETTINGS_WEIGHT_MAX)) return false;
    *out = f;
    return true;
}

bool settings_from_wire(const uint8_t wire[SETTINGS_WIRE_BYTES], const struct settings_limits *m, uint32_t scope,
                        struct moe_settings *out, struct settings_fault *fault)
{
    static const char *const keys[] = {"moe_top_k", "moe_inner_k", "moe_min_weight", "moe_band",
                                       "moe_band",  "moe_rescale", "swiglu_exps",    "swiglu_shexp"};
    int32_t f[8];
    bool zero = true;
    for (unsigned i = 0; i < 8; i++) {
        f[i] = (int32_t)mc_load_u32(wire + 4 * i);
        zero = zero && f[i] == 0;
    }
    struct moe_settings s = settings_lossless(m);
    s.scope = scope;
    if (zero) {
        *out = s;
        return true;
    }
    const int32_t low[] = {1, 1, 0, 0, f[3], 0, 0, 0};
    const int32_t used = (int32_t)m->n_used;
    const int32_t high[] = {used, used, 0, BAND_MAX, BAND_MAX, MOE_RESCALE_L1, SETTINGS_STRATUM, SETTINGS_STRATUM};
    for (int i = 0; i < 8; i++) {
        if (i == 2 && !weight_of_wire(f[2], &s.min_weight)) {
            fault->key = keys[2];
            fault->field = 2;
            snprintf(fault->text, sizeof fault->text, "must be 0..1500 (thousandths) or a float of 1e-4..1.5, got %d",
                     (int)f[2]);
            return false;
        }
        if (i != 2 && (f[i] < low[i] || f[i] > high[i])) return wrong(fault, keys[i], i, low[i], high[i], f[i]);
    }
    s.top_k = (uint32_t)f[0];
    s.inner_k = (uint32_t)f[1];
    s.band_first = (uint32_t)f[3] < m->n_layer ? (uint32_t)f[3] : m->n_layer;
    s.band_end = (uint32_t)f[4] < m->n_layer ? (uint32_t)f[4] : m->n_layer;
    s.rescale = (uint32_t)f[5];
    s.rows_exps = (uint32_t)f[6] % SETTINGS_STRATUM;
    s.rows_shexp = (uint32_t)f[7] % SETTINGS_STRATUM;
    *out = s;
    return true;
}

void settings_to_wire(const struct moe_settings *s, uint8_t wire[SETTINGS_WIRE_BYTES])
{
    const float w = s->min_weight > 0 && s->min_weight < WEIGHT_BITS_MIN ? WEIGHT_BITS_MIN : s->min_weight;
    uint32_t weight = (uint32_t)(w * 1000.0f + 0.5f);
    if ((float)weight / 1000.0f < w || (float)weight / 1000.0f > w) memcpy(&weight, &w, sizeof weight);
    const uint32_t rescale = s->rescale == MOE_RESCALE_RHO ? MOE_RESCALE_L2 : s->rescale;
    const uint32_t f[8] = {s->top_k, s->inner_k, weight, s->band_first, s->band_end, rescale, s->rows_exps, s->rows_shexp};
    for (unsigned i = 0; i < 32; i++) wire[i] = (uint8_t)(f[i / 4] >> 8 * (i % 4));
}

/* ---- for people ------------------------------------------------------------------------------------------------------- */

void settings_describe(const struct moe_settings *s, const struct settings_limits *m, char *buf, size_t cap)
{
    static const char *const modes[] = {"none", "l2", "l1", "rho"};
    if (!settings_lossy(s, m)) {
        snprintf(buf, cap, "lossless");
        return;
    }
    char k[48], rescale[32], weight[40] = "", rows[48] = "";
    if (s->band_first <= m->n_hash_layer && s->band_end >= m->n_layer)
        snprintf(k, sizeof k, "top-k %u", (unsigned)s->inner_k);
    else
        snprintf(k, sizeof k, "top-k %u, %u in layers %u:%u", (unsigned)s->top_k, (unsigned)s->inner_k, (unsigned)s->band_first,
                 (unsigned)s->band_end);
    if (s->rescale == MOE_RESCALE_RHO)
        snprintf(rescale, sizeof rescale, "rho=%g", (double)s->rho);
    else
        snprintf(rescale, sizeof rescale, "%s", modes[s->rescale]);
    if (s->min_weight > 0) snprintf(weight, sizeof weight, ", minimum weight %g", (double)s->min_weight);
    if (s->rows_exps || s->rows_shexp)
        snprintf(rows, sizeof rows, ", rows %u/%u of 128", (unsigned)(s->rows_exps ? s->rows_exps : SETTINGS_STRATUM),
                 (unsigned)(s->rows_shexp ? s->rows_shexp : SETTINGS_STRATUM));
    snprintf(buf, cap, "%s%s, rescale %s%s, %s", k, weight, rescale, rows,
             s->scope == MOE_SCOPE_ALL ? "prompts too" : "decoding only");
}
