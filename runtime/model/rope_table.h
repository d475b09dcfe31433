/* rope_table.h - cosines and sines of positions (architecture.md 4.2): double angles, rounded to float once.
 *
 * Two kinds: plain layers (ratio 0: their base, no YaRN) and compressed layers (their own base with YaRN; no magnitude factor).
 */
#ifndef RUNTIME_MODEL_ROPE_TABLE_H
#define RUNTIME_MODEL_ROPE_TABLE_H

#include "runtime/model/shape.h"

enum { ROPE_PAIRS_MAX = 2048 };

enum rope_kind { ROPE_PLAIN, ROPE_COMPRESSED, ROPE_KINDS };

struct rope_table {
    uint32_t n_pairs;
    double freq[ROPE_KINDS][ROPE_PAIRS_MAX];
};

void rope_table_init(struct rope_table *t, const struct model_shape *s);
/* c, s: n_pairs floats each. */
void rope_angles(const struct rope_table *t, enum rope_kind kind, uint32_t position, float *c, float *s);

#endif
