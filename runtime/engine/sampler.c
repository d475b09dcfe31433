/* sampler.c - one token id out of a row of logits. See sampler.h for the order of the steps.
 *
 *   logits --top_k--> cand[0..n) --exp((l - max) / temp)--> weights --top_p--> --min_p--> one draw
 *
 * Nothing is sorted: top_k and top_p are partial selections (quickselect by value, quickselect by mass), so a pick costs
 * O(vocabulary) whatever the settings are. The order between candidates is total (weight, then lowest id), the pivots are
 * chosen by position, and exp is our own sequence of double operations: the same seed and logits give the same id with every C
 * library. */
#include "runtime/engine/sampler.h"

#include "platform/base/bytes.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

struct candidate {
    double weight; /* the logit until the softmax, then exp((l - max) / temp) */
    int32_t id;
};

struct sampler {
    struct sampler_options opt;
    uint64_t state;
    uint32_t n_vocab;
    struct candidate cand[]; /* n_vocab of them */
};

/* xorshift64*; the state is never 0. */
static uint64_t next_random(struct sampler *s)
{
    s->state ^= s->state >> 12;
    s->state ^= s->state << 25;
    s->state ^= s->state >> 27;
    return s->state * UINT64_C(0x2545F4914F6CDD1D);
}

void sampler_reseed(struct sampler *s, uint64_t seed)
{
    /* One round of splitmix64: neighbouring seeds start far apart. */
    uint64_t z = seed + UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    z ^= z >> 31;
    s->state = z ? z : 1;
}

enum mc_code sampler_create(const struct sampler_options *opt, uint32_t n_vocab, struct sampler **out, struct mc_err *err)
{
    if (n_vocab == 0 || n_vocab > INT32_MAX)
        return mc_fail(err, MC_EARG, 0, "sampler: a vocabulary of %u tokens", (unsigned)n_vocab);
    struct sampler *s = malloc(sizeof *s + (size_t)n_vocab * sizeof s->cand[0]);
    if (!s) return mc_fail(err, MC_ENOMEM, 0, "sampler: no memory for %u candidates", (unsigned)n_vocab);
    s->opt = *opt;
    s->n_vocab = n_vocab;
    sampler_reseed(s, opt->seed);
    *out = s;
    return MC_OK;
}

void sampler_destroy(struct sampler *s)
{
    free(s);
}

/* exp(x) for x <= 0, relative error below 1e-14, 0 below -60: less than what one draw of 53 bits can hit even if the whole
 * vocabulary were down there. */
