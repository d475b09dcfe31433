/* test_expert_cache.c - experts in few slots: the bytes are those of the file, whatever is evicted, borrowed or goes wrong.
 *
 * Method: a file of random bytes as the stacked matrices of three layers, two of them with experts of one size. Thousands of
 * random demands and wishes against caches from the least size to more than all, every way of reading, and disks that answer
 * with short reads, errors and dead ends. The rank is compared with the sum it stands for. */
#include "tests/unit/io/gguf_image.h"

#include "io/experts/expert_cache.h"
#include "io/experts/expert_rank.h"
#include "io/experts/expert_use.h"
#include "platform/os.h"

#include <math.h>
#include <stdatomic.h>

enum { LAYERS = 3, EXPERTS = 20, USED = 4 };
static const size_t floats[LAYERS][EXPERT_PIECES] = {{1000, 1000, 1100}, {1000, 1000, 1100}, {3000, 3000, 2500}};
static const char path[] = "test_expert_cache.gguf";

static uint32_t next(uint32_t *x)
{
    *x = *x * 1664525u + 1013904223u;
    return *x >> 8;
}

static void make_file(void)
{
    struct image m = {0};
    uint64_t off = 0;
    uint32_t x = 7;
    img_header(&m, (uint64_t)LAYERS * EXPERT_PIECES, 0);
    for (unsigned i = 0; i < LAYERS * EXPERT_PIECES; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%u", i);
        const size_t n = EXPERTS * floats[i / EXPERT_PIECES][i % EXPERT_PIECES];
        img_tensor(&m, name, QUANT_F32, n, 0, off);
        off += (n * 4 + 31) / 32 * 32;
    }
    img_pad(&m, 32);
    for (unsigned i = 0; i < LAYERS * EXPERT_PIECES; i++) {
        const size_t n = EXPERTS * floats[i / EXPERT_PIECES][i % EXPERT_PIECES];
        for (size_t j = 0; j < n * 4; j++) img_fill(&m, (uint8_t)next(&x), 1);
        img_pad(&m, 32);
    }
    img_save(&m, path);
    img_free(&m);
}

/* A disk between the system and the stream. */
struct disk {
    enum { GOOD, SHORT, STUTTER, FAILS_ONCE, BROKEN, DEAD_END } kind;
    uint64_t from, to; /* of trouble */
    atomic_uint calls;
};

static int64_t answer(void *user, uint64_t off, int64_t result)
{
    struct disk *d = user;
    const unsigned call = atomic_fetch_add(&d->calls, 1);
    const bool there = off + (result > 0 ? (uint64_t)result : 0) > d->from && off < d->to;
    switch (d->kind) {
    case SHORT:
        return result > 2 * OS_READ_ALIGN ? result / 2 + 100 : result;
    case STUTTER:
        return call % 3 ? result : -11; /* EAGAIN */
    case FAILS_ONCE:                    /* the second attempt comes long before the next number */
        return call % 101 == 3 ? -5 : result;
    case BROKEN:
        return there ? -5 : result;
    case DEAD_END:
        return there ? 0 : result;
    default:
        return result;
    }
}

struct rig {
    struct gguf *g;
    struct weights *w;
    struct expert_cache *c;
    struct expert_layer layers[LAYERS];
};

static struct expert_cache_options options_of(struct rig *r)
{
    for (unsigned il = 0; il < LAYERS; il++)
        for (unsigned p = 0; p < EXPERT_PIECES; p++) {
            r->layers[il].tensor_idx[p] = il * EXPERT_PIECES + p;
            r->layers[il].bytes[p] = floats[il][p] * 4;
        }
    return (struct expert_cache_options){.layers = r->layers, .n_layers = LAYERS, .n_expert = EXPERTS, .n_used = USED};
}

