/* check_matmul.c - products of every weight format: 1..33 columns, 1..37 rows and splits of them, short and real lengths.
 *
 * The twin runs once with all rows and columns; every smaller run must repeat its part of the bytes, because an output depends
 * on its row and column only. Each column of activations has a pattern of its own. The packed form of the same weights (pack.h)
 * must give the bytes of the file layout. */
#include "kernels/check/ck.h"

#include "kernels/pack.h"

#include <stdio.h>

enum { ROWS = 37, COLS = 33 };

struct job {
    enum quant_type type;
    size_t k, stride, rows, cols;
    const char *w;
    const char *packed; /* NULL: the file layout is checked */
    size_t group_bytes;
    const void *x[COLS];
    const float *want; /* [cols][rows] */
};

static size_t act_bytes(const struct job *j)
{
    const enum quant_act act = quant_info(j->type)->act;
    return act == QUANT_ACT_F32 ? 4 * j->k : kern_act_row_bytes(act, j->k);
}

/* Integer rows are aligned and may be over-read, float rows may not: the last column ends at the fence. */
static void make_columns(struct ck *k, struct job *j)
{
    static const enum ck_pattern patterns[] = {CK_RANDOM, CK_EQUAL, CK_SPIKE, CK_ZERO, CK_TIES, CK_DENORMALS};
    const enum quant_act act = quant_info(j->type)->act;
    const size_t bytes = act_bytes(j);
    char *rows = act == QUANT_ACT_F32 ? ck_input(k, j->cols * bytes, 0) : ck_input_aligned(k, j->cols * bytes, 64);
    float *x = ck_input(k, 4 * j->k, 0);
    if (act != QUANT_ACT_F32) memset(rows, 0, j->cols * bytes); /* gaps between the arrays */
    for (size_t c = 0; c < j->cols; c++) {
        ck_fill_floats(k, x, j->k, patterns[c % ARRAY_LEN(patterns)]);
        k->ref->quantize[act](rows + c * bytes, x, j->k, 0, j->k);
        j->x[c] = rows + c * bytes;
    }
}

static struct job make_job(struct ck *k, enum quant_type type, size_t n, size_t rows, size_t cols, size_t gap,
                           enum ck_weights p)
{
    struct job j = {.type = type, .k = n, .rows = rows, .cols = cols};
    float *y[COLS];
    ck_case(k, "k %zu, rows %zu, columns %zu, row gap %zu, weights %u", n, rows, cols, gap, (unsigned)p);
    j.stride = quant_row_bytes(quant_info(type), n) + gap;
    j.w = ck_blocks(k, type, n, rows, j.stride, p);
    make_columns(k, &j);
    float *want = ck_output(k, 4 * rows * cols);
    for (size_t c = 0; c < cols; c++) y[c] = want + c * rows;
    k->ref->matmul[type](y, j.w, j.stride, j.x, n, rows, cols);
    j.want = want;
    return j;
}

/* Rows r0 .. r0+rows of columns c0 .. c0+cols. */
static void run_part(struct ck *k, const struct job *j, size_t r0, size_t rows, size_t c0, size_t cols)
{
    const unsigned slots = k->slots_used; /* the job's inputs stay */
    if (!ck_ok(k)) return;
    float *got = ck_output(k, 4 * rows * cols), *want = ck_output(k, 4 * rows * cols), *y[COLS];
    for (size_t c = 0; c < cols; c++) {
        y[c] = got + c * rows;
        memcpy(want + c * rows, j->want + (c0 + c) * j->rows + r0, 4 * rows);
    }
    if (j->packed)
        k->t->packed[j->type](y, j->packed + r0 / KERN_PACK_ROWS * j->group_bytes, j->x + c0, j->k, rows, cols);
    else
        k->t->matmul[j->type](y, j->w + r0 * j->stride, j->stride, j->x + c0, j->k, rows, cols);
    char what[64];
    snprintf(what, sizeof what, "rows %zu+%zu, columns %zu+%zu: y", r0, rows, c0, cols);
    ck_same_floats(k, want, got, rows * cols, what);
    k->slots_used = slots;
}

static void all_shapes(struct ck *k, const struct job *j)
{
    for (size_t cols = 1; cols <= j->cols; cols++) run_part(k, j, 0, j->rows, 0, cols);
    for (size_t rows = 1; rows <= j->rows; rows++) {
        run_part(k, j, 0, rows, 0, 1);
        run_part(k, j, j->rows - rows, rows, 7, 5);
    }
    run_part(k, j, 3, 11, 2, j->cols - 2);
}

static void check_lengths(struct ck *k, enum quant_type type)
{
    static const size_t float_lengths[] = {1, 7, 15, 16, 17, 31, 33, 100, 1023, 1040};
    const size_t block = quant_info(type)->block_len;
    for (size_t i = 1; block > 1 && i <= 5 && ck_ok(k); i += i < 3 ? 1 : 2) { /* 1, 2, 3, 5 blocks */
        const struct job j = make_job(k, type, i * block, ROWS, i == 2 ? COLS : 14, i == 3 ? 13 : 0, CK_W_RANDOM);
        all_shapes(k, &j);
    }
    for (size_t i = 0; block == 1 && i < ARRAY_LEN(float_lengths) && ck_ok(k); i++) {
        const struct job j = make_job(k, type, float_lengths[i], ROWS, i == 4 ? COLS : 14, i == 5 ? 13 : 0, CK_W_RANDOM);
        all_shapes(k, &j);
    }
}

