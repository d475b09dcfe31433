/* gguf_index.c - names to positions. Built once when a file is opened, then read by any thread.
 *
 * Linear probing over 32-bit slots: a key costs 8 bytes, a look-up mostly one comparison. The hash is seeded with the address
 * of the table, which a file cannot know: names made to collide elsewhere do not collide here. */
#include "io/gguf/gguf_dir.h"
#include "platform/base/hash.h"

#include <stdlib.h>

static struct mc_span name_at(const struct gguf_index *ix, size_t i)
{
    struct mc_span name;
    memcpy(&name, (const uint8_t *)ix->items + i * ix->stride, sizeof name);
    return name;
}

/* The slot that holds `name`, or the empty one where it belongs. */
static size_t slot_of(const struct gguf_index *ix, struct mc_span name)
{
    size_t at = (size_t)mc_hash64(name.data, name.size, (uintptr_t)ix->slots) & ix->mask;
    for (; ix->slots[at]; at = (at + 1) & ix->mask) {
        const struct mc_span have = name_at(ix, ix->slots[at] - 1);
        if (have.size == name.size && !memcmp(have.data, name.data, name.size)) break;
    }
    return at;
}

enum mc_code gguf_index_build(struct gguf_index *ix, const void *items, size_t stride, size_t n, size_t *dup,
                              struct mc_err *err)
{
    size_t cap = 8;
    while (cap < 2 * n) cap *= 2;
    *dup = GGUF_NONE;
    ix->slots = calloc(cap, sizeof *ix->slots);
    if (!ix->slots) return mc_fail(err, MC_ENOMEM, 0, "no memory for an index of %zu names", n);
    ix->mask = cap - 1;
    ix->items = items;
    ix->stride = stride;
    for (size_t i = 0; i < n; i++) {
        const size_t at = slot_of(ix, name_at(ix, i));
        if (ix->slots[at]) {
            *dup = i;
            return MC_OK;
        }
        ix->slots[at] = (uint32_t)i + 1;
    }
    return MC_OK;
}

void gguf_index_free(struct gguf_index *ix)
{
    free(ix->slots);
    ix->slots = NULL;
}

size_t gguf_index_find(const struct gguf_index *ix, struct mc_span name)
{
    return (size_t)ix->slots[slot_of(ix, name)] - 1; /* an empty slot: 0 - 1 is GGUF_NONE */
}
