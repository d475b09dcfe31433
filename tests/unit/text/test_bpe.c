/* test_bpe.c - goal: both ways of merging (short and long pieces) give what the definition gives.
 * Method: random merge tables over a small alphabet, also such where a pair comes back, against the definition written down
 * plainly: of all neighbours the lowest rank, of equal ranks the leftmost, until no pair has a merge. */
#include "runtime/text/bpe.h"
#include "tests/unit/text/text_support.h"

#define N_LETTERS  4
#define N_MERGES   60
#define LENGTH_MAX 300

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static size_t by_definition(const struct bpe *b, int32_t *ids, size_t n)
{
    for (;;) {
        const struct bpe_merge *best = NULL;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            const struct bpe_merge *const m = bpe_find(b, ids[i], ids[i + 1]);
            if (m && (!best || m->rank < best->rank)) {
                best = m;
                at = i;
            }
        }
        if (!best) return n;
        ids[at] = best->result;
        memmove(ids + at + 1, ids + at + 2, (n - at - 2) * sizeof *ids);
        n--;
    }
}

static void random_tables(void **state)
{
    struct bpe_scratch scratch;
    uint32_t seed = 20240117;
    bpe_scratch_init(&scratch);
    for (int round = 0; round < 300; round++) {
        struct bpe b;
        const int32_t n_ids = N_LETTERS + (int32_t)(next_random(&seed) % N_MERGES);
        assert_int_equal(bpe_init(&b, N_MERGES, NULL), MC_OK);
        for (uint32_t rank = 0; rank < N_MERGES; rank++) /* any result, not only new ids: tables of a broken file, too */
            bpe_add(&b, (struct bpe_merge){(int32_t)(next_random(&seed) % (uint32_t)n_ids),
                                           (int32_t)(next_random(&seed) % (uint32_t)n_ids), rank,
                                           (int32_t)(next_random(&seed) % (uint32_t)n_ids)});
        for (size_t n = 0; n <= LENGTH_MAX; n = n < 70 ? n + 1 : n + 23) {
            int32_t want[LENGTH_MAX], got[LENGTH_MAX];
            for (size_t i = 0; i < n; i++) want[i] = got[i] = (int32_t)(next_random(&seed) % N_LETTERS);
            size_t n_got = n;
            const size_t n_want = by_definition(&b, want, n);
            assert_int_equal(bpe_encode(&b, got, &n_got, &scratch, NULL), MC_OK);
            assert_int_equal(n_got, n_want);
            if (n_want > 0) assert_memory_equal(got, want, n_want * sizeof *want);
        }
        bpe_deinit(&b);
    }
    bpe_scratch_deinit(&scratch);
    (void)state;
}

static void first_of_equal_pairs_stays(void **state)
{
    struct bpe b;
    assert_int_equal(bpe_init(&b, 2, NULL), MC_OK);
    assert_true(bpe_add(&b, (struct bpe_merge){1, 2, 0, 3}));
    assert_false(bpe_add(&b, (struct bpe_merge){1, 2, 1, 4}));
    assert_int_equal(bpe_find(&b, 1, 2)->result, 3);
    assert_null(bpe_find(&b, 2, 1));
    bpe_deinit(&b);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_tables), cmocka_unit_test(first_of_equal_pairs_stays)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
