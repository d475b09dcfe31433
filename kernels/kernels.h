/* kernels.h - the arithmetic of the model: one table of function pointers, filled for the CPU at hand.
 *
 * Pointers, counts and strides in, numbers out: no allocation, no threads, no I/O, no errors. Preconditions are the caller's
 * duty (asserted where that is cheap). Every kernel is a pure function of its arguments; any number of threads may run it.
 *
 * The order of arithmetic is part of each contract: an output never depends on how many rows or columns travel
 * together, on the number of threads, or on the instruction set. The scalar, AVX2 and AVX-512 versions of EVERY slot give equal
 * bits; kernels/check compares bytes. The rules:
 *  R1 Products with integer activations: an exact int32 for each output and activation block (sub-scales included), then one
 * float accumulator a output, from +0, blocks in column order: acc = fma(d*da, (float)I, acc), and where the format has a
 * minimum right after it acc = fma(-(dmin*da), (float)M, acc). d*da is rounded once; constant factors 1/8, 1/4 go into d first
 * (exact). iq1_s and iq1_m: I is eight times the sum and d carries 1/8. q4_1, q5_1: fma(d*da, I, acc) then fma(m, s, acc). q2_0
 * makes two steps for its 64 weights, q1_0 four, nvfp4 four (per 16, d = scale(t)). R2 Dot products of floats: 16 partial sums
 * from +0, element i into sum i mod 16 by fma in order of i (a short tail acts as if padded with zeros), then the fixed tree:
 * s[j] += s[j+8] (j < 8), s[j] += s[j+4] (j < 4), s[j] += s[j+2], s[0] += s[1]. R3 Sums over a vector (squares in norms): R2
 * inside chunks of 1024 elements, chunk results added in order from +0. R4 exp, silu, sigmoid: one sequence of float operations
 * for all lanes, tails and paths (kernels/vec/functions.h). Denormals are kept; nobody changes the rounding or flush mode. */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include "kernels/quant/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- activations ------------------------------------------------------------------------------------------------
 * A float row is quantised once per consumer group into a private row. All arrays of a row start at multiples of 64 bytes from
 * its start; rows are 64-byte aligned and may be over-read by 64 bytes.
 *
 * QUANT_ACT_Q8_0, k a multiple of 32 (quants.md 3.1, the simd variant):
 *   int8_t q[k]; float d[k/32] (the float16-rounded scale); int16_t sum32[k/32]; float s[k/32] = f16(d32 * sum32), d32
 * unrounded (q8_1) A block whose largest magnitude is below 2^-119 gets codes 0 (127 / amax would overflow; its d is 0 anyway).
 * QUANT_ACT_Q8_K, k a multiple of 256 (quants.md 3.3):
 *   int8_t q[k]; float d[k/256]; int16_t sum32[k/32]; int16_t sum16[k/16]; int16_t sum8[k/8]
 * QUANT_ACT_F32: k floats. */
#define KERN_ALIGN      64
#define KERN_PAD(bytes) (((bytes) + KERN_ALIGN - 1) / KERN_ALIGN * KERN_ALIGN)

struct kern_q8_0 {
    const int8_t *q;
    const float *d;
    const int16_t *sum32;
    const float *s;
};

struct kern_q8_k {
    const int8_t *q;
    const float *d;
    const int16_t *sum32, *sum16, *sum8;
};

static inline size_t kern_act_row_bytes(enum quant_act act, size_t k)
{
    switch (act) {
    case QUANT_ACT_Q8_0:
        return KERN_PAD(k) + 2 * KERN_PAD(k / 32 * 4) + KERN_PAD(k / 32 * 2);
    case QUANT_ACT_Q8_K:
        return KERN_PAD(k) + KERN_PAD(k / 256 * 4) + KERN_PAD(k / 32 * 2) + KERN_PAD(k / 16 * 2) + KERN_PAD(k / 8 * 2);
    default:
        return KERN_PAD(k * 4);
    }
}

static inline struct kern_q8_0 kern_q8_0_view(const void *row, size_t k)
{
    const char *p = row;
    struct kern_q8_0 v;
    v.q = (const int8_t *)p, p += KERN_PAD(k);
    v.d = (const float *)p, p += KERN_PAD(k / 32 * 4);
    v.sum32 = (const int16_t *)p, p += KERN_PAD(k / 32 * 2);
    v.s = (const float *)p;
    return v;
}

