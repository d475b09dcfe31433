/* sampler.h - logits in, one id out. The same seed and logits give the same ids on every machine.
 *
 * Order: temperature <= 0 or top_k == 1 is greedy (lowest id among equals). Else: top_k (0 = off), softmax at the temperature,
 * top_p, min_p, then one draw from a 64-bit generator of our own. */
#ifndef RUNTIME_ENGINE_SAMPLER_H
#define RUNTIME_ENGINE_SAMPLER_H

#include "platform/base/err.h"

#include <stdint.h>

struct sampler_options {
    float temp;    /* 0 (or NaN, or negative): greedy; very large: uniform over what top_k/top_p leave */
    int32_t top_k; /* <= 0: off */
    float top_p;   /* outside (0, 1) or NaN: off; 0: only the best */
    float min_p;   /* share of the best token's probability; outside (0, 1] or NaN: off */
    uint64_t seed;
};

struct sampler;
MC_MUST_CHECK enum mc_code sampler_create(const struct sampler_options *opt, uint32_t n_vocab, struct sampler **out,
                                          struct mc_err *err);
void sampler_destroy(struct sampler *s);
/* No allocation. NaN among the logits: MC_EFORMAT naming the id; all -inf: MC_EFORMAT; +inf counts as the certain choice. */
MC_MUST_CHECK enum mc_code sampler_pick(struct sampler *s, const float *logits, int32_t *id, struct mc_err *err);
/* Restarts the random sequence with this seed. */
void sampler_reseed(struct sampler *s, uint64_t seed);

#endif
