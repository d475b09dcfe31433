/* test_quants.c - every weight format against the golden vectors of tests/data/quants.
 *
 * Goal: decoding, quantising and the integers behind each product are right to the bit, and R1's float chain stays within
 * 1e-6 * sum|w a| of the float64 value. Method: for each table this CPU can run (scalar, AVX2, AVX-512) load the stored rows,
 * convert the stored activation bytes into the private row layout, compare. Row 9 of mxfp4 is left out of the products (its
 * scales overflow float32 sums; README.md there). */
#include "tests/unit/kernels/vectors.h"

#include "kernels/cpu_flags.h"
#include "kernels/f16.h"
#include "kernels/kernels.h"
#include "kernels/quant/grids.h"
#include "kernels/ref/unpack.h"

#include <math.h>

#define ACT_ROWS 9

static const struct kern_table *tables(size_t *n)
{
    static struct kern_table t[3]; /* test program: filled once */
    const uint32_t have = kern_cpu_flags();
    *n = 1;
    kern_table_init(&t[0], 0);
    if (have & KERN_AVX2) kern_table_init(&t[(*n)++], have & ~(uint32_t)KERN_AVX512);
    if (have & KERN_AVX512) kern_table_init(&t[(*n)++], have);
    return t;
}

static void *aligned_row(size_t bytes)
{
    char *raw = malloc(bytes + 3 * KERN_ALIGN); /* the contract allows over-reading a row by 64 bytes */
    assert_non_null(raw);
    char *p = raw + KERN_ALIGN - (uintptr_t)raw % KERN_ALIGN;
    memset(p, 0, bytes + KERN_ALIGN);
    p[-1] = (char)(p - raw);
    return p;
}

static void free_row(void *row)
{
    char *p = row;
    free(p - (unsigned char)p[-1]);
}

static int16_t sum_of(const int8_t *q, size_t n)
{
    int sum = 0;
    for (size_t i = 0; i < n; i++) sum += q[i];
    return (int16_t)sum;
}

/* Stored q8_0 or q8_1 bytes (block_bytes 34 or 36; only the latter have s) -> private row of k weights. */
static void *private_q8_0(const uint8_t *stored, size_t block_bytes, size_t k)
{
    void *row = aligned_row(kern_act_row_bytes(QUANT_ACT_Q8_0, k));
    char *p = row;
    int8_t *q = row;
    float *d = (float *)(p + KERN_PAD(k));
    int16_t *sum32 = (int16_t *)(p + KERN_PAD(k) + KERN_PAD(k / 32 * 4));
    float *s = (float *)(p + KERN_PAD(k) + KERN_PAD(k / 32 * 4) + KERN_PAD(k / 32 * 2));
    for (size_t b = 0; b < k / 32; b++) {
        const uint8_t *p0 = stored + b * block_bytes;
        memcpy(q + 32 * b, p0 + block_bytes - 32, 32);
        d[b] = f16_to_f32(mc_load_u16(p0));
        if (block_bytes == 36) s[b] = f16_to_f32(mc_load_u16(p0 + 2));
        sum32[b] = sum_of(q + 32 * b, 32);
    }
    assert_ptr_equal(kern_q8_0_view(row, k).s, s);
    return row;
}

static void *private_q8_k(const uint8_t *stored, size_t k)
{
    void *row = aligned_row(kern_act_row_bytes(QUANT_ACT_Q8_K, k));
    char *p = row;
    int8_t *q = row;
    float *d = (float *)(p + KERN_PAD(k));
    int16_t *sum32 = (int16_t *)(p + KERN_PAD(k) + KERN_PAD(k / 256 * 4));
    int16_t *sum16 = (int16_t *)((char *)sum32 + KERN_PAD(k / 32 * 2));
    int16_t *sum8 = (int16_t *)((char *)sum16 + KERN_PAD(k / 16 * 2));
    for (size_t b = 0; b < k / 256; b++) {
        memcpy(q + 256 * b, stored + 292 * b + 4, 256);
        d[b] = mc_load_f32(stored + 292 * b);
        for (size_t j = 0; j < 16; j++) sum16[16 * b + j] = (int16_t)mc_load_u16(stored + 292 * b + 260 + 2 * j);
    }
    for (size_t j = 0; j < k / 32; j++) sum32[j] = sum_of(q + 32 * j, 32);
    for (size_t j = 0; j < k / 8; j++) sum8[j] = sum_of(q + 8 * j, 8);
    assert_ptr_equal(kern_q8_k_view(row, k).sum8, sum8);
    return row;
}

