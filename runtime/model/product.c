/* product.c - see product.h */
#include "runtime/model/product.h"

#include "kernels/pack.h"
#include "topology/workers.h"

#include <string.h>

enum {
    TILE_COLS = 64,       /* columns of a tile: enough to pay for unpacking a weight once */
    TILES_PER_WORKER = 8, /* small enough a tail at the end of a phase, few enough trips to the counter */
    TILE_ROWS_MIN = 16,
    TILE_ROWS_STEP = 64, /* what the kernels for one column do at a time */
    TILE_ROWS_MAX = 512,
    TILE_ROWS_MANY = 128, /* under several tiles of columns: their weights stay in L2 from one to the next */
    HOME_ROWS_MAX = 128,  /* gate and up rows come in groups of 128 that may be left out together */
    HOME_UNITS = 8,       /* units for each worker from which on one more or less is no unevenness */
    ASK_COLS = 4,         /* up to so many columns the kernels stream through their rows, and memory is what they wait for */
    ASK_GROUPS = 4,       /* groups of 16 packed rows that begin together */
    ASK_BYTES = 1536,     /* of each: from there on the kernels ask ahead themselves */
    ASK_ROW_BYTES = 256,  /* of 16 rows in the file's layout */
    LINE = 64,
};

static uint32_t div_up(uint32_t a, uint32_t b)
{
    return (a + b - 1) / b;
}

/* Rows of a tile so that every worker gets some TILES_PER_WORKER of them, in multiples of 64 where there are rows enough. */
static uint32_t tile_rows_for(const struct product *list, size_t n, unsigned n_workers)
{
    uint64_t row_tiles = 0, most = TILE_ROWS_MAX;
    for (size_t i = 0; i < n; i++) {
        row_tiles += (uint64_t)list[i].rows * div_up(list[i].cols, TILE_COLS);
        if (list[i].cols > TILE_COLS) most = TILE_ROWS_MANY;
    }
    const uint64_t fair = row_tiles / ((uint64_t)n_workers * TILES_PER_WORKER);
    const uint64_t rows =
        fair < TILE_ROWS_STEP / 2 ? TILE_ROWS_MIN : (fair + TILE_ROWS_STEP - 1) / TILE_ROWS_STEP * TILE_ROWS_STEP;
    return (uint32_t)(rows > most ? most : rows);
}

const uint8_t *matrix_packed_row(const struct matrix *m, size_t row, unsigned node, uint32_t *rows)
{
    const struct matrix_nodes *const at = m->nodes;
    const size_t group = row / KERN_PACK_ROWS;
    if (rows) *rows = UINT32_MAX;
    if (!at) return m->packed + group * m->group_bytes;
    if (at->mirror) return at->base[node < at->n ? node : 0] + group * m->group_bytes;
    const size_t stretch = row / m->home_rows;
    const uint32_t g = (uint32_t)(row % m->home_rows / KERN_PACK_ROWS);
    unsigned k = 0;
    while (g >= at->first[k + 1]) k++;
    if (rows) *rows = (at->first[k + 1] - g) * KERN_PACK_ROWS;
    return at->base[k] + (stretch * (at->first[k + 1] - at->first[k]) + g - at->first[k]) * m->group_bytes;
}

/* Rows [r0, r1) of the kept ones. They are copied side by side first: each is read from memory once, the kernels are the usual
 * ones, and a row that is not kept is not touched. */