static double exp_negative(double x)
{
    if (!(x > -60)) return 0;
    const int n = (int)(x * 1.4426950408889634074 - 0.5); /* nearest, since x <= 0; floor() would be a call */
    const double r = (x - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10;
    double p = 1.0 / 6227020800.0; /* 1/13! ... 1/0! */
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    const uint64_t bits = (uint64_t)(1023 + n) << 52; /* 2^n, n in -87..0 */
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

/* The largest logit and its lowest id. */
static enum mc_code find_best(const float *logits, uint32_t n, int32_t *id, struct mc_err *err)
{
    uint32_t best = 0;
    float top = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        if (logits[i] <= top) continue; /* one comparison for nearly every token; false for NaN */
        if (isnan(logits[i]))
            return mc_fail(err, MC_EFORMAT, 0, "the logit of token %u is not a number: the model is damaged", (unsigned)i);
        top = logits[i];
        best = i;
    }
    if (isinf(top) && top < 0)
        return mc_fail(err, MC_EFORMAT, 0, "all %u logits are minus infinity: the model is damaged", (unsigned)n);
    *id = (int32_t)best;
    return MC_OK;
}

static bool before(const struct candidate *a, const struct candidate *b)
{
    return a->weight > b->weight || (a->weight >= b->weight && a->id < b->id);
}

static void swap(struct candidate *a, struct candidate *b)
{
    const struct candidate t = *a;
    *a = *b;
    *b = t;
}

/* Reorders c[0..n), n >= 2, around the median of three; returns how many stand in front of the pivot, which is at that index.
 */
static size_t partition(struct candidate *c, size_t n)
{
    const size_t mid = n / 2;
    if (before(&c[mid], &c[0])) swap(&c[mid], &c[0]);
    if (before(&c[n - 1], &c[0])) swap(&c[n - 1], &c[0]);
    if (before(&c[n - 1], &c[mid])) swap(&c[n - 1], &c[mid]);
    swap(&c[mid], &c[n - 1]);
    size_t k = 0;
    for (size_t i = 0; i + 1 < n; i++)
        if (before(&c[i], &c[n - 1])) swap(&c[i], &c[k++]);
    swap(&c[k], &c[n - 1]);
    return k;
}

/* Brings the k best of c[0..n) to the front. */
static void select_best(struct candidate *c, size_t n, size_t k)
{
    while (n > 1 && k > 0 && k < n) {
        const size_t at = partition(c, n);
        if (k <= at) {
            n = at;
        } else {
            c += at + 1;
            n -= at + 1;
            k -= at + 1;
        }
    }
}

/* Brings the shortest run of best candidates whose weights reach `mass` to the front and returns its length (>= 1). */
static size_t select_mass(struct candidate *c, size_t n, double mass)
{
    size_t kept = 0;
    while (n > 1) {
        const size_t at = partition(c, n);
        double front = 0;
        for (size_t i = 0; i < at; i++) front += c[i].weight;
        if (at > 0 && front >= mass) {
            n = at;
        } else if (front + c[at].weight >= mass || at + 1 == n) {
            return kept + at + 1;
        } else {
            mass -= front + c[at].weight;
            kept += at + 1;
            c += at + 1;
            n -= at + 1;
        }
    }
    return kept + 1;
}

/* Logits to weights; drops what can never be drawn. */
static size_t softmax(struct candidate *c, size_t n, double best, double temp)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        const double w = isinf(c[i].weight) ? 0 : exp_negative((c[i].weight - best) / temp);
        if (w > 0) c[kept++] = (struct candidate){w, c[i].id};
    }
    return kept;
}

static size_t drop_below(struct candidate *c, size_t n, double min)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (c[i].weight >= min) c[kept++] = c[i];
    return kept;
}

enum mc_code sampler_pick(struct sampler *s, const float *logits, int32_t *id, struct mc_err *err)
{
    int32_t best = 0;
    const enum mc_code code = find_best(logits, s->n_vocab, &best, err);
    if (code) return code;
    const struct sampler_options *o = &s->opt;
    if (!(o->temp > 0) || o->top_k == 1 || isinf(logits[best])) {
        *id = best;
        return MC_OK;
    }

    struct candidate *c = s->cand;
    size_t n = s->n_vocab;
    for (size_t i = 0; i < n; i++) c[i] = (struct candidate){(double)logits[i], (int32_t)i};
    if (o->top_k > 0 && (size_t)o->top_k < n) {
        select_best(c, n, (size_t)o->top_k);
        n = (size_t)o->top_k;
    }
    n = softmax(c, n, (double)logits[best], (double)o->temp); /* the best one weighs 1, so n >= 1 */
    if (o->top_p >= 0 && o->top_p < 1) {
        double total = 0;
        for (size_t i = 0; i < n; i++) total += c[i].weight;
        n = select_mass(c, n, total * (double)o->top_p);
    }
    if (o->min_p > 0 && o->min_p <= 1) n = drop_below(c, n, (double)o->min_p);

    double total = 0;
    for (size_t i = 0; i < n; i++) total += c[i].weight;
    double left = (double)(next_random(s) >> 11) * 0x1p-53 * total;
    size_t i = 0;
    while (i + 1 < n && left >= c[i].weight) left -= c[i++].weight;
    *id = c[i].id;
    return MC_OK;
}