static inline struct kern_q8_k kern_q8_k_view(const void *row, size_t k)
{
    const char *p = row;
    struct kern_q8_k v;
    v.q = (const int8_t *)p, p += KERN_PAD(k);
    v.d = (const float *)p, p += KERN_PAD(k / 256 * 4);
    v.sum32 = (const int16_t *)p, p += KERN_PAD(k / 32 * 2);
    v.sum16 = (const int16_t *)p, p += KERN_PAD(k / 16 * 2);
    v.sum8 = (const int16_t *)p;
    return v;
}

/* Quantises columns [i0, i1) of a row of k floats into `row`; i0 and i1 are multiples of 32 (Q8_0) or 256 (Q8_K), i1 <= k.
 * Inputs must be finite. Any split of a row gives the same bytes. */
typedef void (*kern_quantize_fn)(void *row, const float *x, size_t k, size_t i0, size_t i1);

/* k weights as floats, exact (quants.md 4); k a multiple of the block length. */
typedef void (*kern_dequantize_fn)(float *dst, const void *src, size_t k);

/* ---- matrix products --------------------------------------------------------------------------------------------
 * y[c][r] = sum_i W[r][i] * x[c][i]   for r < rows, c < cols; rules R1 (integer activations) and R2 (float matrices).
 * w: `rows` rows of k weights, w_stride bytes apart, at any alignment, readable up to 64 bytes past the last row.
 * x[c]: a row in the activation format of the weight type; for float matrices x[c] are k floats at any 4-byte alignment.
 * y[c]: `rows` floats; y overlaps nothing. rows, cols >= 1; k a multiple of the block length (float matrices: any k >= 1). */
typedef void (*kern_matmul_fn)(float *const *y, const void *w, size_t w_stride, const void *const *x, size_t k, size_t rows,
                               size_t cols);

/* The same product with the packed form of W (kernels/pack.h): w points to the first of rows / 16 groups, rows is a multiple of
 * 16; no over-read. Same bits as kern_matmul_fn. */
typedef void (*kern_packed_fn)(float *const *y, const void *w, const void *const *x, size_t k, size_t rows, size_t cols);

/* 16 rows of k weights in the file's layout, w_stride bytes apart -> one group of the packed form (kernels/pack.h), 64-byte
 * aligned. k as in kern_matmul_fn; w at any alignment, no over-read; every byte of the group is written. */
typedef void (*kern_pack_fn)(void *group, const void *w, size_t w_stride, size_t k);

/* ---- rows of the KV cache --------------------------------------------------------------------------------------- */
enum kern_kv { KERN_KV_F32, KERN_KV_F16, KERN_KV_Q8 /* blocks as q8_0 weights, n a multiple of 32 */ };

static inline size_t kern_kv_row_bytes(enum kern_kv kv, size_t n)
{
    return kv == KERN_KV_F32 ? n * 4 : kv == KERN_KV_F16 ? n * 2 : n / 32 * 34;
}

struct kern_table {
    const char *isa; /* "scalar", "avx2", "avx512" */

    /* Indexed by enum quant_act; QUANT_ACT_F32 copies. */
    kern_quantize_fn quantize[QUANT_ACT_COUNT];
    /* Indexed by enum quant_type; filled for every type quant_info knows, except i32. */
    kern_dequantize_fn dequantize[QUANT_TYPE_COUNT];
    kern_matmul_fn matmul[QUANT_TYPE_COUNT];
    /* NULL: this rung has no kernel for the packed form of that type. */
    kern_packed_fn packed[QUANT_TYPE_COUNT];
    /* Filled for every type that has a packed form. */
    kern_pack_fn pack[QUANT_TYPE_COUNT];

    /* y[i] = x[i] * r * w[i], r = 1 / sqrt(mean(x^2) + eps) computed once: sum by R3, mean = sum / n, sqrt and division
     * correctly rounded; (x[i] * r) first, then * w[i]; w == NULL: no second product. y may be x.          architecture.md 0 */
    void (*rms_norm)(float *y, const float *x, const float *w, size_t n, float eps);
    /* Sum of squares by R3. */
    float (*sum_squares)(const float *x, size_t n);
    /* Adjacent pairs (x[2i], x[2i+1]), i < n_pairs: (a*c - b*s, a*s + b*c) as fma(a, c, -(b*s)), fma(a, s, b*c); inverse: s
     * negated. c, s: n_pairs floats each.                                                                  architecture.md 4.2
     */
    void (*rope)(float *x, const float *c, const float *s, size_t n_pairs, bool inverse);
    /* Orthonormal Walsh-Hadamard in natural order, in place, n a power of two: butterflies of distance 1, 2, 4 ... then *
     * 1/sqrt(n) (a float constant computed as 1.0f / sqrtf(n)).                                             architecture.md 4.4
     */
    void (*hadamard)(float *x, size_t n);
    /* h[i] = silu(min(g[i], limit)) * clamp(u[i], -limit, limit); silu(x) = x * sigmoid(x). limit <= 1e-6: no clamp.
     * h may be g or u.                                                                            architecture.md 7 */
    void (*swiglu)(float *h, const float *g, const float *u, size_t n, float limit);
    /* s[i] = silu(min(g[i], limit)), the first factor of swiglu (same bits). limit <= 1e-6: no clamp. s may be g. */
    void (*gate)(float *s, const float *g, size_t n, float limit);
    /* y[i] = fma(w[m-1], e[m-1][i], ... fma(w[0], e[0][i], +0)), terms in order.                  kernels.md 7.7 */
    void (*combine)(float *y, const float *const *e, const float *w, size_t m, size_t n);

