/* The sampler: drawn frequencies against the exact distribution for each setting, odd values of every option, odd logits.
 * Method: a small row of logits whose probabilities are worked out here by other means, 200 000 draws from a fixed seed, and a
 * bound of five standard errors; for the options that must not change anything, equal sequences. */
#include "runtime/engine/sampler.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 8, DRAWS = 200000 };
static const float row[N] = {0.5f, 2.0f, -1.0f, 2.0f, 0.0f, 1.0f, -3.0f, 1.5f};

static struct sampler *make(struct sampler_options o, uint32_t n)
{
    struct sampler *s = NULL;
    struct mc_err err;
    assert_int_equal(sampler_create(&o, n, &s, &err), MC_OK);
    return s;
}

static int32_t pick(struct sampler *s, const float *logits)
{
    int32_t id = -1;
    struct mc_err err;
    assert_int_equal(sampler_pick(s, logits, &id, &err), MC_OK);
    return id;
}

/* Draws many times and compares with want[] (probabilities; 0 must never come). */
static void expect_distribution(struct sampler_options o, const double *want)
{
    struct sampler *s = make(o, N);
    unsigned count[N] = {0};
    for (int i = 0; i < DRAWS; i++) count[pick(s, row)]++;
    sampler_destroy(s);
    for (int i = 0; i < N; i++) {
        const double got = count[i] / (double)DRAWS, error = sqrt(want[i] * (1 - want[i]) / DRAWS);
        if (want[i] <= 0) assert_int_equal(count[i], 0);
        assert_true(fabs(got - want[i]) <= 5 * error + 1e-12);
    }
}

/* Softmax over the ids in `keep` (bits). */
static void softmax_of(double temp, unsigned keep, double *p)
{
    double sum = 0;
    for (int i = 0; i < N; i++) sum += p[i] = keep >> i & 1 ? exp((double)row[i] / temp) : 0;
    for (int i = 0; i < N; i++) p[i] /= sum;
}

static void test_draws_follow_the_softmax(void **state)
{
    (void)state;
    double p[N];
    const double temps[] = {0.3, 1.0, 2.5};
    for (size_t i = 0; i < 3; i++) {
        softmax_of(temps[i], 0xFF, p);
        expect_distribution((struct sampler_options){(float)temps[i], 0, 1, 0, 42 + i}, p);
    }
}

static void test_top_k_keeps_the_best_and_breaks_ties_by_id(void **state)
{
    (void)state;
    double p[N];
    softmax_of(1, 1u << 1 | 1u << 3 | 1u << 7, p); /* 2, 2, 1.5 */
    expect_distribution((struct sampler_options){1, 3, 1, 0, 7}, p);
    softmax_of(1, 1u << 1 | 1u << 3, p);
    expect_distribution((struct sampler_options){1, 2, 1, 0, 7}, p);
}

static void test_top_p_keeps_the_shortest_run_that_reaches_it(void **state)
{
    (void)state;
    double p[N];
    softmax_of(1, 0xFF, p); /* in order: ids 1, 3, 7, 5, 0, 4, 2, 6 */
    const double three = p[1] + p[3] + p[7];
    softmax_of(1, 1u << 1 | 1u << 3 | 1u << 7, p);
    expect_distribution((struct sampler_options){1, 0, (float)(three - 0.001), 0, 9}, p);
    softmax_of(1, 1u << 1 | 1u << 3 | 1u << 7 | 1u << 5, p);
    expect_distribution((struct sampler_options){1, 0, (float)(three + 0.001), 0, 9}, p);
    softmax_of(1, 1u << 1, p); /* 0: only the best */
    expect_distribution((struct sampler_options){1, 0, 0, 0, 9}, p);
}

static void test_min_p_is_a_share_of_the_best(void **state)
{
    (void)state;
    double p[N];
    softmax_of(1, 1u << 1 | 1u << 3 | 1u << 7, p); /* exp(-0.5) = 0.607 stays, exp(-1) = 0.368 goes */
    expect_distribution((struct sampler_options){1, 0, 1, 0.5f, 11}, p);
    softmax_of(1, 1u << 1 | 1u << 3, p);
    expect_distribution((struct sampler_options){1, 0, 1, 1, 11}, p);
}

