/* settings_box.c - the settings in force; see settings.h.
 *
 *   copy[g % 2] holds generation g. A writer fills the other copy, then publishes g + 1; it touches the copy that readers of g
 *   use only with the change after that. A reader that was overtaken by two changes sees that and reads again.
 *
 * The words are atomic (relaxed) because such an overtaken reader may see a copy that is being written. */
#include "runtime/control/settings.h"

#include "platform/os.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WORDS = sizeof(struct moe_settings) / 4,
    SOURCE_BITS = 3, /* the source of the change in the lowest, above it those of the keys */
    SLOT_WORDS = WORDS + 1
};

struct settings_box {
    struct settings_limits limits;
    bool packed_exps, packed_shexp; /* const once others use the box */
    _Atomic uint32_t copy[2][SLOT_WORDS];
    /* Sequentially consistent, both: whoever changes the settings and then sees no step knows that the next step will see the
     * change. */
    _Atomic uint32_t generation, in_step;
    _Atomic uint32_t applied;
    atomic_flag writing; /* held for a few dozen instructions, never by the engine */
};

_Static_assert(sizeof(struct moe_settings) % 4 == 0, "copied as words");
_Static_assert((SETTINGS_KEYS + 1) * SOURCE_BITS <= 32, "the sources fit a word");

static uint32_t source_of(uint32_t sources, int key)
{
    return sources >> SOURCE_BITS * (key + 1) & ((1u << SOURCE_BITS) - 1);
}

static void fill(struct settings_box *b, uint32_t generation, const struct moe_settings *s, uint32_t sources)
{
    uint32_t words[SLOT_WORDS];
    memcpy(words, s, sizeof *s);
    words[WORDS] = sources;
    for (unsigned i = 0; i < SLOT_WORDS; i++)
        atomic_store_explicit(&b->copy[generation % 2][i], words[i], memory_order_relaxed);
}

/* The newest settings that are whole; returns their generation. */
static uint32_t load(const struct settings_box *b, struct moe_settings *s, uint32_t *sources)
{
    uint32_t words[SLOT_WORDS];
    for (;;) {
        const uint32_t g = atomic_load(&b->generation); /* pairs with the store in set */
        for (unsigned i = 0; i < SLOT_WORDS; i++) words[i] = atomic_load_explicit(&b->copy[g % 2][i], memory_order_relaxed);
        atomic_thread_fence(memory_order_acquire); /* pairs with the release fence in set: a newer word brings its generation */
        if (atomic_load_explicit(&b->generation, memory_order_relaxed) != g) continue;
        memcpy(s, words, sizeof *s);
        *sources = words[WORDS];
        return g;
    }
}

enum mc_code settings_box_create(const struct settings_limits *m, struct settings_box **out, struct mc_err *err)
{
    struct settings_box *b = calloc(1, sizeof *b);
    if (!b) return mc_fail(err, MC_ENOMEM, 0, "out of memory for the settings");
    b->limits = *m;
    atomic_flag_clear(&b->writing);
    const struct moe_settings s = settings_lossless(m);
    fill(b, 1, &s, SETTINGS_START);
    atomic_store(&b->generation, 1);
    atomic_store(&b->applied, 1);
    *out = b;
    return MC_OK;
}

void settings_box_destroy(struct settings_box *b)
{
    free(b);
}

const struct settings_limits *settings_box_limits(const struct settings_box *b)
{
    return &b->limits;
}

void settings_box_get(const struct settings_box *b, struct settings_state *out)
{
    uint32_t sources;
    out->generation = load(b, &out->settings, &sources);
    out->source = source_of(sources, -1);
    for (int key = 0; key < SETTINGS_KEYS; key++) out->sources[key] = (uint8_t)source_of(sources, key);
    const bool busy = atomic_load(&b->in_step) != 0;
    const uint32_t applied = atomic_load_explicit(&b->applied, memory_order_relaxed);
    out->applied_generation = busy && applied < out->generation ? applied : out->generation;
}

uint32_t settings_box_set(struct settings_box *b, const struct moe_settings *s, enum settings_source source,
                          uint32_t if_generation)
{
    while (atomic_flag_test_and_set_explicit(&b->writing, memory_order_acquire)) os_thread_yield();
    uint32_t g = atomic_load_explicit(&b->generation, memory_order_relaxed);
    if (if_generation && if_generation != g) {
        g = 0;
    } else {
        struct moe_settings old;
        uint32_t before, sources = source;
        (void)load(b, &old, &before);
        for (int key = 0; key < SETTINGS_KEYS; key++) {
            const bool same = settings_key_equal((enum settings_key)key, &old, s);
            sources |= (same ? source_of(before, key) : (uint32_t)source) << SOURCE_BITS * (key + 1);
        }
        atomic_thread_fence(memory_order_release); /* pairs with the acquire fence in load */
        fill(b, ++g, s, sources);
        atomic_store(&b->generation, g);
    }
    atomic_flag_clear_explicit(&b->writing, memory_order_release);
    return g;
}

void settings_box_up_packed(struct settings_box *b, bool exps, bool shexp)
{
    b->packed_exps = exps;
    b->packed_shexp = shexp;
}

bool settings_box_note(const struct settings_box *b, const struct moe_settings *s, char *buf, size_t cap)
{
    const bool exps = s->rows_exps % SETTINGS_STRATUM && b->packed_exps;
    const bool shexp = s->rows_shexp % SETTINGS_STRATUM && b->packed_shexp;
    if ((!exps && !shexp) || !settings_lossy(s, &b->limits)) return false;
    snprintf(buf, cap, "rows of %s are left out, but none is skipped in memory: up is packed there; started with%s%s they are",
             !shexp  ? "routed experts"
             : !exps ? "the shared expert"
                     : "experts",
             exps ? " --swiglu-exps 128" : "", shexp ? " --swiglu-shexp 128" : "");
    return true;
}

void settings_box_begin(struct settings_box *b, struct moe_settings *out)
{
    uint32_t sources;
    atomic_store(&b->in_step, 1);
    atomic_store_explicit(&b->applied, load(b, out, &sources), memory_order_release);
}

void settings_box_end(struct settings_box *b)
{
    atomic_store(&b->in_step, 0);
}
