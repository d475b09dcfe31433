/* test_packed.c - the packed form of matrices (kernels/pack.h).
 *
 * Goal: the layout holds exactly what the file holds, and every packed kernel of this CPU gives the bytes of the scalar twin on
 * the file layout. Method: group sizes against the table in pack.h; q8_0 and q4_K groups read back by hand; products of random
 * and extreme blocks for 1..33 columns, 16..96 rows, short, odd and real lengths, every type. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu_flags.h"
#include "kernels/kernels.h"
#include "kernels/pack.h"
#include "kernels/quant/blocks.h"
#include "platform/base/bytes.h"
#include "platform/base/compiler.h"

static uint8_t random_byte(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint8_t)(*state >> 56);
}

/* ---- the layout ---- */

static const struct kern_table *scalar(void)
{
    static struct kern_table t;
    kern_table_init(&t, 0);
    return &t;
}

static void test_sizes_are_those_of_the_table(void **state)
{
    static const struct {
        enum quant_type type;
        double bits;
    } table[] = {
        {QUANT_Q8_0, 8.5},      {QUANT_Q1_0, 1.125},     {QUANT_Q4_0, 4.5},      {QUANT_Q2_0, 2.25},    {QUANT_Q4_1, 5},
        {QUANT_Q5_0, 5.5},      {QUANT_Q5_1, 6},         {QUANT_IQ4_NL, 4.5},    {QUANT_MXFP4, 4.25},   {QUANT_NVFP4, 4.5},
        {QUANT_Q2_K, 2.625},    {QUANT_Q3_K, 3.5625},    {QUANT_Q4_K, 4.625},    {QUANT_Q5_K, 5.625},   {QUANT_Q6_K, 6.5625},
        {QUANT_IQ4_XS, 4.3125}, {QUANT_IQ2_XXS, 3.1875}, {QUANT_IQ2_XS, 3.3125}, {QUANT_IQ2_S, 3.3125}, {QUANT_IQ3_XXS, 4.1875},
        {QUANT_IQ3_S, 4.1875},  {QUANT_IQ1_S, 2.1875},   {QUANT_IQ1_M, 2.4375},  {QUANT_TQ1_0, 2.0625}, {QUANT_TQ2_0, 2.0625}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        const size_t bytes = kern_pack_group_bytes(table[i].type, 4096);
        assert_int_equal(bytes, (size_t)(table[i].bits * 16 * 4096 / 8));
        for (size_t k = 256; k <= 1024; k += 256) assert_int_equal(kern_pack_group_bytes(table[i].type, k) % 64, 0);
    }
    assert_int_equal(kern_pack_group_bytes(QUANT_F32, 4096), 0);
    assert_int_equal(kern_pack_group_bytes(QUANT_F16, 4096), 0);
    assert_int_equal(kern_pack_group_bytes(QUANT_I32, 4096), 0);
}

static void test_q8_0_group_reads_back(void **state)
{
    enum { BLOCKS = 3, GROUP = 128 + BLOCKS * 512 };
    static MC_ALIGNED(64) uint8_t group[GROUP + 64];
    struct block_q8_0 rows[16][BLOCKS];
    uint64_t random = 1;
    (void)state;
    for (size_t i = 0; i < sizeof rows; i++) ((uint8_t *)rows)[i] = random_byte(&random) & 0x7B; /* no exponent of all ones */
    memset(group, 0xEE, sizeof group);
    assert_int_equal(kern_pack_group_bytes(QUANT_Q8_0, 32 * BLOCKS), GROUP);
    scalar()->pack[QUANT_Q8_0](group, rows, sizeof rows[0], 32 * BLOCKS);
    for (size_t r = 0; r < 16; r++)
        for (size_t b = 0; b < BLOCKS; b++) {
            assert_memory_equal(group + 32 * b + 2 * r, rows[r][b].d, 2);
            for (size_t c = 0; c < 32; c++)
                assert_int_equal(group[128 + 512 * b + 64 * (c / 4) + 4 * r + c % 4], rows[r][b].q[c] + 128);
        }
    for (size_t i = 32 * BLOCKS; i < 128; i++) assert_int_equal(group[i], 0); /* rest of the head */
    for (size_t i = GROUP; i < sizeof group; i++) assert_int_equal(group[i], 0xEE);
}

