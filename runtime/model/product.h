/* product.h - matrix products of one phase as a list of tasks that the workers share.
 *
 * A phase is a few products with the same kind of input (say gate and up of every active expert). They are cut into tiles of
 * rows and columns. Each worker has a home range of rows in every matrix (product_home), the same token after token, and walks
 * through it in memory order; one that is done takes tiles from others, near ones first. Which worker computes a tile changes
 * nothing: every output is one kernel's sum in a fixed order (kernels.h). */
#ifndef RUNTIME_MODEL_PRODUCT_H
#define RUNTIME_MODEL_PRODUCT_H

#include "runtime/model/bind.h"
#include "runtime/model/trace.h"

struct worker;

/* Input rows of a product: floats, and the 8-bit forms that the weight types ask for, each quantised once. */
struct act {
    size_t k; /* values in a row */
    float *f; /* [rows][f_stride] */
    size_t f_stride;
    uint8_t *q[QUANT_ACT_COUNT]; /* [rows][q_stride] by format; NULL: not needed (QUANT_ACT_F32: always NULL) */
    size_t q_stride[QUANT_ACT_COUNT];
};

/* y[y_row(c)][r] = W[r] . x[x_row(c)],  x_row(c) = x_rows ? x_rows[c] : x_first + c * x_step,  y_row(c) = y_rows ? y_rows[c] :
 * c. */
struct product {
    const struct matrix *W;
    uint32_t first_row; /* counted through all of W's matrices */
    uint32_t rows, cols;
    const struct act *x;
    const uint32_t *x_rows, *y_rows;
    uint32_t x_first, x_step;
    float *y;
    size_t y_stride;
    /* Not NULL: only the kept rows of each stratum of the matrix, one column; `rows` is their number, y[0] is theirs, close
     * together. All strata but the last keep kept[0].n. */
    const struct kern_kept *kept;
    /* Not NULL: called by the worker that has computed rows [r0, r1) of columns [c0, c1), once for each tile. */
    void (*finish)(void *user, const struct product *p, uint32_t r0, uint32_t r1, uint32_t c0, uint32_t c1);
    void *user;
};

enum { PRODUCT_GATHER = 16 /* kept rows that are multiplied at a time */ };

/* How products are computed; the same for every phase of a session. */
struct product_env {
    const struct kern_table *kern;
    bool exact;            /* decoded weights, float inputs */
    float *const *scratch; /* by worker id: exact_scratch floats (exact only) */
    uint8_t *const *rows;  /* by worker id: PRODUCT_GATHER rows of any matrix of which rows are kept, and 64 bytes */
    struct trace *trace;   /* or NULL */
    const uint8_t *node;   /* by worker id: its memory node, counted from 0; NULL: one node */
};

/* The whole of the (first) matrix W on rows 0..cols-1 of x. */
static inline struct product product_of(const struct matrix *W, const struct act *x, float *y, size_t y_stride, uint32_t cols)
{
    return (struct product){.W = W, .rows = W->rows, .cols = cols, .x = x, .x_step = 1, .y = y, .y_stride = y_stride};
}

/* Rows [*r0, *r1) of a matrix of `rows` rows that are at home with worker `id` of `count`: contiguous, ascending with id, and
 * nothing but the number of rows decides. They begin at multiples of 128, 64, 32 or 16: the largest that shares the rows out
 * evenly. A range may be empty where rows are few. */
void product_home(uint32_t rows, unsigned id, unsigned count, uint32_t *r0, uint32_t *r1);

/* Run by every worker with equal arguments; at most one list between two barriers. Does not wait for the others. */
void products_run(const struct product_env *env, const struct product *list, size_t n, struct worker *w);

/* Asks for the first lines of the worker's home in p, which is to be run next: for the moment in front of a barrier, where
 * memory would stand still. p->x and p->y are not looked at. */
void product_ask(const struct product_env *env, const struct product *p, const struct worker *w);

/* Quantises row `row` of x into every format it has. */
void act_quantise(const struct product_env *env, const struct act *x, size_t row);
/* The same for elements i0 .. i1-1, both multiples of 256 or the end of the row. */
void act_quantise_part(const struct product_env *env, const struct act *x, size_t row, size_t i0, size_t i1);

#endif