/* share 0: the least size, 1: all */
static enum mc_code rig_open(struct rig *r, double share, enum weights_io io, const struct stream_fault *fault,
                             struct mc_err *err)
{
    uint64_t least, all;
    memset(r, 0, sizeof *r);
    assert_int_equal(gguf_open(path, &r->g, err), MC_OK);
    assert_int_equal(weights_open(r->g, &r->w, err), MC_OK);
    struct expert_cache_options opt = options_of(r);
    expert_cache_sizes(&opt, &least, &all);
    assert_true(least < all);
    opt.bytes = least + (uint64_t)(share * (double)(all - least));
    opt.io = io;
    opt.fault = fault;
    enum mc_code code = expert_cache_create(r->g, &opt, &r->c, err);
    if (!code) {
        struct os_region *region = expert_cache_region(r->c);
        assert_true(os_region_size(region) <= opt.bytes + 64);
        assert_int_equal(os_region_touch(region, 0, os_region_size(region), err), MC_OK);
        code = expert_cache_start(r->c, r->w, err);
    }
    return code;
}

static void rig_close(struct rig *r)
{
    expert_cache_destroy(r->c);
    weights_close(r->w);
    gguf_close(r->g);
}

static void check_bytes(const struct rig *r, unsigned il, uint32_t e)
{
    for (unsigned p = 0; p < EXPERT_PIECES; p++) {
        const size_t bytes = floats[il][p] * 4;
        const uint8_t *want = (const uint8_t *)weights_tensor(r->w, il * EXPERT_PIECES + p) + e * bytes;
        assert_memory_equal(expert_piece(r->c, il, e, p), want, bytes);
    }
}

/* One layer of one token: USED different experts, in the order they come; what stays borrowed is read again at the end. */
static enum mc_code token_layer(const struct rig *r, unsigned il, uint32_t *x, struct mc_err *err)
{
    uint32_t ids[USED];
    enum { TO_ASK, ASKED, DONE } state[USED] = {TO_ASK};
    for (unsigned i = 0; i < USED; i++) {
    again:
        ids[i] = next(x) % 3 ? next(x) % 6 : next(x) % EXPERTS; /* some are hot */
        for (unsigned j = 0; j < i; j++)
            if (ids[j] == ids[i]) goto again;
    }
    unsigned left = USED;
    enum mc_code code = MC_OK;
    while (left) {
        const unsigned before = left;
        for (unsigned i = 0; i < USED; i++) {
            if (state[i] == DONE) continue;
            const enum expert_state s = state[i] == TO_ASK ? expert_borrow(r->c, il, ids[i], 1) : expert_look(r->c, il, ids[i]);
            if (s == EXPERT_NO_ROOM) continue;
            state[i] = s == EXPERT_COMING ? ASKED : DONE;
            if (state[i] == DONE) left--;
            if (s == EXPERT_READY) {
                check_bytes(r, il, ids[i]);
                expert_return(r->c, il, ids[i]);
            }
            if (s == EXPERT_FAILED) code = MC_EIO;
        }
        if (left == before) expert_wait(r->c);
    }
    const enum mc_code said = expert_cache_error(r->c, err);
    if (code) assert_int_equal(said, MC_EIO);
    return code ? code : said;
}

static enum mc_code run(const struct rig *r, unsigned tokens, struct mc_err *err)
{
    uint32_t x = 99;
    for (unsigned t = 0; t < tokens; t++) {
        for (unsigned il = 0; il < LAYERS; il++) {
            if (next(&x) % 2) expert_wish(r->c, il, next(&x) % EXPERTS, next(&x) % 2);
            const enum mc_code code = token_layer(r, il, &x, err);
            if (code) return code;
        }
        expert_cache_pass(r->c, 1);
    }
    return MC_OK;
}

