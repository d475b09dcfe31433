/* matmul.c - scalar twin of the matrix products with integer activations: rule R1 of kernels.h, written once.
 *
 * A block of weights is unpacked once and meets all columns; y[c][r] is the accumulator itself. Every faster version must give
 * these bits. */
#include "kernels/kernels_isa.h"
#include "kernels/ref/ref.h"
#include "kernels/ref/unpack.h"

#include <assert.h>

MC_INLINE float add_block_q8_0(struct ref_law law, const struct ref_block *b, struct kern_q8_0 x, size_t i0, float acc)
{
    for (unsigned s = 0; s < law.len / law.step; s++) {
        const size_t block = i0 / 32 + s * law.step / 32;
        acc = kern_fma(b->d[s] * x.d[block], (float)ref_sum(law, b, s, x.q + i0), acc);
        if (law.minimum == REF_MIN_ADD) acc = kern_fma(b->m, x.s[block], acc);
    }
    return acc;
}

MC_INLINE float add_block_q8_k(struct ref_law law, const struct ref_block *b, struct kern_q8_k x, size_t i0, float acc)
{
    const float da = x.d[i0 / 256];
    acc = kern_fma(b->d[0] * da, (float)ref_sum(law, b, 0, x.q + i0), acc);
    if (law.minimum == REF_MIN_SUB) {
        const int16_t *sums = law.sub == 16 ? x.sum16 + i0 / 16 : x.sum32 + i0 / 32;
        acc = kern_fma(-(b->m * da), (float)ref_min_sum(law, b, sums), acc);
    }
    return acc;
}

MC_INLINE void matmul(enum quant_type type, float *const *y, const void *w, size_t w_stride, const void *const *x, size_t k,
                      size_t rows, size_t cols)
{
    const struct ref_law law = ref_law_of(type);
    const size_t bytes = quant_info(type)->block_bytes;
    assert(k % law.len == 0);
    for (size_t r = 0; r < rows; r++) {
        const uint8_t *p = (const uint8_t *)w + r * w_stride;
        for (size_t c = 0; c < cols; c++) y[c][r] = 0;
        for (size_t i0 = 0; i0 < k; i0 += law.len, p += bytes) {
            struct ref_block b;
            ref_unpack(type, &b, p);
            for (size_t c = 0; c < cols; c++)
                y[c][r] = law.len == 256 ? add_block_q8_k(law, &b, kern_q8_k_view(x[c], k), i0, y[c][r])
                                         : add_block_q8_0(law, &b, kern_q8_0_view(x[c], k), i0, y[c][r]);
        }
    }
}

#define MATMUL(name, NAME, len, step, sub, minimum)                                                                            \
    static void matmul_##name(float *const *y, const void *w, size_t w_stride, const void *const *x, size_t k, size_t rows,    \
                              size_t cols)                                                                                     \
    {                                                                                                                          \
        matmul(QUANT_##NAME, y, w, w_stride, x, k, rows, cols);                                                                \
    }
REF_TYPES(MATMUL)

void kern_init_ref_matmul(struct kern_table *t)
{
#define SET_MATMUL(name, NAME, len, step, sub, minimum) t->matmul[QUANT_##NAME] = matmul_##name;
    REF_TYPES(SET_MATMUL)
    ref_init_quantize(t);
    ref_init_dequantize(t);
}
