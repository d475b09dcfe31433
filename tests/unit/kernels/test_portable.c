/* test_portable.c - what has one version for every CPU: conversions, the fused multiply-add, routing, selection, mixing
 * weights.
 *
 * Goal: right where C libraries are wrong or vary. Method: conversions are checked for all 65536 patterns and at rounding
 * borders; kern_fma against values whose exact result was worked out by hand and against integer arithmetic; the rest against
 * plain double code with the C library's functions, within 1e-6. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu_flags.h"
#include "kernels/f16.h"
#include "kernels/kernels.h"
#include "platform/base/compiler.h"

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33 ^ *state;
}

static void test_f16_survives_the_round_trip(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        const float f = kern_f16_to_f32((uint16_t)h);
        const bool nan = (h & 0x7FFF) > 0x7C00;
        assert_int_equal(isnan(f) != 0, nan);
        assert_int_equal(kern_f32_to_f16(f), nan ? h | 0x0200 : h); /* a NaN becomes quiet */
        if (nan) continue;
        const int exponent = (int)(h >> 10 & 31), mantissa = (int)(h & 1023);
        const double want = exponent == 31  ? (double)INFINITY
                            : exponent == 0 ? ldexp(mantissa, -24)
                                            : ldexp(1024 + mantissa, exponent - 25);
        assert_true((double)f == (h & 0x8000 ? -want : want));
    }
}

static void test_f16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint16_t h = 0; h < 0x7BFF; h++) { /* neighbours h, h+1: below, at and above the middle */
        const float a = kern_f16_to_f32(h), b = kern_f16_to_f32((uint16_t)(h + 1)), mid = (a + b) * 0.5f;
        assert_int_equal(kern_f32_to_f16(mid), h % 2 ? h + 1 : h);
        assert_int_equal(kern_f32_to_f16(nextafterf(mid, 0)), h);
        assert_int_equal(kern_f32_to_f16(-nextafterf(mid, INFINITY)), 0x8000 | (h + 1));
    }
    assert_int_equal(kern_f32_to_f16(65519.996f), 0x7BFF);
    assert_int_equal(kern_f32_to_f16(65520), 0x7C00);
    assert_int_equal(kern_f32_to_f16(-3e38f), 0xFC00);
    assert_int_equal(kern_f32_to_f16(0x1p-25f), 0);
    assert_int_equal(kern_f32_to_f16(nextafterf(0x1p-25f, 1)), 1);
    assert_int_equal(kern_f32_to_f16(-0.0f), 0x8000);
}

static void test_scales_of_four_bit_floats(void **state)
{
    (void)state;
    assert_true(e8m0_half(0) == 0x1p-128f && e8m0_half(1) == 0x1p-127f && e8m0_half(2) == 0x1p-126f);
    assert_true(e8m0_half(128) == 1 && e8m0_half(255) == 0x1p127f);
    assert_true(ue4m3_half(0) == 0 && ue4m3_half(1) == 0x1p-10f && ue4m3_half(8) == 0x1p-7f);
    assert_true(ue4m3_half(0x7E) == 224 && ue4m3_half(0x7F) == 0 && ue4m3_half(0xFF) == 240 && ue4m3_half(0x80) == 0);
}

/* mx * my + mz * 2^ez by integers of 2^-low, rounded to 24 bits, ties to even; |mx my| < 2^(62 - low), ez >= -low. */
static float fma_by_integers(int64_t mx, int64_t my, int64_t mz, int ez, int low)
{
    const int64_t sum = mx * my * ((int64_t)1 << low) + mz * ((int64_t)1 << (low + ez));
    uint64_t m = (uint64_t)(sum < 0 ? -sum : sum);
    int bits = 0, drop = 0;
    while (m >> bits) bits++;
    if (bits > 24) {
        drop = bits - 24;
        const uint64_t rest = m & (((uint64_t)1 << drop) - 1), half = (uint64_t)1 << (drop - 1);
        m >>= drop;
        if (rest > half || (rest == half && m & 1)) m++;
    }
    return (float)ldexp(sum < 0 ? -(double)m : (double)m, drop - low);
}

