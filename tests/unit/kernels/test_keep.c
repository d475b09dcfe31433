/* What stays when experts or rows are left out: against plain sorting, and what ties, extremes and not-a-numbers do. */
#include "kernels/kernels.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t seed = 88172645463325252u;

static float any(float low, float high)
{
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return low + (high - low) * (float)(seed >> 40) / 16777216.0f;
}

/* ---- experts ---- */

static void test_the_largest_weights_stay_in_their_order(void **state)
{
    (void)state;
    for (int round = 0; round < 2000; round++) {
        int32_t ids[6], want_ids[6];
        float w[6], want[6];
        const size_t k = 1 + (size_t)round % 6;
        const float least = round % 3 ? any(0, 0.4f) : 0;
        size_t n = 0, best = 0;
        for (int i = 0; i < 6; i++) {
            ids[i] = 10 + i;
            w[i] = round % 5 ? any(0, 0.5f) : (float)(int)any(1, 4) * 0.125f; /* every fifth with equal ones */
            if (w[i] > w[best]) best = (size_t)i;
        }
        for (size_t i = 0; i < 6; i++) {
            size_t larger = 0;
            for (size_t j = 0; j < 6; j++) larger += w[j] > w[i] || (w[j] == w[i] && j < i);
            if (larger < k && (i == best || w[i] >= least)) want_ids[n] = ids[i], want[n++] = w[i];
        }
        assert_int_equal(kern_route_keep(ids, w, 6, k, least, 0, 0), n);
        for (size_t i = 0; i < 6; i++) {
            assert_int_equal(ids[i], i < n ? want_ids[i] : -1);
            assert_true(w[i] == (i < n ? want[i] : 0)); /* factor 1 */
        }
    }
}

static void test_rescaling(void **state)
{
    (void)state;
    static const struct {
        float a, b;
        double factor; /* of 0.6, 0.3 against 0.6, 0.3, 0.2, 0.1 */
    } modes[] = {{0, 0, 1}, {1, 0, 1.0540925533894598}, {0, 1, 1.3333333333333333}, {0.9f, 0.1f, 1.1055415967851332}};
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        int32_t ids[4] = {3, 1, 2, 0};
        float w[4] = {0.6f, 0.1f, 0.3f, 0.2f};
        assert_int_equal(kern_route_keep(ids, w, 4, 2, 0, modes[i].a, modes[i].b), 2);
        assert_true(fabs((double)w[0] / (0.6 * modes[i].factor) - 1) < 1e-6);
        assert_true(fabs((double)w[1] / (0.3 * modes[i].factor) - 1) < 1e-6);
        assert_int_equal(ids[1], 2);
    }
    int32_t ids[2] = {7, 8};
    float w[2] = {0.2f, 0.1f};
    assert_int_equal(kern_route_keep(ids, w, 2, 2, 0.05f, 1, 0), 2); /* nothing left out: not a bit changes */
    assert_true(w[0] == 0.2f && w[1] == 0.1f);
    assert_int_equal(kern_route_keep(ids, w, 2, 2, 1.5f, 0, 1), 1); /* the heaviest stays, with all the weight */
    assert_true(fabsf(w[0] - 0.3f) < 1e-7f && ids[0] == 7 && ids[1] == -1);
    float zero[2] = {0, 0};
    assert_int_equal(kern_route_keep(ids, zero, 2, 1, 0, 1, 0), 1);
    assert_true(zero[0] == 0);
}

/* ---- rows ---- */

struct row {
    float square;
    size_t i;
};

static int by_square(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    if (x->square > y->square) return -1;
    if (x->square < y->square) return 1;
    return x->i < y->i ? -1 : 1;
}

static void test_kept_rows_equal_a_sort(void **state)
{
    (void)state;
    for (int round = 0; round < 3000; round++) {
        const size_t n = round % 2 ? 128 : 1 + (size_t)any(0, 127.9f), m = 1 + (size_t)any(0, (float)n - 0.01f);
        float s[128];
        struct row rows[128];
        struct kern_kept kept;
        double all = 0, stay = 0;
        for (size_t i = 0; i < n; i++) {
            s[i] = any(-0.3f, 2);
            if (round % 3 == 0) s[i] = (float)(int)(s[i] * 4) / 4; /* many ties */
            if (round % 7 == 0) s[i] *= 1e-22f;                    /* squares below the normal numbers */
            rows[i] = (struct row){s[i] * s[i], i};
            all += (double)(s[i] * s[i]);
        }
        qsort(rows, n, sizeof *rows, by_square);
        kern_keep_rows(&kept, s, n, m);
        assert_int_equal(kept.n, m);
        uint64_t want[2] = {0, 0};
        for (size_t i = 0; i < m; i++) {
            want[rows[i].i / 64] |= UINT64_C(1) << rows[i].i % 64;
            stay += (double)rows[i].square;
        }
        assert_true(kept.bits[0] == want[0] && kept.bits[1] == want[1]);
        assert_true(stay > 0 ? fabs((double)kept.factor / sqrt(all / stay) - 1) < 1e-6 : kept.factor == 1);
    }
}

static void test_rows_that_are_no_numbers_do_not_change_the_count(void **state)
{
    (void)state;
    for (size_t m = 1; m <= 128; m++) {
        float s[128];
        struct kern_kept kept;
        for (size_t i = 0; i < 128; i++) s[i] = i % 3 == 0 ? (float)NAN : i % 3 == 1 ? (float)INFINITY : -0.0f;
        kern_keep_rows(&kept, s, 128, m);
        assert_int_equal((size_t)__builtin_popcountll(kept.bits[0]) + (size_t)__builtin_popcountll(kept.bits[1]), m);
    }
}

static void test_times_up(void **state)
{
    (void)state;
    float s[100], dense[100], packed[100], a[100], b[100];
    struct kern_kept kept;
    size_t n = 0;
    for (size_t i = 0; i < 100; i++) s[i] = any(-1, 1), dense[i] = any(-3, 3);
    kern_keep_rows(&kept, s, 100, 37);
    for (size_t i = 0; i < 100; i++)
        if (kept.bits[i / 64] >> i % 64 & 1) packed[n++] = dense[i];
    assert_int_equal(n, 37);
    kern_kept_times_up(a, s, dense, 100, &kept, false, 2);
    memcpy(b, s, sizeof b);
    kern_kept_times_up(b, b, packed, 100, &kept, true, 2);
    assert_memory_equal(a, b, sizeof a);
    for (size_t i = 0; i < 100; i++) {
        const float up = dense[i] > 2 ? 2 : dense[i] < -2 ? -2 : dense[i];
        assert_true(a[i] == (kept.bits[i / 64] >> i % 64 & 1 ? s[i] * up * kept.factor : 0));
    }
    assert_int_equal(kern_rows_kept(160, 80), 80 + 20);
    assert_int_equal(kern_rows_kept(160, 77), 77 + 20);
    assert_int_equal(kern_rows_kept(2048, 0), 2048);
    assert_int_equal(kern_rows_kept(32, 1), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_largest_weights_stay_in_their_order),
        cmocka_unit_test(test_rescaling),
        cmocka_unit_test(test_kept_rows_equal_a_sort),
        cmocka_unit_test(test_rows_that_are_no_numbers_do_not_change_the_count),
        cmocka_unit_test(test_times_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