static void test_order_is_top_k_then_top_p(void **state)
{
    (void)state;
    double p[N];
    /* Of the two best each has half; 0.4 of that is one token. Of all eight they have 0.26 each and it would be two. */
    softmax_of(1, 1u << 1, p);
    expect_distribution((struct sampler_options){1, 2, 0.4f, 0, 13}, p);
    softmax_of(1, 1u << 1 | 1u << 3, p);
    expect_distribution((struct sampler_options){1, 0, 0.4f, 0, 13}, p);
}

static void test_greedy_takes_the_lowest_of_equal_ids(void **state)
{
    (void)state;
    const struct sampler_options greedy[] = {
        {0, 0, 1, 0, 1}, {-1, 0, 1, 0, 1}, {NAN, 0, 1, 0, 1}, {1, 1, 1, 0, 1}, {-INFINITY, 5, 0.5f, 0.1f, 1}};
    for (size_t i = 0; i < sizeof greedy / sizeof greedy[0]; i++) {
        struct sampler *s = make(greedy[i], N);
        for (int k = 0; k < 10; k++) assert_int_equal(pick(s, row), 1);
        sampler_destroy(s);
    }
}

static void test_odd_values_switch_an_option_off(void **state)
{
    (void)state;
    const struct sampler_options plain = {1, 0, 1, 0, 5};
    const struct sampler_options odd[] = {
        {1, -3, 1, 0, 5},  {1, 1000000000, 1, 0, 5}, {1, 0, NAN, 0, 5},  {1, 0, -0.5f, 0, 5},    {1, 0, 1e9f, 0, 5},
        {1, 0, 1, NAN, 5}, {1, 0, 1, -2, 5},         {1, 0, 1, 1e9f, 5}, {1, 0, INFINITY, 0, 5}, {1, N, 1, 0, 5}};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        struct sampler *a = make(plain, N), *b = make(odd[i], N);
        for (int k = 0; k < 1000; k++) assert_int_equal(pick(a, row), pick(b, row));
        sampler_destroy(a);
        sampler_destroy(b);
    }
}

static void test_a_huge_temperature_is_uniform_and_a_tiny_one_greedy(void **state)
{
    (void)state;
    const double uniform[N] = {0.125, 0.125, 0.125, 0.125, 0.125, 0.125, 0.125, 0.125};
    expect_distribution((struct sampler_options){1e9f, 0, 1, 0, 3}, uniform);
    expect_distribution((struct sampler_options){INFINITY, 0, 1, 0, 3}, uniform);
    const double two[N] = {[1] = 0.5, [3] = 0.5};
    expect_distribution((struct sampler_options){1e-30f, 0, 1, 0, 3}, two);
}

static void test_infinite_logits(void **state)
{
    (void)state;
    struct sampler *s = make((struct sampler_options){1e9f, 0, 1, 0, 1}, 4);
    const float one_left[4] = {-INFINITY, -INFINITY, -5, -INFINITY}, certain[4] = {1, 2, INFINITY, INFINITY};
    for (int i = 0; i < 100; i++) {
        assert_int_equal(pick(s, one_left), 2);
        assert_int_equal(pick(s, certain), 2);
    }
    sampler_destroy(s);
}