static void run_kept(const struct product_env *env, const struct product *p, uint32_t r0, uint32_t r1, unsigned worker)
{
    const struct matrix *W = p->W;
    const enum quant_act kind = env->exact ? QUANT_ACT_F32 : quant_info(W->type)->act;
    const size_t x_row = p->x_rows ? p->x_rows[0] : p->x_first;
    const void *x =
        kind == QUANT_ACT_F32 ? (const void *)(p->x->f + x_row * p->x->f_stride) : p->x->q[kind] + x_row * p->x->q_stride[kind];
    float *y = p->y + (p->y_rows ? p->y_rows[0] : 0) * p->y_stride + r0;
    uint8_t *const rows = env->rows[worker];
    trace_work(env->trace, worker, (r1 - r0) * (uint64_t)W->row_bytes, (uint64_t)W->k * (r1 - r0));
    uint32_t stratum = r0 / p->kept[0].n, skip = r0 % p->kept[0].n, n = 0;
    for (uint32_t left = r1 - r0; left > 0; stratum++, skip = 0)
        for (unsigned word = 0; word < 2; word++)
            for (uint64_t bits = p->kept[stratum].bits[word]; bits && left > 0; bits &= bits - 1) {
                if (skip > 0) {
                    skip--;
                    continue;
                }
                const size_t row = p->first_row + (size_t)stratum * KERN_STRATUM + 64 * word + (size_t)__builtin_ctzll(bits);
                memcpy(rows + n++ * W->row_bytes, W->data + row * W->row_bytes, W->row_bytes);
                if (--left > 0 && n < PRODUCT_GATHER) continue;
                if (env->exact)
                    kern_matmul_exact(env->kern, W->type, &y, rows, W->row_bytes, (const float *const *)&x, W->k, n, 1,
                                      env->scratch[worker]);
                else
                    env->kern->matmul[W->type](&y, rows, W->row_bytes, &x, W->k, n, 1);
                y += n;
                n = 0;
            }
}

static void run_tile(const struct product_env *env, const struct product *p, uint32_t r0, uint32_t r1, uint32_t c0, uint32_t c1,
                     unsigned worker)
{
    if (p->kept) {
        run_kept(env, p, r0, r1, worker);
        return;
    }
    const void *x[TILE_COLS];
    float *y[TILE_COLS];
    const struct matrix *W = p->W;
    const enum quant_act kind = env->exact ? QUANT_ACT_F32 : quant_info(W->type)->act;
    for (uint32_t c = c0; c < c1; c++) {
        const size_t row = p->x_rows ? p->x_rows[c] : p->x_first + (size_t)c * p->x_step;
        x[c - c0] =
            kind == QUANT_ACT_F32 ? (const void *)(p->x->f + row * p->x->f_stride) : p->x->q[kind] + row * p->x->q_stride[kind];
        y[c - c0] = p->y + (p->y_rows ? p->y_rows[c] : c) * p->y_stride + r0;
    }
    const size_t row = (size_t)p->first_row + r0;
    trace_work(env->trace, worker, c0 ? 0 : (r1 - r0) * (uint64_t)W->row_bytes, (uint64_t)W->k * (r1 - r0) * (c1 - c0));
    const uint8_t *w = W->data + row * W->row_bytes;
    if (env->exact)
        kern_matmul_exact(env->kern, W->type, y, w, W->row_bytes, (const float *const *)x, W->k, r1 - r0, c1 - c0,
                          env->scratch[worker]);
    else if (W->packed && row % KERN_PACK_ROWS == 0 && r1 % KERN_PACK_ROWS == r0 % KERN_PACK_ROWS)
        env->kern->packed[W->type](y, matrix_packed_row(W, row, env->node ? env->node[worker] : 0, NULL), x, W->k, r1 - r0,
                                   c1 - c0);
    else
        env->kern->matmul[W->type](y, w, W->row_bytes, x, W->k, r1 - r0, c1 - c0);
}

void product_home(uint32_t rows, unsigned id, unsigned count, uint32_t *r0, uint32_t *r1)
{
    uint64_t unit = HOME_ROWS_MAX;
    for (; unit > KERN_PACK_ROWS; unit /= 2) {
        const uint64_t units = rows / unit;
        if (rows % unit == 0 && (units % count == 0 || units / count >= HOME_UNITS)) break;
    }
    const uint64_t units = (rows + unit - 1) / unit;
    *r0 = (uint32_t)(units * id / count * unit);
    *r1 = (uint32_t)(units * (id + 1) / count * unit);
    if (*r0 > rows) *r0 = rows;
    if (*r1 > rows) *r1 = rows;
}

/* A worker's home in one product, in tiles: columns run fastest, the rows of a tile stay in the cache for its next columns. */
struct home {
    uint32_t rows, r0, r1, tiles; /* rows 0: none yet */
};

/* `h` is the home in a product with h->rows rows, which are often the same. */
static void move_home(struct home *h, const struct product *p, uint32_t tile_rows, unsigned w, unsigned count)
{
    if (h->rows != p->rows) product_home(p->rows, w, count, &h->r0, &h->r1);
    h->rows = p->rows;
    h->tiles = div_up(h->r1 - h->r0, tile_rows) * div_up(p->cols, TILE_COLS);
}

