/* keep.c - which experts of a token and which rows of an expert stay when less than the whole model is computed. One version
 * for every CPU, as portable.c; the loops over a stratum are written so that compilers vectorise them. */
#include "kernels/kernels.h"

#include "kernels/f16.h"

#include <assert.h>
#include <math.h>

size_t kern_route_keep(int32_t *ids, float *wt, size_t n, size_t k, float min_weight, float a, float b)
{
    assert(n >= 1 && n <= 64 && k >= 1);
    double all1 = 0, all2 = 0, kept1 = 0, kept2 = 0;
    uint64_t stay = 0;
    for (size_t i = 0; i < n; i++) {
        size_t before = 0; /* experts that are preferred to i */
        for (size_t j = 0; j < n; j++) before += wt[j] > wt[i] || (j < i && wt[j] >= wt[i]);
        if (before < k && (before == 0 || !(wt[i] < min_weight))) stay |= UINT64_C(1) << i;
    }
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        const double w = (double)wt[i];
        all1 += w;
        all2 += w * w;
        if (!(stay >> i & 1)) continue;
        kept1 += w;
        kept2 += w * w;
        ids[kept] = ids[i];
        wt[kept++] = wt[i];
    }
    if (kept == n) return n;
    const double below = (double)a * kept2 + (double)b * (kept1 * kept1);
    const float factor = below > 0 ? (float)sqrt(((double)a * all2 + (double)b * (all1 * all1)) / below) : 1.0f;
    for (size_t i = 0; i < kept; i++) wt[i] *= factor;
    for (size_t i = kept; i < n; i++) ids[i] = -1, wt[i] = 0;
    return kept;
}

/* The largest t with at least m keys >= t, found from its highest bit down. Keys are below 2^31. */
static int32_t threshold_of(const int32_t key[KERN_STRATUM], size_t n, size_t m)
{
    int32_t t = 0;
    for (int bit = 30; bit >= 0; bit--) {
        const int32_t next = t | (int32_t)(1u << bit);
        int32_t count = 0;
        for (size_t i = 0; i < n; i++) count += key[i] >= next;
        if ((size_t)count >= m) t = next;
        if ((size_t)count == m) break; /* these are the rows; the lower bits would not change them */
    }
    return t;
}

static double sum_of_8(const double part[8])
{
    double s[4];
    for (int i = 0; i < 4; i++) s[i] = part[i] + part[i + 4];
    return (s[0] + s[2]) + (s[1] + s[3]);
}

void kern_keep_rows(struct kern_kept *out, const float *s, size_t n, size_t m)
{
    int32_t key[KERN_STRATUM] = {0};
    float square[KERN_STRATUM] = {0}, kept[KERN_STRATUM] = {0};
    assert(m >= 1 && m <= n && n <= KERN_STRATUM);
    for (size_t i = 0; i < n; i++) square[i] = s[i] * s[i];
    for (size_t i = 0; i < n; i++)
        key[i] = (int32_t)(f32_bits(square[i]) & 0x7FFFFFFF); /* order of floats that are not negative */
    const int32_t t = threshold_of(key, n, m);
    uint64_t above[2] = {0}, equal[2] = {0}; /* without branches: half of them would go the wrong way */
    size_t ties = m;                         /* how many of those equal to the threshold stay: the first ones */
    for (size_t i = 0; i < n; i++) {
        above[i / 64] |= (uint64_t)(key[i] > t) << i % 64;
        equal[i / 64] |= (uint64_t)(key[i] == t) << i % 64;
    }
    for (size_t i = 0; i < n; i++) kept[i] = key[i] >= t ? square[i] : 0;
    for (unsigned word = 0; word < 2; word++) {
        ties -= (size_t)__builtin_popcountll(above[word]);
        out->bits[word] = above[word];
    }
    for (unsigned word = 0; word < 2; word++)
        for (uint64_t bits = equal[word]; bits; bits &= bits - 1) {
            if (ties > 0)
                ties--, out->bits[word] |= bits & (~bits + 1);
            else
                kept[64 * word + (size_t)__builtin_ctzll(bits)] = 0;
        }
    double all_part[8] = {0}, kept_part[8] = {0};
    for (size_t i = 0; i < KERN_STRATUM; i += 8)
        for (size_t j = 0; j < 8; j++) {
            all_part[j] += (double)square[i + j];
            kept_part[j] += (double)kept[i + j];
        }
    const double below = sum_of_8(kept_part);
    out->factor = below > 0 ? (float)sqrt(sum_of_8(all_part) / below) : 1.0f;
    out->n = (uint32_t)m;
}

void kern_kept_times_up(float *h, const float *s, const float *u, size_t n, const struct kern_kept *kept, bool packed,
                        float limit)
{
    float dense[KERN_STRATUM] = {0};
    assert(n <= KERN_STRATUM);
    size_t at = 0;
    for (unsigned word = 0; word < 2; word++)
        for (uint64_t bits = kept->bits[word]; bits; bits &= bits - 1) {
            const size_t i = 64 * word + (size_t)__builtin_ctzll(bits);
            dense[i] = u[packed ? at++ : i];
        }
    const bool clamp = limit > 1e-6f;
    for (size_t i = 0; i < n; i++) {
        float up = dense[i];
        if (clamp) up = up > limit ? limit : up < -limit ? -limit : up;
        const float v = (s[i] * up) * kept->factor;
        h[i] = kept->bits[i / 64] >> i % 64 & 1 ? v : 0.0f;
    }
}