    /* Per channel i < n a softmax over m candidates: z[i] = sum_t exp(sc[t][i] - max) * kv[t][i] / sum_t exp(sc[t][i] - max),
     * both sums by fma / add in order of t from +0. Candidates with sc = -inf weigh 0; all -inf gives 0.    architecture.md 5
     */
    void (*pool)(float *z, const float *const *kv, const float *const *sc, size_t m, size_t n);

    /* Hyper-connections, hc streams of width n, stream h at X + h * stride.                       architecture.md 3
     * read:  x[i] = sum_h pre[h] * X[h][i]        fma in order of h from +0
     * write: X[k][i] = fma(post[k], y[i], sum_j comb[j*hc+k] * X[j][i])   the sum by fma in order of j from +0; in place; hc <=
     * 8 */
    void (*hyper_read)(float *x, const float *X, size_t stride, const float *pre, size_t hc, size_t n);
    void (*hyper_write)(float *X, size_t stride, const float *y, const float *post, const float *comb, size_t hc, size_t n);

    /* Conversion to and from a cache row of n values; f32 -> f16 rounds to nearest even; q8 is the simd variant of q8_0. */
    void (*kv_store)(void *row, const float *x, size_t n, enum kern_kv kv);
    void (*kv_load)(float *x, const void *row, size_t n, enum kern_kv kv);

    /* One part (at most 64 rows) of the attention of one token: n_heads queries q[h][dim] against rows[0..n_rows).
     * State m[h] (running maximum), z[h] (running sum), acc[h][dim]; the caller starts with m = sink, z = 1, acc = 0 and
     * divides at the end (attend_finish). For each head: s_r = R2 dot(q, row_r) * scale; pm = max_r s_r; p_r = exp(s_r - pm);
     * pz = sum of p_r in order of r; pv = sum_r p_r * row_r by fma in order of r from +0. Merge: nm = max(m, pm); a = exp(m -
     * nm); b = exp(pm - nm); z = fma(z, a, pz * b); acc[i] = fma(acc[i], a, pv[i] * b); m = nm.  n_rows == 0 changes nothing.
     * dim a multiple of 16. scratch: n_rows * dim floats (converted rows) plus n_heads * 64 + dim floats, 64-byte aligned.
     * kernels.md 7.6 */
    void (*attend_part)(float *acc, float *m, float *z, const float *q, size_t n_heads, size_t dim, const void *const *rows,
                        size_t n_rows, enum kern_kv kv, float scale, float *scratch);
    /* o[h][i] = acc[h][i] / z[h] */
    void (*attend_finish)(float *o, const float *acc, const float *z, size_t n_heads, size_t dim);

    /* score[r] = sum_h w[h] * max(0, R2 dot(q[h], row_r)), fma in order of h from +0, r < n_rows; q: n_heads * dim floats.
     * scratch: dim floats, 64-byte aligned.                                                        architecture.md 6 */
    void (*index_scores)(float *score, const float *q, const float *w, size_t n_heads, size_t dim, const void *const *rows,
                         size_t n_rows, enum kern_kv kv, float *scratch);
};

#define KERN_ATTEND_ROWS 64
static inline size_t kern_attend_scratch(size_t n_heads, size_t dim)
{
    return KERN_ATTEND_ROWS * dim + n_heads * KERN_ATTEND_ROWS + dim + 64;
}

/* Fills every slot for the CPU flags given (kernels/cpu_flags.h): scalar twins first, then each rung overrides what it
 * improves. */
void kern_table_init(struct kern_table *t, uint32_t cpu_flags);