static void test_every_size_and_way_gives_the_file(void **state)
{
    (void)state;
    static const enum weights_io ways[] = {WEIGHTS_AUTO, WEIGHTS_URING, WEIGHTS_PREAD};
    uint64_t misses_before = UINT64_MAX;
    for (unsigned way = 0; way < ARRAY_LEN(ways); way++) {
        misses_before = UINT64_MAX;
        for (unsigned part = 0; part <= 4; part++) {
            struct rig r;
            struct mc_err err;
            const enum mc_code code = rig_open(&r, part / 4.0, ways[way], NULL, &err);
            if (code == MC_EUNSUPPORTED && ways[way] == WEIGHTS_URING) { /* forbidden here */
                printf("skipped: %s\n", err.msg);
                rig_close(&r);
                break;
            }
            assert_int_equal(code, MC_OK);
            assert_int_equal(run(&r, 300, &err), MC_OK);
            struct expert_counts n;
            uint64_t hits = 0, misses = 0;
            expert_cache_counts_get(r.c, &n);
            assert_int_equal(n.hits + n.misses, 300 * LAYERS * USED);
            for (unsigned il = 0; il < LAYERS; il++) {
                uint64_t h, m;
                expert_cache_layer_counts(r.c, il, &h, &m);
                hits += h, misses += m;
            }
            assert_int_equal(hits, n.hits);
            assert_int_equal(misses, n.misses);
            assert_true(n.misses < misses_before);
            misses_before = n.misses;
            if (part == 4) assert_true(n.misses <= LAYERS * EXPERTS); /* each at most once */
            assert_int_equal(n.retries, 0);
            rig_close(&r);
        }
    }
}

static void test_hot_experts_stay(void **state)
{
    (void)state;
    struct rig r;
    struct mc_err err;
    assert_int_equal(rig_open(&r, 0, WEIGHTS_AUTO, NULL, &err), MC_OK);
    struct expert_cache_facts f;
    expert_cache_facts_get(r.c, &f);
    assert_int_equal(f.n_slots, 2 * (USED + 2)); /* of two sizes */
    /* three hot ones in layer 2; then every other expert once, as a long prompt does, counting little */
    for (unsigned turn = 0; turn < 5; turn++)
        for (uint32_t e = 0; e < 3; e++) {
            while (expert_borrow(r.c, 2, e, 1) == EXPERT_COMING && expert_look(r.c, 2, e) == EXPERT_COMING) expert_wait(r.c);
            expert_return(r.c, 2, e);
        }
    for (uint32_t e = 3; e < EXPERTS; e++) {
        enum expert_state s = expert_borrow(r.c, 2, e, 0.1);
        while (s == EXPERT_COMING) {
            expert_wait(r.c);
            s = expert_look(r.c, 2, e);
        }
        assert_int_equal(s, EXPERT_READY);
        expert_return(r.c, 2, e);
    }
    for (uint32_t e = 0; e < 3; e++) {
        assert_int_equal(expert_borrow(r.c, 2, e, 1), EXPERT_READY);
        expert_return(r.c, 2, e);
    }
    rig_close(&r);
}

static void test_borrowed_ones_are_never_evicted(void **state)
{
    (void)state;
    struct rig r;
    struct mc_err err;
    assert_int_equal(rig_open(&r, 0, WEIGHTS_AUTO, NULL, &err), MC_OK);
    const uint32_t n = USED + 2; /* slots for layer 2 */
    for (uint32_t e = 0; e < n; e++) {
        enum expert_state s = expert_borrow(r.c, 2, e, 1);
        for (; s == EXPERT_COMING; s = expert_look(r.c, 2, e)) expert_wait(r.c);
        assert_int_equal(s, EXPERT_READY);
    }
    assert_int_equal(expert_borrow(r.c, 2, n, 1), EXPERT_NO_ROOM);
    expert_wish(r.c, 2, n, true); /* has to do nothing */
    expert_wait(r.c);             /* nothing in flight: must come back */
    for (uint32_t e = 0; e < n; e++) check_bytes(&r, 2, e);
    expert_return(r.c, 2, 1);
    enum expert_state s = expert_borrow(r.c, 2, n, 1);
    for (; s == EXPERT_COMING; s = expert_look(r.c, 2, n)) expert_wait(r.c);
    assert_int_equal(s, EXPERT_READY);
    check_bytes(&r, 2, n);
    for (uint32_t e = 0; e < n; e++)
        if (e != 1) check_bytes(&r, 2, e);
    rig_close(&r);
}

