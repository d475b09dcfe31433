/* kl.h - how far one row of logits is from another, gathered over many positions.
 *
 * p is the yardstick (saved), q is what is judged. All in nats, in double, over the whole vocabulary. */
#ifndef RUNTIME_APP_KL_H
#define RUNTIME_APP_KL_H

#include "platform/base/err.h"

#include <stddef.h>
#include <stdint.h>

struct kl_stats {
    uint32_t n_vocab;
    size_t n, cap;
    double *kl, *top10; /* one a position, for the percentiles */
    double cos_sum, nll_p_sum, nll_q_sum;
    size_t top1, top3;
};

struct kl_result {
    double kl_mean, kl_p99;
    double top10_mean, top10_p99; /* over the ten best tokens of p, both sides renormalised to these ten */
    double top1_match;            /* share of positions with the same best token */
    double top3_match;            /* best token of p among the three best of q */
    double cos_mean;              /* cosine of the two probability vectors */
    double delta_ppl;             /* exp(mean nll_q - mean nll_p) - 1 */
};

/* Room for `positions` of them. */
MC_MUST_CHECK enum mc_code kl_create(struct kl_stats *s, uint32_t n_vocab, size_t positions, struct mc_err *err);
void kl_destroy(struct kl_stats *s);
/* One position; target is the token that really followed. No more than `positions` calls. */
void kl_add(struct kl_stats *s, const float *p, const float *q, uint32_t target);
/* At least one position was added. Sorts the gathered values. */
void kl_finish(struct kl_stats *s, struct kl_result *r);

/* -ln of the probability of `target`. */
double logits_nll(const float *logits, uint32_t n_vocab, uint32_t target);

#endif