struct acts {
    struct vec x, q8_0, q8_0_simd, q8_1, q8_k;
};

static struct acts load_acts(void)
{
    return (struct acts){vec_load("activations", "x"), vec_load("activations", "q8_0"), vec_load("activations", "q8_0_simd"),
                         vec_load("activations", "q8_1"), vec_load("activations", "q8_K")};
}

static void free_acts(struct acts *a)
{
    free(a->x.data), free(a->q8_0.data), free(a->q8_0_simd.data), free(a->q8_1.data), free(a->q8_k.data);
}

static bool wants_q8_1(enum quant_type type)
{
    return type == QUANT_Q4_1 || type == QUANT_Q5_1;
}

/* The nine activation rows, cut to k, as the stored products of `type` saw them. */
static void make_rows(void *rows[ACT_ROWS], const struct acts *a, enum quant_type type, size_t k)
{
    const enum quant_act act = quant_info(type)->act;
    for (size_t i = 0; i < ACT_ROWS; i++) {
        if (act == QUANT_ACT_Q8_0)
            rows[i] = wants_q8_1(type) ? private_q8_0(vec_row(&a->q8_1, i), 36, k) : private_q8_0(vec_row(&a->q8_0, i), 34, k);
        if (act == QUANT_ACT_Q8_K) rows[i] = private_q8_k(vec_row(&a->q8_k, i), k);
        if (act == QUANT_ACT_F32) memcpy(rows[i] = aligned_row(4 * k), vec_row(&a->x, i), 4 * k);
    }
}

static void free_rows(void *rows[ACT_ROWS])
{
    for (size_t i = 0; i < ACT_ROWS; i++) free_row(rows[i]);
}

static void test_grids_are_the_files_codebooks(void **state)
{
    (void)state;
#define CHECK_CRC(table, want)                                                                                                 \
    do {                                                                                                                       \
        uint32_t crc = 0xFFFFFFFF;                                                                                             \
        for (size_t i = 0; i < sizeof(table); i++) {                                                                           \
            crc ^= ((const uint8_t *)(table))[i];                                                                              \
            for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320 : 0);                                           \
        }                                                                                                                      \
        assert_int_equal(~crc, want);                                                                                          \
    } while (0);
    QUANT_GRIDS(CHECK_CRC)
}

static void test_types_by_number_and_name(void **state)
{
    (void)state;
    size_t known = 0;
    for (uint32_t type = 0; type < 300; type++) {
        const struct quant_info *info = quant_info(type);
        known += info != NULL;
        if (info)
            assert_int_equal(quant_type_of_name(info->name), type);
        else
            assert_true(strlen(quant_refusal(type)) > 5);
    }
    assert_int_equal(known, 29);
    assert_int_equal(quant_type_of_name("q8_1"), QUANT_TYPE_COUNT);
    assert_int_equal(quant_row_bytes(quant_info(QUANT_IQ1_S), 4096), 800);
}

static void test_every_type_has_its_slots(void **state)
{
    (void)state;
    size_t n;
    const struct kern_table *t = tables(&n);
    for (size_t i = 0; i < n; i++)
        for (unsigned type = 0; type < QUANT_TYPE_COUNT; type++) {
            const bool want = quant_info(type) && type != QUANT_I32;
            assert_int_equal(t[i].dequantize[type] != NULL, want);
            assert_int_equal(t[i].matmul[type] != NULL, want);
        }
}

static void test_dequantized_values_match_to_the_bit(void **state)
{
    (void)state;
    size_t n;
    const struct kern_table *t = tables(&n);
    for (unsigned type = 0; type < QUANT_TYPE_COUNT; type++) {
        const struct quant_info *info = quant_info(type);
        if (!info || type == QUANT_I32) continue;
        struct vec raw = vec_load(info->name, "raw"), want = vec_load(info->name, "dequant");
        const size_t k = want.dim[1];
        assert_int_equal(quant_row_bytes(info, k), raw.dim[1]);
        float *got = malloc(4 * k);
        for (size_t i = 0; i < n; i++)
            for (size_t r = 0; r < raw.dim[0]; r++) {
                t[i].dequantize[type](got, vec_row(&raw, r), k);
                if (memcmp(got, vec_row(&want, r), 4 * k)) fail_msg("%s, %s: row %zu differs", info->name, t[i].isa, r);
            }
        free(got), free(raw.data), free(want.data);
    }
}

