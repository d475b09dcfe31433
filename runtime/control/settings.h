/* settings.h - what may change while a model runs: how many experts a layer uses and how many rows of the up projection are
 * computed. A leaf header: the maths and the people see the same struct.
 *
 * Everybody who wants a change builds a whole struct moe_settings, has it checked (settings_valid) and puts it into the box;
 * the engine copies the box once for each token step or prompt chunk and computes all of it with that copy. Lossless settings
 * are the default, and the path they take is the plain one, bit for bit. */
#ifndef RUNTIME_CONTROL_SETTINGS_H
#define RUNTIME_CONTROL_SETTINGS_H

#include "platform/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SETTINGS_STRATUM = 128 /* rows are kept out of each so many */, SETTINGS_WIRE_BYTES = 32 };
#define SETTINGS_WEIGHT_MAX 1.5f

enum moe_rescale { MOE_RESCALE_NONE, MOE_RESCALE_L2, MOE_RESCALE_L1, /* numbers of the 32-byte form */ MOE_RESCALE_RHO };
enum moe_scope { MOE_SCOPE_DECODE /* tokens that session_decode runs */, MOE_SCOPE_ALL };

/* Words of 32 bits only: settings_box copies it as such. */
struct moe_settings {
    uint32_t top_k, inner_k;        /* experts used outside and inside the band of layers */
    float min_weight;               /* an expert that weighs less is dropped (never the heaviest); 0: off */
    uint32_t band_first, band_end;  /* band_end is one past the last layer */
    uint32_t rescale;               /* enum moe_rescale */
    float rho;                      /* of MOE_RESCALE_RHO: 0 <= rho < 1 */
    uint32_t rows_exps, rows_shexp; /* rows of up kept of each 128, routed and shared experts; 0: all */
    uint32_t scope;                 /* enum moe_scope */
};

/* The model the settings are for. Hash layers are the first ones; they always run whole. */
struct settings_limits {
    uint32_t n_layer, n_hash_layer, n_used;
};

/* The keys of control.md, each with the members it stands for. */
enum settings_key {
    SETTINGS_TOP_K,
    SETTINGS_INNER_K,
    SETTINGS_MIN_WEIGHT,
    SETTINGS_BAND,
    SETTINGS_RESCALE,
    SETTINGS_ROWS_EXPS,
    SETTINGS_ROWS_SHEXP,
    SETTINGS_SCOPE,
    SETTINGS_KEYS
};
const char *settings_key_name(enum settings_key key); /* "moe_top_k", ... */
bool settings_key_equal(enum settings_key key, const struct moe_settings *a, const struct moe_settings *b);

/* What is wrong: `key` is the name of control.md (a literal), `field` its place in the 32-byte form (-1: it has none). */
struct settings_fault {
    const char *key;
    int field;
    char text[96]; /* "must be 1..6, got 9" */
};

struct moe_settings settings_lossless(const struct settings_limits *m);
/* False: *fault says which value is out of range. Rows of 128 are written as 0. */
bool settings_valid(const struct moe_settings *s, const struct settings_limits *m, struct settings_fault *fault);
/* True when some token may be computed with less than the whole model. */
bool settings_lossy(const struct moe_settings *s, const struct settings_limits *m);
bool settings_equal(const struct moe_settings *a, const struct moe_settings *b);
static inline uint32_t settings_k(const struct moe_settings *s, uint32_t il)
{
    return il >= s->band_first && il < s->band_end ? s->inner_k : s->top_k;
}

/* Sets all but the scope by the name of a profile: lossless, adaptive, top5, hybrid646, ... Bands are those of a model of 43
 * layers in proportion, k is capped by the experts the model uses. False: there is no such profile. */
bool settings_profile(const char *name, const struct settings_limits *m, struct moe_settings *s);
/* Name of profile i, in order of growing loss as published; NULL behind the last one. */
const char *settings_profile_name(size_t i);

/* The 32-byte form, eight little-endian int32: top_k, inner_k, min_weight, band first, band end, rescale, rows_exps,
 * rows_shexp. All zero stands for the defaults; a band end beyond the last layer is cut. The scope, which is not in it, is
 * taken from `scope`. False: *fault names the field. */
bool settings_from_wire(const uint8_t wire[SETTINGS_WIRE_BYTES], const struct settings_limits *m, uint32_t scope,
                        struct moe_settings *out, struct settings_fault *fault);
/* What the form cannot say becomes the nearest it can: rho becomes L2, a minimum weight below 1e-4 becomes 1e-4. */
void settings_to_wire(const struct moe_settings *s, uint8_t wire[SETTINGS_WIRE_BYTES]);

/* One line for people: "top-k 5, band 3:43, rescale l2, rows 80/80, decode only"; "lossless" when it is. Always terminated. */
void settings_describe(const struct moe_settings *s, const struct settings_limits *m, char *buf, size_t cap);

/* ---- the settings in force --------------------------------------------------------------------------------------------
 * One box for each engine. Any thread may set and get; the engine's thread begins and ends steps. A reader never waits for a
 * writer: two copies take turns, and the generation says which one is whole. */
enum settings_source { SETTINGS_START, SETTINGS_FILE, SETTINGS_SOCKET };
const char *settings_source_name(uint32_t source);

struct settings_state {
    struct moe_settings settings;
    uint32_t generation;            /* grows by 1 with every change; the first is 1 */
    uint32_t applied_generation;    /* the newest that a step has begun with; `generation` while the engine is idle */
    uint32_t source;                /* enum settings_source of the last change, */
    uint8_t sources[SETTINGS_KEYS]; /* and of the change that gave each key its value */
};

struct settings_box;
MC_MUST_CHECK enum mc_code settings_box_create(const struct settings_limits *m, struct settings_box **out, struct mc_err *err);
void settings_box_destroy(struct settings_box *b);
const struct settings_limits *settings_box_limits(const struct settings_box *b);
void settings_box_get(const struct settings_box *b, struct settings_state *out);
/* The settings were found valid. With if_generation != 0 nothing is changed and 0 returned unless it is the generation in
 * force; otherwise the new generation is returned. */
uint32_t settings_box_set(struct settings_box *b, const struct moe_settings *s, enum settings_source source,
                          uint32_t if_generation);
/* Where the up matrices of learned layers are packed, so that rows that are left out are not skipped in memory. Before anybody
 * else uses the box. */
void settings_box_up_packed(struct settings_box *b, bool exps, bool shexp);
/* What people should know about these settings: that their rows save nothing, and what would help. False: nothing. */
bool settings_box_note(const struct settings_box *b, const struct moe_settings *s, char *buf, size_t cap);

/* A step of the engine, with its copy. */
void settings_box_begin(struct settings_box *b, struct moe_settings *out);
void settings_box_end(struct settings_box *b);

#endif