static void test_bad_disks(void **state)
{
    (void)state;
    static const enum weights_io ways[] = {WEIGHTS_AUTO, WEIGHTS_PREAD};
    for (unsigned way = 0; way < ARRAY_LEN(ways); way++)
        for (int kind = GOOD; kind <= DEAD_END; kind++) {
            struct disk disk = {.kind = kind, .from = 300000, .to = 301000};
            const struct stream_fault fault = {answer, &disk};
            struct rig r;
            struct mc_err err;
            if (kind == STUTTER && !os_read_again(-11)) continue; /* another error here */
            assert_int_equal(rig_open(&r, 0.2, ways[way], &fault, &err), MC_OK);
            const enum mc_code code = run(&r, 200, &err);
            struct expert_counts n;
            expert_cache_counts_get(r.c, &n);
            assert_int_equal(code, kind == BROKEN || kind == DEAD_END ? MC_EIO : MC_OK);
            if (code) assert_non_null(strstr(err.msg, path));
            assert_int_equal(n.retries > 0, kind >= FAILS_ONCE);
            if (code) { /* the disk is mended: the next request is served */
                disk.kind = GOOD;
                assert_int_equal(run(&r, 20, &err), MC_OK);
            }
            rig_close(&r);
        }
}

static void test_too_little_is_refused(void **state)
{
    (void)state;
    struct rig r = {0};
    struct mc_err err;
    uint64_t least, all;
    assert_int_equal(gguf_open(path, &r.g, &err), MC_OK);
    struct expert_cache_options opt = options_of(&r);
    expert_cache_sizes(&opt, &least, &all);
    opt.bytes = least - 1;
    assert_int_equal(expert_cache_create(r.g, &opt, &r.c, &err), MC_ENOMEM);
    assert_non_null(strstr(err.msg, "MiB is the least"));
    gguf_close(r.g);
}

static void test_uses_are_kept(void **state)
{
    (void)state;
    static const char file[] = "test_expert_cache.use";
    enum { N = LAYERS * EXPERTS };
    struct rig r;
    struct mc_err err;
    float use[N], got[N];
    assert_int_equal(rig_open(&r, 0.4, WEIGHTS_AUTO, NULL, &err), MC_OK);
    assert_int_equal(run(&r, 300, &err), MC_OK);
    expert_cache_uses(r.c, use);
    assert_int_equal(expert_use_save(file, LAYERS, EXPERTS, use, &err), MC_OK);
    rig_close(&r);

    assert_int_equal(expert_use_load(file, LAYERS, EXPERTS, got, &err), MC_OK);
    assert_memory_equal(got, use, sizeof use);
    assert_int_equal(rig_open(&r, 0.4, WEIGHTS_AUTO, NULL, &err), MC_OK);
    expert_cache_remember(r.c, got);
    assert_int_equal(expert_cache_warm(r.c, NULL, NULL, &err), MC_OK);
    struct expert_cache_facts f;
    expert_cache_facts_get(r.c, &f);
    assert_true(f.n_pinned > 0 && f.n_pinned <= f.n_slots / 4);
    for (unsigned il = 0; il < LAYERS; il++) { /* the hot ones of `run` are there, whatever else was asked for since */
        for (uint32_t e = 10; e < EXPERTS; e++) {
            enum expert_state s = expert_borrow(r.c, il, e, 0.1);
            for (; s == EXPERT_COMING; s = expert_look(r.c, il, e)) expert_wait(r.c);
            assert_int_equal(s, EXPERT_READY);
            check_bytes(&r, il, e);
            expert_return(r.c, il, e);
        }
        unsigned there = 0;
        for (uint32_t e = 0; e < 6; e++) {
            const enum expert_state s = expert_borrow(r.c, il, e, 1);
            there += s == EXPERT_READY;
            if (s == EXPERT_READY) check_bytes(&r, il, e);
            while (s == EXPERT_COMING && expert_look(r.c, il, e) == EXPERT_COMING) expert_wait(r.c);
            expert_return(r.c, il, e);
        }
        assert_true(there >= 3);
    }
    assert_int_equal(run(&r, 100, &err), MC_OK);
    rig_close(&r);

    /* A file that is wrong in any way is refused with its name. */
    static const struct {
        size_t at;
        const char *says;
    } lies[] = {{0, "no such file"},   {8, "another version"}, {12, "another model"},
                {16, "another model"}, {24, "damaged"},        {40, "damaged"}};
    char *text;
    size_t size;
    assert_int_equal(os_file_read_all(file, 4096, &text, &size, &err), MC_OK);
    for (size_t i = 0; i <= ARRAY_LEN(lies); i++) {
        FILE *out = fopen(file, "wb");
        assert_non_null(out);
        if (i < ARRAY_LEN(lies)) text[lies[i].at] ^= 1;
        fwrite(text, 1, i < ARRAY_LEN(lies) ? size : size - 1, out);
        fclose(out);
        if (i < ARRAY_LEN(lies)) text[lies[i].at] ^= 1;
        assert_int_equal(expert_use_load(file, LAYERS, EXPERTS, got, &err), MC_EFORMAT);
        assert_non_null(strstr(err.msg, i < ARRAY_LEN(lies) ? lies[i].says : "another model"));
        assert_non_null(strstr(err.msg, file));
    }
    free(text);
    remove(file);
    assert_int_equal(expert_use_load(file, LAYERS, EXPERTS, got, &err), MC_EIO);
}

