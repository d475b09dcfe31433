/* portable.c - the small functions of kernels.h that have one version for every CPU: same bits because there is only one.
 *
 * exp and log are our own series in double: C libraries differ in the last place, and a router score that differs in one bit
 * can choose another expert. sqrt is correctly rounded everywhere. */
#include "kernels/kernels.h"

#include "kernels/f16.h"

#include <assert.h>
#include <math.h>

float kern_f16_to_f32(uint16_t h)
{
    return f16_to_f32(h);
}

uint16_t kern_f32_to_f16(float f)
{
    return f32_to_f16(f);
}

/* ---- functions in double ---- */

#define LN2_HIGH 0x1.62e42fee00000p-1 /* 21 trailing zero bits: k * LN2_HIGH is exact */
#define LN2_LOW  0x1.a39ef35793c76p-33

/* 2^k, -1022 <= k <= 1023 */
static double power_of_two(int k)
{
    const uint64_t u = (uint64_t)(k + 1023) << 52;
    double v;
    memcpy(&v, &u, 8);
    return v;
}

/* exp(x), relative error below 1e-14. Below -700 it stays at exp(-700), above 700 at exp(700): neither matters as a float. */
static double exp_series(double x)
{
    static const double c[] = {
        1.0,          1.0,           1.0 / 2,        1.0 / 6,         1.0 / 24,         1.0 / 120,        1.0 / 720,
        1.0 / 5040.0, 1.0 / 40320.0, 1.0 / 362880.0, 1.0 / 3628800.0, 1.0 / 39916800.0, 1.0 / 479001600.0};
    if (x > 700) x = 700;
    if (x < -700) x = -700;
    if (!(x == x)) return x;
    const int k = (int)(x * 0x1.71547652b82fep+0 + (x < 0 ? -0.5 : 0.5));
    const double r = (x - k * LN2_HIGH) - k * LN2_LOW; /* |r| <= 0.35: the next term is below 2e-16 */
    double sum = c[12];
    for (int n = 11; n >= 0; n--) sum = sum * r + c[n];
    return sum * power_of_two(k);
}

/* 2 * atanh(s) = log((1 + s) / (1 - s)) for |s| <= 0.172 (17 - 12 sqrt 2 and a little) */
static double log_ratio(double s)
{
    static const double c[] = {1.0, 1.0 / 3, 1.0 / 5, 1.0 / 7, 1.0 / 9, 1.0 / 11, 1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19};
    const double s2 = s * s;
    double sum = c[9];
    for (int n = 8; n >= 0; n--) sum = sum * s2 + c[n];
    return 2 * s * sum;
}

/* log(1 + x) for x >= 0, relative error below 1e-14. */
static double log1p_series(double x)
{
    if (x < 0.4) return log_ratio(x / (2 + x));
    int k = 0;
    double y = 1 + x;
    while (y > 0x1.6a09e667f3bcdp+0) y *= 0.5, k++; /* sqrt 2; at most 30 steps, as x <= exp(20) */
    return k * (LN2_HIGH + LN2_LOW) + log_ratio((y - 1) / (y + 1));
}

static double sigmoid(double x)
{
    return 1 / (1 + exp_series(-x));
}

/* ---- routing ---- */

void kern_route_scores(float *s, const float *lg, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const double x = (double)lg[i];
        s[i] = (float)sqrt(x > 20 ? x : log1p_series(exp_series(x)));
    }
}

/* Order of floats as unsigned integers; NaN lowest, -0 equal to +0. */
static uint32_t rank_of(float f)
{
    const uint32_t u = f32_bits(f + 0.0f);
    if ((u & 0x7FFFFFFF) > 0x7F800000) return 0;
    return u & 0x80000000 ? ~u : u | 0x80000000;
}

void kern_route_top(int32_t *ids, const float *s, const float *bias, size_t n, size_t k)
{
    assert(k <= n);
    uint64_t last = UINT64_MAX; /* keys are distinct: the next one is the largest below the last */
    for (size_t i = 0; i < k; i++) {
        uint64_t best = 0;
        for (size_t e = 0; e < n; e++) {
            const uint64_t key = (uint64_t)rank_of(bias ? s[e] + bias[e] : s[e]) << 32 | (uint32_t) ~(uint32_t)e;
            if (key < last && key > best) best = key;
        }
        ids[i] = (int32_t) ~(uint32_t)best;
        last = best;
    }
}

void kern_route_weights(float *wt, const float *s, const int32_t *ids, size_t k, float scale, bool normalise)
{
    float sum = 0;
    for (size_t i = 0; i < k; i++) sum += s[ids[i]];
    if (sum < 0x1p-14f) sum = 0x1p-14f;
    for (size_t i = 0; i < k; i++) wt[i] = normalise ? scale * s[ids[i]] / sum : scale * s[ids[i]];
}