static void test_q5_K_group_reads_back(void **state)
{
    static MC_ALIGNED(64) uint8_t group[2944];
    struct block_q5_K rows[16];
    uint64_t random = 2;
    (void)state;
    for (size_t i = 0; i < sizeof rows; i++) ((uint8_t *)rows)[i] = random_byte(&random) & 0x7B;
    assert_int_equal(kern_pack_group_bytes(QUANT_Q5_K, 256), 64 + 256 + 8 * 320);
    scalar()->pack[QUANT_Q5_K](group, rows, sizeof rows[0], 256);
    for (size_t r = 0; r < 16; r++) {
        const struct block_q5_K *p = &rows[r];
        assert_memory_equal(group + 2 * r, p->d, 2);
        assert_memory_equal(group + 32 + 2 * r, p->dmin, 2);
        assert_int_equal(group[64 + 2 * r + 1], p->s[1] & 63);                                 /* scale 1: pair 0 */
        assert_int_equal(group[64 + 64 + 2 * r], (p->s[8] & 15) | p->s[0] >> 6 << 4);          /* scale 4: pair 2 */
        assert_int_equal(group[64 + 128 + 96 + 2 * r + 1], p->s[11] >> 4 | p->s[7] >> 6 << 4); /* minimum 7: pair 3 */
        for (size_t c = 0; c < 256; c++) {
            const uint8_t *lines = group + 64 + 256 + 320 * (c / 32);
            const size_t in = c % 32;
            const unsigned four = lines[64 * (in / 8) + 4 * r + in % 4] >> (4 * (in / 4 % 2)) & 15;
            const unsigned one = lines[256 + 4 * r + in % 4] >> (in / 4) & 1;
            assert_int_equal(four, p->qs[32 * (c / 64) + in] >> (4 * (c / 32 % 2)) & 15);
            assert_int_equal(one, p->qh[in] >> (c / 32) & 1);
        }
    }
}

/* ---- products: what checkkern's small shapes leave out ---- */

enum { ROWS_MAX = 96, COLS_MAX = 33 };

struct product {
    enum quant_type type;
    size_t k, rows;
    uint8_t *w, *packed, *x[COLS_MAX];
    float *want, *got; /* [COLS_MAX][rows] */
};

/* Zeroed and 64-byte aligned; the address that malloc gave stands in front. mingw has no aligned_alloc. */
static void *room(size_t bytes)
{
    char *raw = calloc(1, bytes + 192);
    assert_non_null(raw);
    char *p = raw + 64 + (64 - (uintptr_t)raw % 64) % 64;
    memcpy(p - sizeof raw, &raw, sizeof raw);
    return p;
}

static void leave(void *p)
{
    char *raw;
    if (!p) return;
    memcpy(&raw, (char *)p - sizeof raw, sizeof raw);
    free(raw);
}

/* Random bytes; the float scales are made finite by clearing a bit of their exponents wherever they may be: in every byte. */
static void fill_weights(uint8_t *w, size_t bytes, uint64_t *random, unsigned pattern)
{
    for (size_t i = 0; i < bytes; i++) {
        const uint8_t v = random_byte(random);
        w[i] = (uint8_t)((pattern == 0 ? v : pattern == 1 ? 0xFF : pattern == 2 ? 0x80 : v % 2 ? 0xFF : 0) & 0xBF);
    }
}