static void test_damaged_logits_are_refused(void **state)
{
    (void)state;
    struct sampler *s = make((struct sampler_options){1, 0, 1, 0, 1}, 4);
    struct mc_err err;
    int32_t id = 77;
    const float nan_row[4] = {0, 1, NAN, 2}, none[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    assert_int_equal(sampler_pick(s, nan_row, &id, &err), MC_EFORMAT);
    assert_non_null(strstr(err.msg, "token 2"));
    assert_int_equal(sampler_pick(s, none, &id, &err), MC_EFORMAT);
    assert_int_equal(id, 77);
    sampler_destroy(s);
    assert_int_equal(sampler_create(&(struct sampler_options){1, 0, 1, 0, 1}, 0, &s, &err), MC_EARG);
}

static void test_a_seed_is_a_sequence(void **state)
{
    (void)state;
    struct sampler *a = make((struct sampler_options){1, 0, 1, 0, 0}, N), *b = make((struct sampler_options){1, 0, 1, 0, 1}, N);
    int32_t first[200];
    int differs = 0;
    for (int i = 0; i < 200; i++) {
        first[i] = pick(a, row);
        differs += first[i] != pick(b, row);
    }
    assert_true(differs > 50);
    sampler_reseed(b, 0);
    for (int i = 0; i < 200; i++) assert_int_equal(pick(b, row), first[i]);
    /* Pinned: the same on every machine. */
    const int32_t known[8] = {3, 7, 4, 7, 3, 3, 1, 0};
    for (int i = 0; i < 8; i++) assert_int_equal(first[i], known[i]);
    sampler_destroy(a);
    sampler_destroy(b);
}

/* The real size: the partial selections against a full sort. */
enum { V = 129280, DRAWN = 1500 };

struct ranked {
    float logit;
    int32_t id;
};

static int by_logit(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    return x->logit != y->logit ? (x->logit < y->logit ? 1 : -1) : (x->id > y->id) - (x->id < y->id);
}

/* All draws come from the first n of the order; returns how many of these came at all. */
static size_t draw_within(struct sampler_options o, const float *logits, const struct ranked *order, size_t n)
{
    uint8_t *state = calloc(V, 1);
    struct sampler *s = make(o, V);
    size_t seen = 0;
    for (size_t i = 0; i < n; i++) state[order[i].id] = 1;
    for (int i = 0; i < DRAWN; i++) {
        const int32_t id = pick(s, logits);
        assert_int_not_equal(state[id], 0);
        seen += state[id] == 1;
        state[id] = 2;
    }
    sampler_destroy(s);
    free(state);
    return seen;
}

static void test_selections_of_a_real_vocabulary(void **state)
{
    (void)state;
    float *logits = malloc(V * sizeof *logits);
    struct ranked *order = malloc(V * sizeof *order);
    uint32_t x = 1;
    for (int i = 0; i < V; i++) {
        x = x * 1664525u + 1013904223u;
        logits[i] = (float)(x >> 20) / 256.0f; /* 4096 values: many ties */
        order[i] = (struct ranked){logits[i], i};
    }
    qsort(order, V, sizeof *order, by_logit);
    assert_int_equal(draw_within((struct sampler_options){1000, 40, 1, 0, 3}, logits, order, 40), 40);

    double total = 0, sum = 0;
    for (int i = 0; i < V; i++) total += exp((double)(order[i].logit - order[0].logit));
    size_t n = 0;
    while (sum < 0.3 * total) sum += exp((double)(order[n++].logit - order[0].logit));
    assert_true(draw_within((struct sampler_options){1, 0, 0.3f, 0, 3}, logits, order, n + 1) > n / 4);
    free(order);
    free(logits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_draws_follow_the_softmax),
        cmocka_unit_test(test_top_k_keeps_the_best_and_breaks_ties_by_id),
        cmocka_unit_test(test_top_p_keeps_the_shortest_run_that_reaches_it),
        cmocka_unit_test(test_min_p_is_a_share_of_the_best),
        cmocka_unit_test(test_order_is_top_k_then_top_p),
        cmocka_unit_test(test_greedy_takes_the_lowest_of_equal_ids),
        cmocka_unit_test(test_odd_values_switch_an_option_off),
        cmocka_unit_test(test_a_huge_temperature_is_uniform_and_a_tiny_one_greedy),
        cmocka_unit_test(test_infinite_logits),
        cmocka_unit_test(test_damaged_logits_are_refused),
        cmocka_unit_test(test_a_seed_is_a_sequence),
        cmocka_unit_test(test_selections_of_a_real_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