/* ---- selection of rows ---- */

/* Histogram digits of a rank, from the top: 11, 11 and 10 bits. */
static const struct {
    unsigned shift, values;
} digits[3] = {{21, 2048}, {10, 2048}, {0, 1024}};

/* The digit in which the k-th largest of `rank` falls; *above is how many are larger. */
static uint32_t digit_of_kth(const uint32_t *rank, size_t n, size_t k, unsigned level, size_t *above)
{
    uint32_t count[2048] = {0};
    for (size_t i = 0; i < n; i++) count[rank[i] >> digits[level].shift & (digits[level].values - 1)]++;
    uint32_t digit = digits[level].values - 1;
    *above = 0;
    while (*above + count[digit] < k) *above += count[digit--];
    return digit;
}

/* Radix selection: the rank of the k-th largest score first, then one walk in order of the index, which also breaks the ties.
 * First half of scratch: all ranks; second half: those that still agree with the digits found. */
void kern_top_rows(uint32_t *idx, const float *score, size_t n, size_t k, uint64_t *scratch)
{
    uint32_t *rank = (uint32_t *)scratch, *left = rank + n;
    assert(k <= n && n <= UINT32_MAX);
    if (k == 0) return;
    for (size_t i = 0; i < n; i++) left[i] = rank[i] = rank_of(score[i]);

    uint32_t threshold = 0;
    size_t n_left = n, want = k; /* the threshold is the want-th largest of those left */
    for (unsigned level = 0; level < 3; level++) {
        size_t above, kept = 0;
        const uint32_t digit = digit_of_kth(left, n_left, want, level, &above);
        threshold |= digit << digits[level].shift;
        want -= above;
        for (size_t i = 0; i < n_left; i++)
            if ((left[i] >> digits[level].shift & (digits[level].values - 1)) == digit) left[kept++] = left[i];
        n_left = kept;
    }
    size_t out = 0;
    for (size_t i = 0; i < n && out < k; i++) {
        if (rank[i] < threshold) continue;
        if (rank[i] == threshold) {
            if (want == 0) continue;
            want--;
        }
        idx[out++] = (uint32_t)i;
    }
}

/* ---- hyper-connections ---- */

static void row_softmax(double c[8], size_t hc, double eps)
{
    double max = c[0], sum = 0;
    for (size_t k = 1; k < hc; k++) max = c[k] > max ? c[k] : max;
    for (size_t k = 0; k < hc; k++) sum += c[k] = exp_series(c[k] - max);
    for (size_t k = 0; k < hc; k++) c[k] = c[k] / sum + eps;
}

static void divide_rows(double c[8][8], size_t hc, double eps)
{
    for (size_t j = 0; j < hc; j++) {
        double sum = eps;
        for (size_t k = 0; k < hc; k++) sum += c[j][k];
        for (size_t k = 0; k < hc; k++) c[j][k] /= sum;
    }
}

static void divide_columns(double c[8][8], size_t hc, double eps)
{
    for (size_t k = 0; k < hc; k++) {
        double sum = eps;
        for (size_t j = 0; j < hc; j++) sum += c[j][k];
        for (size_t j = 0; j < hc; j++) c[j][k] /= sum;
    }
}

void kern_hyper_mix(float *pre, float *post, float *comb, const float *m, const float *scale, const float *base, size_t hc,
                    unsigned iters, float eps)
{
    double c[8][8];
    assert(hc >= 1 && hc <= 8);
    for (size_t h = 0; h < hc; h++) {
        pre[h] = (float)(sigmoid((double)m[h] * (double)scale[0] + (double)base[h]) + (double)eps);
        post[h] = (float)(2 * sigmoid((double)m[hc + h] * (double)scale[1] + (double)base[hc + h]));
    }
    for (size_t j = 0; j < hc; j++) {
        for (size_t k = 0; k < hc; k++) {
            const size_t i = 2 * hc + j * hc + k;
            c[j][k] = (double)m[i] * (double)scale[2] + (double)base[i];
        }
        row_softmax(c[j], hc, (double)eps);
    }
    divide_columns(c, hc, (double)eps);
    for (unsigned i = 1; i < iters; i++) {
        divide_rows(c, hc, (double)eps);
        divide_columns(c, hc, (double)eps);
    }
    for (size_t i = 0; i < hc * hc; i++) comb[i] = (float)c[i / hc][i % hc];
}

void kern_hyper_head(float *w, const float *m, const float *scale, const float *base, size_t hc, float eps)
{
    for (size_t h = 0; h < hc; h++) w[h] = (float)(sigmoid((double)m[h] * (double)scale[0] + (double)base[h]) + (double)eps);
}

void kern_norm_scale(float *y, const float *x, const float *w, size_t n, float r)
{
    for (size_t i = 0; i < n; i++) y[i] = x[i] * r * w[i];
}