static void make_product(struct product *p, const struct kern_table *ref, enum quant_type type, size_t k, size_t rows,
                         unsigned pattern)
{
    const size_t row_bytes = quant_row_bytes(quant_info(type), k), group = kern_pack_group_bytes(type, k);
    const enum quant_act act = quant_info(type)->act;
    float *y[COLS_MAX], *x = room(4 * k);
    uint64_t random = 11 * k + type;
    *p = (struct product){.type = type, .k = k, .rows = rows, .w = room(rows * row_bytes), .packed = room(rows / 16 * group)};
    p->want = room(4 * rows * COLS_MAX), p->got = room(4 * rows * COLS_MAX);
    fill_weights(p->w, rows * row_bytes, &random, pattern);
    for (size_t g = 0; g < rows / 16; g++) ref->pack[type](p->packed + g * group, p->w + 16 * g * row_bytes, row_bytes, k);
    for (size_t c = 0; c < COLS_MAX; c++) {
        for (size_t i = 0; i < k; i++)
            x[i] = c % 4 == 3 ? (random_byte(&random) & 1 ? 3.0f : -3.0f) : (float)random_byte(&random) - 127;
        p->x[c] = room(kern_act_row_bytes(act, k));
        ref->quantize[act](p->x[c], x, k, 0, k);
        y[c] = p->want + c * rows;
    }
    leave(x);
    ref->matmul[type](y, p->w, row_bytes, (const void *const *)p->x, k, rows, COLS_MAX);
}

static void free_product(struct product *p)
{
    leave(p->w), leave(p->packed), leave(p->want), leave(p->got);
    for (size_t c = 0; c < COLS_MAX; c++) leave(p->x[c]);
}

static void compare(const struct product *p, const struct kern_table *t, size_t rows, size_t c0, size_t cols)
{
    float *y[COLS_MAX];
    for (size_t c = 0; c < cols; c++) y[c] = p->got + c * p->rows;
    memset(p->got, 0xEE, 4 * p->rows * COLS_MAX);
    t->packed[p->type](y, p->packed, (const void *const *)p->x + c0, p->k, rows, cols);
    for (size_t c = 0; c < cols; c++)
        for (size_t r = 0; r < p->rows; r++) {
            const float *got = y[c] + r, *want = p->want + (c0 + c) * p->rows + r;
            uint32_t left;
            memcpy(&left, got, 4);
            if (r < rows ? memcmp(got, want, 4) != 0 : left != 0xEEEEEEEE)
                fail_msg("%s %s, k %zu, rows %zu, columns %zu+%zu: y[%zu][%zu] is %.9g, the twin has %.9g", t->isa,
                         quant_info(p->type)->name, p->k, rows, c0, cols, c, r, (double)*got, (double)*want);
        }
}

static void compare_shapes(const struct product *p, const struct kern_table *t)
{
    for (size_t cols = 1; cols <= COLS_MAX; cols++) compare(p, t, p->rows, COLS_MAX - cols, cols);
    for (size_t rows = 16; rows < p->rows; rows += 16)
        for (size_t cols = 1; cols <= 6; cols++) compare(p, t, rows, cols, cols);
}

/* Lengths that are no multiple of 256 where the format allows it, odd numbers of blocks, and a long row. */
static void test_products_equal_the_scalar_twin(void **state)
{
    static const size_t lengths[] = {32, 96, 128, 256, 288, 768, 1056, 4096};
    const uint32_t flags = kern_cpu_flags(), sets[] = {KERN_AVX2, KERN_AVX2 | KERN_AVX_VNNI, KERN_AVX2 | KERN_AVX512};
    struct kern_table ref, t[ARRAY_LEN(sets)];
    size_t compared = 0;
    (void)state;
    kern_table_init(&ref, 0);
    for (size_t i = 0; i < ARRAY_LEN(sets); i++) kern_table_init(&t[i], flags & sets[i]);
    for (unsigned type = 0; type < QUANT_TYPE_COUNT; type++)
        for (size_t n = 0; n < ARRAY_LEN(lengths) && kern_pack_group_bytes((enum quant_type)type, 256); n++) {
            struct product p;
            if (lengths[n] % quant_info(type)->block_len) continue;
            make_product(&p, &ref, (enum quant_type)type, lengths[n], lengths[n] == 768 ? ROWS_MAX : 48, (unsigned)n % 4);
            for (size_t i = 0; i < ARRAY_LEN(sets); i++)
                if (t[i].packed[type]) compare_shapes(&p, &t[i]), compared++;
            free_product(&p);
        }
    print_message("%u products compared\n", (unsigned)compared);
    assert_true(compared > 0 || !(flags & KERN_AVX512));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_are_those_of_the_table),
        cmocka_unit_test(test_q8_0_group_reads_back),
        cmocka_unit_test(test_q5_K_group_reads_back),
        cmocka_unit_test(test_products_equal_the_scalar_twin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
