/* test_expert_policy.c - what the rule of eviction is worth: hit rates on a recorded routing, beside LRU-2 and Belady's
 * optimum.
 *
 * The recording is the bundled model decoding its held-out text token by token; the rules are simulated on it with slots for a
 * part of all experts. Ours is io/experts/expert_rank as the cache uses it. Prints the table; asks that ours is not more than
 * 5 % below LRU-2, and above neither the optimum. */
#include "io/experts/expert_cache.h"
#include "io/experts/expert_rank.h"
#include "platform/os.h"
#include "runtime/engine/engine_private.h"
#include "runtime/text/tokenizer.h"
#include "tests/support/engine_fixture.h"

#include <math.h>

enum { TOKENS = 1500 };

struct recording {
    uint32_t *id; /* experts in the order of their use */
    uint32_t *token;
    size_t n, cap;
    uint32_t n_expert, n_all, now;
};

static void told(void *user, unsigned layer, uint32_t expert)
{
    struct recording *r = user;
    assert_true(r->n < r->cap);
    r->token[r->n] = r->now;
    r->id[r->n++] = layer * r->n_expert + expert;
}

static void record(struct recording *r)
{
    char path[512], *text;
    size_t size;
    struct mc_err err = {0};
    struct engine *e = NULL;
    struct tokenizer *tok = NULL;
    struct token_list ids;
    snprintf(path, sizeof path, "%s/tiny-dsv4.gguf", MC_MODELS);
    const struct engine_options opt = {
        .model_path = path, .n_threads = 2, .pin = "off", .expert_cache_given = true, .expert_cache_bytes = 2 << 20};
    if (engine_open(&opt, &e, &err)) fail_msg("%s", err.msg);
    assert_non_null(e->experts);
    if (tokenizer_create(engine_gguf(e), &tok, &err)) fail_msg("%s", err.msg);
    snprintf(path, sizeof path, "%s/models/heldout.txt", MC_TEST_DATA);
    if (os_file_read_all(path, 1 << 24, &text, &size, &err)) fail_msg("%s", err.msg);
    token_list_init(&ids);
    if (tokenizer_encode_prompt(tok, text_span(text, size), true, &ids, &err)) fail_msg("%s", err.msg);
    assert_true(ids.n > TOKENS);
    const struct model_shape *s = engine_shape(e);
    *r = (struct recording){
        .n_expert = s->n_expert, .n_all = s->n_expert * s->n_layer, .cap = (size_t)TOKENS * s->n_layer * s->n_used};
    r->id = malloc(r->cap * sizeof *r->id);
    r->token = malloc(r->cap * sizeof *r->token);
    expert_cache_tell(e->experts, told, r);
    struct session *session = fixture_session(e, 512, 8, KERN_KV_F16);
    for (; r->now < TOKENS; r->now++) {
        if (r->now % 500 == 0) fixture_rewind(session, 0);
        if (session_decode(session, ids.ids[r->now], &err)) fail_msg("%s", err.msg);
    }
    assert_int_equal(r->n, r->cap);
    session_destroy(session);
    token_list_deinit(&ids);
    tokenizer_destroy(tok);
    free(text);
    engine_close(e);
}

static double hits_ours(const struct recording *r, uint32_t slots)
{
    struct expert_rank rank;
    uint32_t *at = calloc(slots + 1, sizeof *at), *place = malloc(r->n_all * sizeof *place), now = 0;
    size_t hits = 0;
    assert_int_equal(expert_rank_init(&rank, r->n_all, EXPERT_HALF_LIFE, NULL), MC_OK);
    struct expert_heap h = {.rank = &rank, .at = at, .place = place};
    for (uint32_t i = 0; i < r->n_all; i++) place[i] = UINT32_MAX;
    for (size_t i = 0; i < r->n; i++) {
        for (; now < r->token[i]; now++) expert_rank_pass(&rank, 1);
        const uint32_t x = r->id[i];
        const bool hit = expert_heap_has(&h, x);
        hits += hit;
        if (hit)
            expert_heap_remove(&h, x);
        else if (h.n == slots)
            expert_heap_remove(&h, h.at[0]);
        expert_rank_use(&rank, x, 1);
        expert_heap_put(&h, x);
    }
    expert_rank_deinit(&rank);
    free(at);
    free(place);
    return (double)hits / (double)r->n;
}

/* Whoever's key is the least goes: the time of the k-th last use (LRU-k), or minus the time of the next one (Belady). */
static double hits_by_key(const struct recording *r, uint32_t slots, unsigned k)
{
    double *key = malloc(r->n_all * sizeof *key), *last = malloc(2 * r->n_all * sizeof *last);
    bool *in = calloc(r->n_all, sizeof *in);
    size_t *next = malloc(r->n * sizeof *next), *seen = malloc(r->n_all * sizeof *seen), hits = 0;
    uint32_t n = 0;
    for (uint32_t x = 0; x < r->n_all; x++) seen[x] = SIZE_MAX, key[x] = -1, last[2 * x] = last[2 * x + 1] = -1;
    for (size_t i = r->n; i-- > 0;) {
        next[i] = seen[r->id[i]];
        seen[r->id[i]] = i;
    }
    for (size_t i = 0; i < r->n; i++) {
        const uint32_t x = r->id[i];
        hits += in[x];
        if (!in[x] && n == slots) {
            uint32_t least = UINT32_MAX;
            for (uint32_t y = 0; y < r->n_all; y++)
                if (in[y] && (least == UINT32_MAX || key[y] < key[least])) least = y;
            in[least] = false;
            n--;
        }
        n += !in[x];
        in[x] = true;
        last[2 * x + 1] = last[2 * x];
        last[2 * x] = (double)i;
        key[x] = k == 0   ? -(next[i] == SIZE_MAX ? 1e18 : (double)next[i])
                 : k == 1 ? last[2 * x]
                          : last[2 * x + 1] + 1e-9 * last[2 * x];
    }
    free(key);
    free(last);
    free(in);
    free(next);
    free(seen);
    return (double)hits / (double)r->n;
}

static void test_hit_rates(void **state)
{
    (void)state;
    struct recording r;
    record(&r);
    printf("%zu uses of %u experts; hit rates in %%\nslots   ours   LRU  LRU-2  optimum\n", r.n, (unsigned)r.n_all);
    for (unsigned part = 1; part <= 7; part++) {
        const uint32_t slots = r.n_all * part / 8;
        const double ours = hits_ours(&r, slots), lru = hits_by_key(&r, slots, 1), lru2 = hits_by_key(&r, slots, 2),
                     best = hits_by_key(&r, slots, 0);
        printf("%4u %7.2f %6.2f %6.2f %7.2f\n", (unsigned)slots, 100 * ours, 100 * lru, 100 * lru2, 100 * best);
        assert_true(ours >= 0.95 * lru2);
        assert_true(ours <= best);
    }
    free(r.id);
    free(r.token);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_hit_rates)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