static void test_rank_is_the_sum_it_stands_for(void **state)
{
    (void)state;
    enum { N = 40 };
    static const double half_life = 16;
    struct expert_rank rank;
    uint32_t at[N], place[N], x = 5;
    double sum[N] = {0};
    assert_int_equal(expert_rank_init(&rank, N, half_life, NULL), MC_OK);
    struct expert_heap h = {.rank = &rank, .at = at, .place = place};
    memset(place, 0xff, sizeof place);
    for (unsigned t = 0; t < 2000; t++) {
        for (unsigned i = 0; i < 5; i++) {
            const uint32_t e = next(&x) % (i < 2 ? N : 8);
            const double weight = next(&x) % 4 ? 1 : 0.25;
            if (expert_heap_has(&h, e)) expert_heap_remove(&h, e);
            expert_rank_use(&rank, e, weight);
            sum[e] += weight;
            if (next(&x) % 3) expert_heap_put(&h, e);
        }
        expert_rank_pass(&rank, 1);
        for (unsigned e = 0; e < N; e++) sum[e] *= exp2(-1 / half_life);
        for (uint32_t i = 0; i < h.n; i++) {
            assert_int_equal(place[at[i]], i);
            assert_true(rank.worth[at[0]] <= rank.worth[at[i]]);
        }
    }
    for (unsigned e = 0; e < N; e++) assert_true(fabs(exp2(rank.worth[e] - rank.now) - sum[e]) <= 1e-9 * (1 + sum[e]));
    while (h.n) { /* least first */
        const uint32_t e = at[0];
        expert_heap_remove(&h, e);
        if (h.n) assert_true(rank.worth[e] <= rank.worth[at[0]]);
    }
    expert_rank_deinit(&rank);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_size_and_way_gives_the_file),
        cmocka_unit_test(test_hot_experts_stay),
        cmocka_unit_test(test_borrowed_ones_are_never_evicted),
        cmocka_unit_test(test_bad_disks),
        cmocka_unit_test(test_too_little_is_refused),
        cmocka_unit_test(test_uses_are_kept),
        cmocka_unit_test(test_rank_is_the_sum_it_stands_for),
    };
    make_file();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
