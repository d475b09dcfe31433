/* rope_table.c - see rope_table.h */
#include "runtime/model/rope_table.h"

#include <math.h>

/* The pair index at which a frequency turns `beta` times within the original context. */
static double yarn_dim(const struct model_shape *s, double beta)
{
    const double two_pi = 6.283185307179586476925286766559;
    return s->d_rope * log(s->yarn_ctx / (beta * two_pi)) / (2 * log(s->rope_base_compressed));
}

void rope_table_init(struct rope_table *t, const struct model_shape *s)
{
    const double n = s->d_rope;
    const double low = fmax(0.0, floor(yarn_dim(s, s->yarn_beta_fast)));
    const double high = fmin(n - 1, ceil(yarn_dim(s, s->yarn_beta_slow)));
    t->n_pairs = s->d_rope / 2;
    for (uint32_t i = 0; i < t->n_pairs; i++) {
        t->freq[ROPE_PLAIN][i] = pow(s->rope_base, -2.0 * i / n);
        const double f = pow(s->rope_base_compressed, -2.0 * i / n);
        const double keep = 1 - fmin(1.0, fmax(0.0, (i - low) / fmax(0.001, high - low)));
        t->freq[ROPE_COMPRESSED][i] = s->yarn_factor == 1 ? f : f * keep + f / s->yarn_factor * (1 - keep);
    }
}

void rope_angles(const struct rope_table *t, enum rope_kind kind, uint32_t position, float *c, float *s)
{
    for (uint32_t i = 0; i < t->n_pairs; i++) {
        const double angle = position * t->freq[kind][i];
        c[i] = (float)cos(angle);
        s[i] = (float)sin(angle);
    }
}