void check_matmul(struct ck *k, unsigned type, struct ck_numbers *out)
{
    const size_t bench_rows = quant_info(type)->act == QUANT_ACT_F32 ? 32 : 128;
    if (k->t != k->ref) {
        check_lengths(k, type);
        for (enum ck_weights p = 0; p < CK_WEIGHTS && ck_ok(k); p++) {
            const struct job j = make_job(k, type, 512, ROWS, 13, 0, p);
            run_part(k, &j, 0, ROWS, 0, 1);
            run_part(k, &j, 0, ROWS, 0, 13);
            run_part(k, &j, 0, ROWS - 1, 3, 4);
        }
    }
    if (!ck_ok(k)) return;
    const struct job j = make_job(k, type, 4096, bench_rows, 8, 0, CK_W_RANDOM);
    float *y[8], *room = ck_output(k, 4 * bench_rows * 8);
    for (size_t c = 0; c < 8; c++) y[c] = room + c * bench_rows;
    if (k->t != k->ref) {
        run_part(k, &j, 0, bench_rows, 0, 1);
        run_part(k, &j, 0, bench_rows, 0, 4);
        run_part(k, &j, 1, bench_rows - 1, 0, 8);
    }
    out->weights = (double)(4096 * bench_rows);
    out->bytes = (double)(bench_rows * j.stride);
    CK_BENCH(k) k->t->matmul[type](y, j.w, j.stride, j.x, 4096, bench_rows, 8);
    out->ns8 = k->timer.best_ns;
    CK_BENCH(k) k->t->matmul[type](y, j.w, j.stride, j.x, 4096, bench_rows, 1);
    out->ns = k->timer.best_ns;
}

/* ---- packed form ---- */

static struct job make_packed(struct ck *k, enum quant_type type, size_t n, size_t rows, size_t cols, enum ck_weights p)
{
    struct job j = make_job(k, type, n, rows, cols, 0, p);
    j.group_bytes = kern_pack_group_bytes(type, n);
    char *packed = ck_input_aligned(k, rows / KERN_PACK_ROWS * j.group_bytes, 0);
    for (size_t g = 0; g < rows / KERN_PACK_ROWS; g++)
        k->ref->pack[type](packed + g * j.group_bytes, j.w + g * KERN_PACK_ROWS * j.stride, j.stride, n);
    j.packed = packed;
    return j;
}

static void check_packed_shapes(struct ck *k, enum quant_type type)
{
    static const size_t blocks[] = {1, 2, 3, 5};
    for (size_t i = 0; i < ARRAY_LEN(blocks) && ck_ok(k); i++) {
        const struct job j = make_packed(k, type, blocks[i] * quant_info(type)->block_len, 80, i ? 14 : COLS, CK_W_RANDOM);
        for (size_t cols = 1; cols <= j.cols; cols++) run_part(k, &j, 0, j.rows, 0, cols);
        for (size_t r0 = 0; r0 < j.rows; r0 += KERN_PACK_ROWS) {
            run_part(k, &j, r0, KERN_PACK_ROWS, 3, 1);
            run_part(k, &j, r0, j.rows - r0, 5, 4);
        }
    }
    for (enum ck_weights p = 0; p < CK_WEIGHTS && ck_ok(k); p++) {
        const struct job j = make_packed(k, type, 512, 32, 13, p);
        run_part(k, &j, 0, 32, 0, 1);
        run_part(k, &j, 0, 32, 0, 13);
    }
}

/* With the scalar table (bench only) the twin's product in the file layout is timed. */
static double time_packed(struct ck *k, const struct job *j, float *const *y, size_t cols)
{
    CK_BENCH(k)
    {
        if (k->t == k->ref)
            k->ref->matmul[j->type](y, j->w, j->stride, j->x, j->k, j->rows, cols);
        else
            k->t->packed[j->type](y, j->packed, j->x, j->k, j->rows, cols);
    }
    return k->timer.best_ns;
}

void check_packed(struct ck *k, unsigned type, struct ck_numbers *out)
{
    enum { N = 4096, BENCH_ROWS = 128 };
    float *y[8];
    if (k->t != k->ref) check_packed_shapes(k, type);
    if (!ck_ok(k)) return;
    const struct job j = make_packed(k, type, N, BENCH_ROWS, 8, CK_W_RANDOM);
    for (size_t cols = 1; k->t != k->ref && cols <= 8; cols++) run_part(k, &j, 0, BENCH_ROWS, 0, cols);
    float *room = ck_output(k, 4 * BENCH_ROWS * 8);
    for (size_t c = 0; c < 8; c++) y[c] = room + c * BENCH_ROWS;
    out->weights = N * BENCH_ROWS;
    out->bytes = (double)(BENCH_ROWS / KERN_PACK_ROWS * j.group_bytes);
    out->ns8 = time_packed(k, &j, y, 8);
    out->ns = time_packed(k, &j, y, 1);
}
