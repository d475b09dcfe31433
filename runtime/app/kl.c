/* kl.c - see kl.h. */
#include "runtime/app/kl.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { TOP = 10 };

enum mc_code kl_create(struct kl_stats *s, uint32_t n_vocab, size_t positions, struct mc_err *err)
{
    memset(s, 0, sizeof *s);
    s->n_vocab = n_vocab;
    s->cap = positions;
    s->kl = calloc(positions, sizeof *s->kl);
    s->top10 = calloc(positions, sizeof *s->top10);
    if (s->kl && s->top10) return MC_OK;
    kl_destroy(s);
    return mc_fail(err, MC_ENOMEM, 0, "no memory for %zu positions", positions);
}

void kl_destroy(struct kl_stats *s)
{
    free(s->kl);
    free(s->top10);
    s->kl = s->top10 = NULL;
}

/* ln of the sum of exp over the vocabulary. */
static double log_sum(const float *l, uint32_t n)
{
    float max = l[0];
    for (uint32_t i = 1; i < n; i++)
        if (l[i] > max) max = l[i];
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += exp((double)l[i] - (double)max);
    return (double)max + log(sum);
}

double logits_nll(const float *logits, uint32_t n_vocab, uint32_t target)
{
    return log_sum(logits, n_vocab) - (double)logits[target];
}

/* Ids of the best tokens, best first, ties by id; returns how many (TOP, or all of a tiny vocabulary). */
static size_t best_of(const float *l, uint32_t n, uint32_t ids[TOP])
{
    size_t have = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (have == TOP && !(l[i] > l[ids[TOP - 1]])) continue;
        size_t at = have < TOP ? have++ : TOP - 1;
        for (; at > 0 && l[i] > l[ids[at - 1]]; at--) ids[at] = ids[at - 1];
        ids[at] = i;
    }
    return have;
}

static double divergence_of_best(const float *p, const float *q, const uint32_t *ids, size_t n)
{
    float pb[TOP] = {0}, qb[TOP] = {0};
    for (size_t i = 0; i < n; i++) pb[i] = p[ids[i]], qb[i] = q[ids[i]];
    const double zp = log_sum(pb, (uint32_t)n), zq = log_sum(qb, (uint32_t)n);
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        const double lp = (double)pb[i] - zp;
        sum += exp(lp) * (lp - ((double)qb[i] - zq));
    }
    return sum;
}

/* How many tokens stand before `id` in the order of l. */
static uint32_t rank_of(const float *l, uint32_t n, uint32_t id)
{
    uint32_t rank = 0;
    for (uint32_t i = 0; i < n; i++) rank += l[i] > l[id] || (i < id && l[i] >= l[id]);
    return rank;
}

void kl_add(struct kl_stats *s, const float *p, const float *q, uint32_t target)
{
    assert(s->n < s->cap);
    const double zp = log_sum(p, s->n_vocab), zq = log_sum(q, s->n_vocab);
    double kl = 0, pp = 0, qq = 0, pq = 0;
    for (uint32_t i = 0; i < s->n_vocab; i++) {
        const double lp = (double)p[i] - zp, lq = (double)q[i] - zq, ep = exp(lp), eq = exp(lq);
        if (ep > 0) kl += ep * (lp - lq);
        pp += ep * ep;
        qq += eq * eq;
        pq += ep * eq;
    }
    uint32_t ids[TOP] = {0};
    const size_t n = best_of(p, s->n_vocab, ids);
    const uint32_t rank = rank_of(q, s->n_vocab, ids[0]);
    s->kl[s->n] = kl;
    s->top10[s->n] = divergence_of_best(p, q, ids, n);
    s->cos_sum += pq / sqrt(pp * qq);
    s->top1 += rank == 0;
    s->top3 += rank < 3;
    s->nll_p_sum += zp - (double)p[target];
    s->nll_q_sum += zq - (double)q[target];
    s->n++;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Mean and 99th percentile (between neighbours by proportion) of v, which is sorted on the way. */
static void summarize(double *v, size_t n, double *mean, double *p99)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += v[i];
    *mean = sum / (double)n;
    qsort(v, n, sizeof *v, by_value);
    const double at = 0.99 * (double)(n - 1);
    const size_t low = (size_t)at, high = low + 1 < n ? low + 1 : low;
    *p99 = v[low] + (v[high] - v[low]) * (at - (double)low);
}

void kl_finish(struct kl_stats *s, struct kl_result *r)
{
    const double n = (double)s->n;
    summarize(s->kl, s->n, &r->kl_mean, &r->kl_p99);
    summarize(s->top10, s->n, &r->top10_mean, &r->top10_p99);
    r->top1_match = (double)s->top1 / n;
    r->top3_match = (double)s->top3 / n;
    r->cos_mean = s->cos_sum / n;
    r->delta_ppl = expm1((s->nll_q_sum - s->nll_p_sum) / n);
}