static void test_special_floats(void **state)
{
    (void)state;
    static const enum quant_type types[] = {QUANT_F32, QUANT_F16, QUANT_BF16};
    size_t n;
    const struct kern_table *t = tables(&n);
    for (size_t j = 0; j < ARRAY_LEN(types); j++) {
        const char *name = quant_info(types[j])->name;
        struct vec raw = vec_load(name, "extremes"), want = vec_load(name, "extremes_f32");
        float got[8];
        for (size_t i = 0; i < n; i++) {
            t[i].dequantize[types[j]](got, raw.data, 8);
            assert_memory_equal(got, want.data, sizeof got);
        }
        free(raw.data), free(want.data);
    }
}

static void check_sums(const char *name, const struct ref_block *b, struct ref_law law, const int8_t *a, const int16_t *sums,
                       const int32_t *want, size_t n_want)
{
    if (n_want == law.len / law.step) {
        for (unsigned s = 0; s < n_want; s++)
            if (ref_sum(law, b, s, a) != want[s]) fail_msg("%s: sum %u is %d, not %d", name, s, ref_sum(law, b, s, a), want[s]);
        return;
    }
    assert_int_equal(n_want, 2); /* a minimum, or the shift of iq1_*: then I is eight times the first plus the second */
    const int32_t i = ref_sum(law, b, 0, a);
    if (law.minimum == REF_MIN_SUB) {
        assert_int_equal(i, want[0]);
        assert_int_equal(ref_min_sum(law, b, sums), want[1]);
    } else if (i != 8 * want[0] + want[1]) {
        fail_msg("%s: sum is %d, not 8 * %d + %d", name, i, want[0], want[1]);
    }
}

static void test_integers_of_each_block_are_exact(void **state)
{
    (void)state;
    struct acts acts = load_acts();
    for (unsigned type = 0; type < QUANT_TYPE_COUNT; type++) {
        const struct quant_info *info = quant_info(type);
        if (!info || info->act == QUANT_ACT_F32) continue;
        const struct ref_law law = ref_law_of(type);
        assert_int_equal(law.len, info->block_len);
        struct vec raw = vec_load(info->name, "raw"), want = vec_load(info->name, "dot_sums");
        const size_t blocks = want.dim[2], per = want.dim[3], k = blocks * law.len;
        void *x[ACT_ROWS];
        make_rows(x, &acts, type, k);
        for (size_t r = 0; r < raw.dim[0]; r++)
            for (size_t c = 0; c < ACT_ROWS; c++)
                for (size_t i = 0; i < blocks; i++) {
                    struct ref_block b;
                    const int8_t *q = (const int8_t *)x[c] + i * law.len;
                    const int32_t *sums = (const int32_t *)want.data + ((r * ACT_ROWS + c) * blocks + i) * per;
                    const int16_t *act_sums = NULL;
                    if (law.minimum == REF_MIN_SUB)
                        act_sums =
                            law.sub == 16 ? kern_q8_k_view(x[c], k).sum16 + 16 * i : kern_q8_k_view(x[c], k).sum32 + 8 * i;
                    ref_unpack(type, &b, (const uint8_t *)vec_row(&raw, r) + i * info->block_bytes);
                    check_sums(info->name, &b, law, q, act_sums, sums, per);
                }
        free_rows(x), free(raw.data), free(want.data);
    }
    free_acts(&acts);
}

/* Sum of |w a| with a as the product sees it (quantised, or float32). */
static double magnitude(const float *w, const struct acts *acts, enum quant_act act, size_t c, size_t k)
{
    double sum = 0;
    for (size_t i = 0; i < k; i++) {
        const uint8_t *b0 = (const uint8_t *)vec_row(&acts->q8_0, c) + i / 32 * 34;
        const uint8_t *bk = (const uint8_t *)vec_row(&acts->q8_k, c) + i / 256 * 292;
        const double a = act == QUANT_ACT_Q8_0   ? (double)f16_to_f32(mc_load_u16(b0)) * (int8_t)b0[2 + i % 32]
                         : act == QUANT_ACT_Q8_K ? (double)mc_load_f32(bk) * (int8_t)bk[4 + i % 256]
                                                 : (double)((const float *)vec_row(&acts->x, c))[i];
        sum += fabs((double)w[i] * a);
    }
    return sum;
}

