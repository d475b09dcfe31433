/* ck.h - what the check_<op>.c files are written with. Private to check/.
 *
 * A check function runs once for each table whose pointer is new: it draws inputs, runs k->ref's kernel and k->t's, and
 * compares. Memory is a row of slots, each followed by an inaccessible page:
 *
 *     | ............ input |fence| ...... canary output canary |fence| ...
 *
 * ck_case hands all slots back and starts the next case. */
#ifndef KERNELS_CHECK_CK_H
#define KERNELS_CHECK_CK_H

#include "kernels/check/checkkern.h"
#include "kernels/kernels.h"
#include "platform/base/compiler.h"

#include <string.h>

enum ck_pattern { CK_ZERO, CK_EXTREMES, CK_DENORMALS, CK_SPIKE, CK_EQUAL, CK_TIES, CK_RANDOM, CK_PATTERNS };

/* Blocks of weights: valid scales, and codes that are random, all bits clear, all bits set, or only the top bit set. */
enum ck_weights { CK_W_RANDOM, CK_W_ZERO, CK_W_ONES, CK_W_TOP_BIT, CK_W_TINY_SCALES, CK_WEIGHTS };

struct ck_timer {
    uint64_t start_ns, end_ns;
    double best_ns, ghz;
    size_t runs, left;
};

struct ck {
    const struct check_options *opt;
    const struct kern_table *ref, *t;
    char *pool;
    size_t pool_bytes, slot_bytes, page_bytes;
    unsigned slots_used;
    uint64_t random;
    char where[160], detail[320];
    struct ck_timer timer;
};

/* ---- cases ---- */
void ck_case(struct ck *k, const char *fmt, ...) MC_PRINTF(2, 3);
/* False once something differed: later cases would only hide the first. */
static inline bool ck_ok(const struct ck *k)
{
    return k->detail[0] == 0;
}

/* ---- memory of a case; beyond it lies the fence ---- */
/* bytes of input ending at the fence, of which the last `slack` may be read by contract and are filled with 0xFF. */
void *ck_input(struct ck *k, size_t bytes, size_t slack);
/* The same, starting at a multiple of 64; the end then is up to 63 bytes before the fence. */
void *ck_input_aligned(struct ck *k, size_t bytes, size_t slack);
/* An output filled with a canary pattern, as are the 64 bytes on either side. */
void *ck_output(struct ck *k, size_t bytes);
void *ck_output_aligned(struct ck *k, size_t bytes);
float *ck_floats(struct ck *k, size_t n, enum ck_pattern p);
/* `rows` rows of w_stride bytes; the slack of 64 bytes that products may read follows the last. */
void *ck_blocks(struct ck *k, enum quant_type type, size_t n_weights, size_t rows, size_t w_stride, enum ck_weights p);

uint64_t ck_random(struct ck *k);
float ck_uniform(struct ck *k); /* -1 .. 1 */
void ck_fill_floats(struct ck *k, float *x, size_t n, enum ck_pattern p);
void ck_fill_blocks(struct ck *k, enum quant_type type, void *w, size_t n_blocks, enum ck_weights p);
const char *ck_pattern_name(enum ck_pattern p);

/* ---- judgement: equal bytes (any NaN equals any NaN), canaries included ---- */
bool ck_same_floats(struct ck *k, const float *want, const float *got, size_t n, const char *what);
bool ck_same_bytes(struct ck *k, const void *want, const void *got, size_t bytes, const char *what);
void ck_fail(struct ck *k, const char *fmt, ...) MC_PRINTF(2, 3);

/* ---- bench: CK_BENCH(k) statement; leaves the time of one run in k->timer.best_ns (0 without bench) ---- */
bool ck_bench_next(struct ck *k);
void ck_bench_start(struct ck *k);
#define CK_BENCH(k) for (ck_bench_start(k); ck_bench_next(k);)

/* ---- the walk over tables; the first is the reference. Apart from check_run, for the test of the harness itself. ---- */
enum { CK_TABLES_MAX = 4 };
struct ck_tables {
    struct kern_table table[CK_TABLES_MAX];
    const char *isa[CK_TABLES_MAX];
    size_t n;
};
MC_MUST_CHECK enum mc_code ck_run_tables(const struct ck_tables *set, const struct check_options *opt, check_row_fn fn,
                                         void *user, size_t *n_failed, struct mc_err *err);

/* ---- the checks; `which` is a type, an activation format, or unused ---- */
struct ck_numbers {
    double ns, weights, bytes, ns8; /* one run of the bench case, its weights and bytes; ns8: 8 columns */
};
typedef void (*ck_fn)(struct ck *k, unsigned which, struct ck_numbers *out);

void check_matmul(struct ck *k, unsigned type, struct ck_numbers *out);
void check_packed(struct ck *k, unsigned type, struct ck_numbers *out);
void check_pack(struct ck *k, unsigned type, struct ck_numbers *out);
void check_dequantize(struct ck *k, unsigned type, struct ck_numbers *out);
void check_quantize(struct ck *k, unsigned act, struct ck_numbers *out);
void check_rms_norm(struct ck *k, unsigned which, struct ck_numbers *out);
void check_sum_squares(struct ck *k, unsigned which, struct ck_numbers *out);
void check_rope(struct ck *k, unsigned which, struct ck_numbers *out);
void check_hadamard(struct ck *k, unsigned which, struct ck_numbers *out);
void check_swiglu(struct ck *k, unsigned which, struct ck_numbers *out);
void check_gate(struct ck *k, unsigned which, struct ck_numbers *out);
void check_combine(struct ck *k, unsigned which, struct ck_numbers *out);
void check_pool(struct ck *k, unsigned which, struct ck_numbers *out);
void check_hyper_read(struct ck *k, unsigned which, struct ck_numbers *out);
void check_hyper_write(struct ck *k, unsigned which, struct ck_numbers *out);
void check_kv_store(struct ck *k, unsigned which, struct ck_numbers *out);
void check_kv_load(struct ck *k, unsigned which, struct ck_numbers *out);
void check_attend_part(struct ck *k, unsigned which, struct ck_numbers *out);
void check_attend_finish(struct ck *k, unsigned which, struct ck_numbers *out);
void check_index_scores(struct ck *k, unsigned which, struct ck_numbers *out);

#endif