static void ask_lines(const uint8_t *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += LINE) __builtin_prefetch(p + i, 0, 2); /* into L2: it may take a while */
}

/* What the kernels for one column load first of `rows` rows from `row` on. */
static void ask_rows(const struct product_env *env, const struct matrix *W, size_t row, uint32_t rows, unsigned worker)
{
    if (!W->packed || env->exact || row % KERN_PACK_ROWS) {
        const size_t bytes = W->row_bytes < ASK_ROW_BYTES ? W->row_bytes : ASK_ROW_BYTES;
        for (uint32_t r = 0; r < rows && r < KERN_PACK_ROWS; r++) ask_lines(W->data + (row + r) * W->row_bytes, bytes);
        return;
    }
    const size_t head = kern_pack_head_bytes(W->type, W->k), body = W->group_bytes - head;
    const uint8_t *group = matrix_packed_row(W, row, env->node ? env->node[worker] : 0, NULL);
    for (uint32_t g = 0; g < ASK_GROUPS && g * KERN_PACK_ROWS < rows; g++, group += W->group_bytes) {
        ask_lines(group, head < LINE ? head : LINE);
        ask_lines(group + head, body < ASK_BYTES ? body : ASK_BYTES);
    }
}

void product_ask(const struct product_env *env, const struct product *p, const struct worker *w)
{
    uint32_t r0, r1;
    if (p->kept || p->cols > ASK_COLS) return;
    product_home(p->rows, w->id, w->count, &r0, &r1);
    if (r0 == r1) return;
    ask_rows(env, p->W, (size_t)p->first_row + r0, r1 - r0, w->id);
}

static void run_tile_at(const struct product_env *env, const struct product *p, struct home h, uint32_t tile_rows, uint32_t t,
                        unsigned worker)
{
    const uint32_t col_tiles = div_up(p->cols, TILE_COLS);
    const uint32_t r0 = h.r0 + t / col_tiles * tile_rows, c0 = t % col_tiles * TILE_COLS;
    const uint32_t r1 = r0 + tile_rows < h.r1 ? r0 + tile_rows : h.r1;
    const uint32_t c1 = c0 + TILE_COLS < p->cols ? c0 + TILE_COLS : p->cols;
    for (uint32_t r = r0, n; r < r1; r += n) { /* homes end where nodes end, so that there is one stretch as a rule */
        n = r1 - r;
        if (p->W->nodes) (void)matrix_packed_row(p->W, (size_t)p->first_row + r, 0, &n);
        if (n > r1 - r) n = r1 - r;
        run_tile(env, p, r, r + n, c0, c1, worker);
    }
    if (p->finish) p->finish(p->user, p, r0, r1, c0, c1);
}

void products_run(const struct product_env *env, const struct product *list, size_t n, struct worker *w)
{
    const uint32_t tile_rows = tile_rows_for(list, n, w->count);
    for (unsigned i = 0; i < w->count; i++) { /* the own share, then what others have not come to */
        const unsigned owner = w->help[i];
        struct home home = {0, 0, 0, 0};
        uint32_t all = 0, end = 0; /* tiles of owner: of the whole list, up to and with list[at] */
        for (size_t k = 0; k < n; k++) {
            move_home(&home, &list[k], tile_rows, owner, w->count);
            all += home.tiles;
        }
        for (size_t at = 0;;) {
            const uint32_t k = workers_take(w, owner, all);
            if (k >= all) break;
            while (k >= end) {
                move_home(&home, &list[at++], tile_rows, owner, w->count);
                end += home.tiles;
            }
            if (i == 0 && k + 1 == end && at < n) product_ask(env, &list[at], w); /* the next matrix starts elsewhere */
            run_tile_at(env, &list[at - 1], home, tile_rows, k - (end - home.tiles), w->id);
        }
    }
}

void act_quantise_part(const struct product_env *env, const struct act *x, size_t row, size_t i0, size_t i1)
{
    for (unsigned kind = 0; kind < QUANT_ACT_COUNT; kind++)
        if (x->q[kind]) env->kern->quantize[kind](x->q[kind] + row * x->q_stride[kind], x->f + row * x->f_stride, x->k, i0, i1);
}

void act_quantise(const struct product_env *env, const struct act *x, size_t row)
{
    act_quantise_part(env, x, row, 0, x->k);
}