static void test_fma_rounds_once(void **state)
{
    (void)state;
    /* Rounding to double first lands on the middle between two floats and then goes to even. */
    const float x = 1 + 0x1p-12f;
    assert_true(kern_fma(x, x, 0x1p-60f) == 1 + 0x1p-11f + 0x1p-23f);
    assert_true(kern_fma(x, x, -0x1p-60f) == 1 + 0x1p-11f);
    assert_true(kern_fma(-x, x, -0x1p-60f) == -(1 + 0x1p-11f + 0x1p-23f));
    /* Subnormal results; the product is half of the last place. */
    assert_true(kern_fma(0x1p-75f, 0x1p-75f, 0x1p-149f) == 0x1p-148f);        /* 1.5 units: to even */
    assert_true(kern_fma(0x1p-75f, 0x1p-75f, 0x1p-148f) == 0x1p-148f);        /* 2.5 units: to even */
    assert_true(kern_fma(0x1p-75f, 0x1p-75f, 0x1.8p-148f) == 0x1p-147f);      /* 3.5 units: to even */
    assert_true(kern_fma(0x1p-75f, 1.5f * 0x1p-75f, 0x1p-149f) == 0x1p-148f); /* 1.75 units: up */
    assert_true(kern_fma(0x1.fffffep127f, 1, 0x1p102f) == 0x1.fffffep127f);
    assert_true(kern_fma(0x1.fffffep127f, 1, 0x1p103f) == INFINITY);
    assert_true(isnan(kern_fma(INFINITY, 0, 1)) && kern_fma(INFINITY, -1, 3) == -INFINITY);
    assert_true(signbit(kern_fma(-0.0f, 1, -0.0f)) && !signbit(kern_fma(1, 1, -1)));
    uint64_t seed = 1;
    for (int i = 0; i < 200000; i++) {
        const uint64_t r = next_random(&seed), s = next_random(&seed);
        const bool middle = i % 2; /* odd products of 25 bits lie between two floats, and z is too small for a double sum */
        const int low = middle ? 36 : 14;
        const int64_t mx = (int64_t)(r & 0xFFFFFF), my = (int64_t)(r >> 24 & 0xFFFFFF), sign = s & 1 ? 1 : -1;
        const int64_t x1 = middle ? (mx % 1690 + 4096) | 1 : mx, y1 = middle ? (my % 1690 + 4096) | 1 : my;
        const int64_t z1 = sign * (middle ? 1 : (int64_t)(s >> 9 & 0xFFFFFF));
        const int ez = middle ? -24 - (int)(s >> 40) % 13 : (int)(s >> 40 & 0xFFFF) % 29 - 14;
        const float got = kern_fma((float)x1, (float)y1, (float)ldexp((double)z1, ez));
        const float want = fma_by_integers(x1, y1, z1, ez, low);
        if (f32_bits(got) != f32_bits(want) && !(got == 0 && want == 0))
            fail_msg("fma(%lld, %lld, %lld * 2^%d) is %a, not %a", (long long)x1, (long long)y1, (long long)z1, ez, (double)got,
                     (double)want);
    }
}

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-6 * fabs(want))) fail_msg("%.9g, not %.9g", got, want);
}

static void test_route_scores(void **state)
{
    (void)state;
    float lg[2001], s[2001];
    for (int i = 0; i < 2001; i++) lg[i] = (float)(i - 1000) * 0.05f; /* -50 .. 50, over the border at 20 */
    kern_route_scores(s, lg, 2001);
    for (int i = 0; i < 2001; i++) near((double)s[i], sqrt(lg[i] > 20 ? (double)lg[i] : log1p(exp((double)lg[i]))));
    for (int i = 1; i < 2001; i++) assert_true(s[i] > s[i - 1]);
    const float odd[4] = {NAN, INFINITY, -INFINITY, -200};
    kern_route_scores(s, odd, 4);
    assert_true(isnan(s[0]) && s[1] == INFINITY && s[2] == 0 && s[3] > 0);
}

static void test_route_top_breaks_ties_by_id(void **state)
{
    (void)state;
    const float s[8] = {1, 3, NAN, 3, 2, -0.0f, 0, 5}, bias[8] = {4, 0, 9, 0, 0, 0, 0, -9};
    int32_t ids[8];
    kern_route_top(ids, s, NULL, 8, 8);
    const int32_t plain[8] = {7, 1, 3, 4, 0, 5, 6, 2}; /* NaN last */
    assert_memory_equal(ids, plain, sizeof ids);
    kern_route_top(ids, s, bias, 8, 3);
    const int32_t biased[3] = {0, 1, 3};
    assert_memory_equal(ids, biased, sizeof biased);
    float wt[3];
    kern_route_weights(wt, s, ids, 3, 1.5f, true);
    near((double)wt[0], 1.5 * 1 / 7), near((double)wt[1], 1.5 * 3 / 7);
    kern_route_weights(wt, s, ids, 3, 1.5f, false);
    assert_true(wt[0] == 1.5f && wt[2] == 4.5f);
    const float tiny[2] = {0x1p-20f, 0};
    kern_route_weights(wt, tiny, (const int32_t[]){0, 1}, 2, 1, true);
    assert_true(wt[0] == 0x1p-6f && wt[1] == 0); /* the floor 2^-14 */
}

static const float *sorted_scores; /* for the comparison of qsort */
static int best_first(const void *a, const void *b)
{
    const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    const float x = sorted_scores[i], y = sorted_scores[j];
    if (isnan(x) || isnan(y)) return isnan(x) && isnan(y) ? (i > j) - (i < j) : isnan(x) ? 1 : -1;
    return x != y ? (x < y) - (x > y) : (i > j) - (i < j);
}

static int by_index(const void *a, const void *b)
{
    const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    return (i > j) - (i < j);
}