/* One product of `rows` rows with 1..9 columns against float64 values [rows][9]. */
static void check_product(const struct kern_table *t, enum quant_type type, const struct vec *raw, const struct vec *want,
                          size_t rows, size_t k, const struct acts *acts, void *const x[ACT_ROWS])
{
    const struct quant_info *info = quant_info(type);
    float *w = malloc(4 * k), *y = malloc(4 * rows * ACT_ROWS), *first = malloc(4 * rows * ACT_ROWS), *yp[ACT_ROWS];
    double *bound = malloc(sizeof *bound * rows * ACT_ROWS);
    char *src = malloc(raw->bytes + KERN_ALIGN); /* weights may be over-read by 64 bytes */
    memcpy(src, raw->data, raw->bytes);
    memset(src + raw->bytes, 0x5A, KERN_ALIGN);
    for (size_t r = 0; r < rows; r++) {
        t->dequantize[type](w, vec_row(raw, r), k);
        for (size_t c = 0; c < ACT_ROWS; c++) bound[r * ACT_ROWS + c] = 1e-6 * magnitude(w, acts, info->act, c, k);
    }
    for (size_t cols = ACT_ROWS; cols >= 1; cols--) {
        for (size_t c = 0; c < cols; c++) yp[c] = y + c * rows;
        t->matmul[type](yp, src, raw->dim[1], (const void *const *)x, k, rows, cols);
        if (cols == ACT_ROWS) memcpy(first, y, 4 * rows * ACT_ROWS);
        assert_memory_equal(first, y, 4 * rows * cols); /* a column does not depend on its neighbours */
    }
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < ACT_ROWS; c++) {
            const double exact = ((const double *)want->data)[r * ACT_ROWS + c], got = (double)first[c * rows + r];
            if (!(fabs(got - exact) <= bound[r * ACT_ROWS + c]))
                fail_msg("%s, %s: row %zu column %zu is %.9g, not %.9g +- %.2g", info->name, t->isa, r, c, got, exact,
                         bound[r * ACT_ROWS + c]);
        }
    free(w), free(y), free(first), free(bound), free(src);
}

static void test_products(void **state)
{
    (void)state;
    size_t n;
    const struct kern_table *t = tables(&n);
    struct acts acts = load_acts();
    for (unsigned type = 0; type < QUANT_TYPE_COUNT; type++) {
        const struct quant_info *info = quant_info(type);
        if (!info || type == QUANT_I32) continue;
        const char *suffix[2] = {"", "tile."};
        for (int tile = 0; tile < 2; tile++) {
            char array[2][32];
            snprintf(array[0], 32, "%sraw", suffix[tile]);
            snprintf(array[1], 32, "%s%s", suffix[tile], info->act == QUANT_ACT_F32 ? "dot_exact" : "dot_int");
            struct vec raw = vec_load(info->name, array[0]), want = vec_load(info->name, array[1]);
            const size_t k = raw.dim[1] / info->block_bytes * info->block_len;
            const size_t rows = type == QUANT_MXFP4 && !tile ? 9 : raw.dim[0];
            void *x[ACT_ROWS];
            make_rows(x, &acts, type, k);
            for (size_t i = 0; i < n; i++) check_product(&t[i], type, &raw, &want, rows, k, &acts, x);
            free_rows(x), free(raw.data), free(want.data);
        }
    }
    free_acts(&acts);
}