/* The path of `--arith exact`: any type, weights decoded to float, float activations, rule R2.
 * y[c][r] as in kern_matmul_fn but x[c] are floats. scratch: k floats, 64-byte aligned. */
void kern_matmul_exact(const struct kern_table *t, enum quant_type type, float *const *y, const void *w, size_t w_stride,
                       const float *const *x, size_t k, size_t rows, size_t cols, float *scratch);

/* ---- small things that have one portable version (same bits everywhere because there is only one) ----------------- */

/* s[e] = sqrt(softplus(lg[e])), softplus(x) = x > 20 ? x : log1p(exp(x)), computed in double by our own series. architecture.md
 * 7 */
void kern_route_scores(float *s, const float *lg, size_t n);
/* ids of the k largest s[e] + bias[e] (bias may be NULL), best first, ties: lowest id; NaN ranks last. k <= n. */
void kern_route_top(int32_t *ids, const float *s, const float *bias, size_t n, size_t k);
/* wt[i] = scale * s[ids[i]] / max(sum_i s[ids[i]], 2^-14), the sum in order of i; normalise false: wt = scale * s. */
void kern_route_weights(float *wt, const float *s, const int32_t *ids, size_t k, float scale, bool normalise);
/* Leaves out experts of a token: the k largest weights stay (ties: the one that stands first), of these the ones that are not
 * below min_weight, and the largest in any case. ids and wt (n of each, n <= 64) are packed in their order, ids behind the last
 * one become -1, weights 0; returns how many stay. If any is left out, the others are multiplied by
 *   sqrt((a * A2 + b * A1^2) / (a * K2 + b * K1^2)),  A1, A2 sums of w and w^2 over all n, K1, K2 over those that stay,
 * a = b = 0 standing for the factor 1; computed in double, sums in order.                              control.md 1 */
size_t kern_route_keep(int32_t *ids, float *wt, size_t n, size_t k, float min_weight, float a, float b);

/* A stratum: `n` <= KERN_STRATUM rows of an expert's inner dimension, from row 0 of its matrix on; bit i % 64 of word i / 64
 * stands for its row i. */
enum { KERN_STRATUM = 128 };
struct kern_kept {
    uint64_t bits[2];
    float factor; /* sqrt(sum of s^2 over all rows / over the kept ones), 1 if the latter is 0 */
    uint32_t n;   /* bits that are set */
};
/* Keeps the m rows of largest s^2 (ties: the lower row; NaN ranks first), 1 <= m <= n. The sums are 8 partial sums in double,
 * row i into sum i mod 8, added by halves. */
void kern_keep_rows(struct kern_kept *out, const float *s, size_t n, size_t m);
/* Rows that stay of n at `rows` of 128: ceil(n * rows / 128); rows 0: all. */
static inline size_t kern_rows_kept(size_t n, size_t rows)
{
    return rows ? n / KERN_STRATUM * rows + (n % KERN_STRATUM * rows + KERN_STRATUM - 1) / KERN_STRATUM : n;
}
/* h[i] = (s[i] * clamp(u[j], -limit, limit)) * kept->factor for kept rows i < n, where j is i (packed false) or the number of
 * kept rows in front of i (packed); 0 for the others. limit as in swiglu; h may be s. */
void kern_kept_times_up(float *h, const float *s, const float *u, size_t n, const struct kern_kept *kept, bool packed,
                        float limit);

/* Indices of the k largest scores, ascending by index; ties: lowest index; NaN ranks last. k <= n.
 * scratch: n uint64. */
void kern_top_rows(uint32_t *idx, const float *score, size_t n, size_t k, uint64_t *scratch);

/* HC mixing weights of one token from m[hc*(hc+2)] (already multiplied by the norm): pre[hc], post[hc], comb[hc*hc] (source
 * major), softmax rows, + eps, column step, then iters-1 (row, column) pairs.  hc <= 8.                     architecture.md 3
 */
void kern_hyper_mix(float *pre, float *post, float *comb, const float *m, const float *scale, const float *base, size_t hc,
                    unsigned iters, float eps);
/* HC_HEAD weights: w[h] = sigmoid(m[h]*scale[0] + base[h]) + eps. */
void kern_hyper_head(float *w, const float *m, const float *scale, const float *base, size_t hc, float eps);

/* y[i] = (x[i] * r) * w[i]: rms_norm where the caller has summed. y may be x. */
void kern_norm_scale(float *y, const float *x, const float *w, size_t n, float r);

float kern_f16_to_f32(uint16_t h);
uint16_t kern_f32_to_f16(float f); /* nearest even */

#endif