static void test_top_rows_equal_a_sort(void **state)
{
    (void)state;
    enum { N = 3000 };
    static const size_t ns[] = {1, 2, 17, 512, 513, N};
    uint64_t seed = 7;
    float *score = malloc(N * sizeof *score);
    uint32_t *want = malloc(N * sizeof *want), *got = malloc(N * sizeof *got);
    for (size_t a = 0; a < ARRAY_LEN(ns) * 4; a++) {
        const size_t n = ns[a / 4];
        for (size_t i = 0; i < n; i++) {
            const uint64_t r = next_random(&seed);
            const float few =
                (float)(int)(r % 5) - 2; /* kind 0: many ties; 1: few exponents; 2: any bits, NaN too; 3: mostly 0 */
            score[i] = a % 4 == 0   ? few
                       : a % 4 == 1 ? 1 + (float)(r & 0xFFFF) * 0x1p-20f
                       : a % 4 == 2 ? f32_of_bits((uint32_t)r)
                       : r % 9      ? 0
                                    : few;
            want[i] = (uint32_t)i;
        }
        uint64_t *scratch = malloc(n * sizeof *scratch); /* exactly as long as promised */
        sorted_scores = score;
        qsort(want, n, sizeof *want, best_first);
        for (size_t k = 0; k <= n; k = k < 3 || k == n ? k + 1 : k * 2 < n ? k * 2 : n) {
            uint32_t *first = malloc((k + 1) * sizeof *first);
            memcpy(first, want, k * sizeof *first);
            qsort(first, k, sizeof *first, by_index);
            kern_top_rows(got, score, n, k, scratch);
            assert_memory_equal(got, first, k * sizeof *first);
            free(first);
        }
        free(scratch);
    }
    free(score), free(want), free(got);
}

static double plain_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static void test_hyper_mix(void **state)
{
    (void)state;
    enum { HC = 4, N = HC * (HC + 2) };
    float m[N], base[N], scale[3] = {0.7f, 1.3f, 2.5f}, pre[HC], post[HC], comb[HC * HC];
    double c[HC][HC];
    uint64_t seed = 3;
    for (size_t i = 0; i < N; i++) {
        m[i] = (float)(next_random(&seed) % 2000) * 0.004f - 4;
        base[i] = (float)(next_random(&seed) % 2000) * 0.001f - 1;
    }
    kern_hyper_mix(pre, post, comb, m, scale, base, HC, 20, 1e-6f);
    for (size_t h = 0; h < HC; h++) {
        near((double)pre[h], plain_sigmoid((double)m[h] * (double)scale[0] + (double)base[h]) + 1e-6);
        near((double)post[h], 2 * plain_sigmoid((double)m[HC + h] * (double)scale[1] + (double)base[HC + h]));
    }
    for (size_t j = 0; j < HC; j++) {
        double sum = 0;
        for (size_t k = 0; k < HC; k++)
            sum += c[j][k] = exp((double)m[8 + 4 * j + k] * (double)scale[2] + (double)base[8 + 4 * j + k]);
        for (size_t k = 0; k < HC; k++) c[j][k] = c[j][k] / sum + 1e-6;
    }
    for (int step = 0; step < 39; step++) /* columns, then 19 times rows and columns */
        for (size_t a = 0; a < HC; a++) {
            double sum = 1e-6;
            for (size_t b = 0; b < HC; b++) sum += step % 2 ? c[a][b] : c[b][a];
            for (size_t b = 0; b < HC; b++) *(step % 2 ? &c[a][b] : &c[b][a]) /= sum;
        }
    for (size_t i = 0; i < HC * HC; i++) near((double)comb[i], c[i / HC][i % HC]);

    float w[HC];
    kern_hyper_head(w, m, scale, base, HC, 1e-6f);
    for (size_t h = 0; h < HC; h++) assert_true(w[h] == pre[h]); /* the same formula */
}

static void test_isa_names(void **state)
{
    (void)state;
    uint32_t flags = 77;
    assert_int_equal(kern_isa_flags("scalar", &flags), 0);
    assert_int_equal(flags, 0);
    assert_int_equal(kern_isa_flags("auto", &flags), 0);
    assert_int_equal(flags, kern_cpu_flags());
    assert_int_equal(kern_isa_flags("sse9", &flags), -1);
    assert_int_equal(kern_isa_flags("avx2", &flags), kern_cpu_flags() & KERN_AVX2 ? 0 : -2);
    assert_int_equal(kern_isa_flags("avx512", &flags), kern_cpu_flags() & KERN_AVX512 ? 0 : -2);
    struct kern_table t;
    kern_table_init(&t, 0);
    assert_string_equal(t.isa, "scalar");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f16_survives_the_round_trip),
        cmocka_unit_test(test_f16_rounds_to_nearest_even),
        cmocka_unit_test(test_scales_of_four_bit_floats),
        cmocka_unit_test(test_fma_rounds_once),
        cmocka_unit_test(test_route_scores),
        cmocka_unit_test(test_route_top_breaks_ties_by_id),
        cmocka_unit_test(test_top_rows_equal_a_sort),
        cmocka_unit_test(test_hyper_mix),
        cmocka_unit_test(test_isa_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