/* The path of `--arith exact`: decoded weights, float32 activations. */
static void test_exact_products(void **state)
{
    (void)state;
    size_t n;
    const struct kern_table *t = tables(&n);
    struct vec x = vec_load("activations", "x");
    for (unsigned type = 0; type < QUANT_TYPE_COUNT; type++) {
        const struct quant_info *info = quant_info(type);
        if (!info || type == QUANT_I32) continue;
        struct vec raw = vec_load(info->name, "raw"), want = vec_load(info->name, "dot_exact"),
                   w = vec_load(info->name, "dequant");
        const size_t k = w.dim[1], rows = type == QUANT_MXFP4 ? 9 : raw.dim[0];
        float *first = malloc(4 * rows * ACT_ROWS), *got = malloc(4 * rows * ACT_ROWS), *y[ACT_ROWS];
        float *scratch = aligned_row(4 * k);
        const float *cols[ACT_ROWS];
        for (size_t i = 0; i < n; i++) {
            for (size_t c = 0; c < ACT_ROWS; c++) y[c] = (i ? got : first) + c * rows, cols[c] = vec_row(&x, c);
            kern_matmul_exact(&t[i], type, y, raw.data, raw.dim[1], cols, k, rows, ACT_ROWS, scratch);
            if (i) assert_memory_equal(got, first, 4 * rows * ACT_ROWS);
        }
        for (size_t r = 0; r < rows; r++)
            for (size_t c = 0; c < ACT_ROWS; c++) {
                const double exact = ((const double *)want.data)[r * ACT_ROWS + c], value = (double)first[c * rows + r];
                double sum = 0;
                for (size_t i = 0; i < k; i++) sum += fabs((double)((const float *)vec_row(&w, r))[i] * (double)cols[c][i]);
                if (!(fabs(value - exact) <= 1e-6 * sum))
                    fail_msg("%s: row %zu column %zu is %.9g, not %.9g", info->name, r, c, value, exact);
            }
        free(first), free(got), free_row(scratch), free(raw.data), free(want.data), free(w.data);
    }
    free(x.data);
}

/* q8_0_simd as stored, with the sums of q8_1 (whose stored codes differ at ties: there s is worked out here). */
static void *expected_q8_0(const struct acts *a, size_t c, size_t k)
{
    const uint8_t *simd = vec_row(&a->q8_0_simd, c), *q8_1 = vec_row(&a->q8_1, c);
    const float *x = vec_row(&a->x, c);
    char *row = private_q8_0(simd, 34, k);
    float *s = (float *)(row + ((const char *)kern_q8_0_view(row, k).s - row));
    for (size_t b = 0; b < k / 32; b++) {
        float amax = 0;
        for (size_t i = 0; i < 32; i++) amax = fmaxf(amax, fabsf(x[32 * b + i]));
        const bool same_codes = !memcmp(simd + 34 * b + 2, q8_1 + 36 * b + 4, 32);
        const float stored = f16_to_f32(mc_load_u16(q8_1 + 36 * b + 2));
        s[b] = f16_to_f32(f32_to_f16(amax / 127 * (float)kern_q8_0_view(row, k).sum32[b]));
        if (same_codes && s[b] == stored)
            s[b] = stored;
        else if (same_codes)
            fail_msg("s of block %zu is %g, stored %g", b, (double)s[b], (double)stored);
    }
    return row;
}

static void test_quantisers_write_the_stored_bytes(void **state)
{
    (void)state;
    size_t n;
    const struct kern_table *t = tables(&n);
    struct acts acts = load_acts();
    const size_t k = 4096;
    for (enum quant_act act = QUANT_ACT_Q8_0; act <= QUANT_ACT_Q8_K; act++) {
        const size_t bytes = kern_act_row_bytes(act, k), step = act == QUANT_ACT_Q8_0 ? 32 : 256;
        void *got = aligned_row(bytes);
        for (size_t c = 0; c < ACT_ROWS; c++) {
            const float *x = vec_row(&acts.x, c);
            void *want = act == QUANT_ACT_Q8_0 ? expected_q8_0(&acts, c, k) : private_q8_k(vec_row(&acts.q8_k, c), k);
            for (size_t i = 0; i < n; i++) {
                memset(got, 0, bytes);
                t[i].quantize[act](got, x, k, 0, k);
                assert_memory_equal(got, want, bytes);
                memset(got, 0, bytes); /* in three parts, not in order */
                t[i].quantize[act](got, x, k, 5 * step, k);
                t[i].quantize[act](got, x, k, 0, step);
                t[i].quantize[act](got, x, k, step, 5 * step);
                assert_memory_equal(got, want, bytes);
            }
            free_row(want);
        }
        free_row(got);
    }
    free_acts(&acts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types_by_number_and_name),
        cmocka_unit_test(test_exact_products),
        cmocka_unit_test(test_grids_are_the_files_codebooks),
        cmocka_unit_test(test_every_type_has_its_slots),
        cmocka_unit_test(test_dequantized_values_match_to_the_bit),
        cmocka_unit_test(test_special_floats),
        cmocka_unit_test(test_integers_of_each_block_are_exact),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_quantisers_write_the_stored_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
