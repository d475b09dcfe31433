/* matmul.h - the files of this folder that fill slots of the table for integer activations. Private to avx2/. */
#ifndef KERNELS_AVX2_MATMUL_H
#define KERNELS_AVX2_MATMUL_H

#include "kernels/kernels.h"

void avx2_matmul_q8_0(struct kern_table *t);
void avx2_matmul_kquant(struct kern_table *t);
void avx2_matmul_iquant(struct kern_table *t);
void avx2_matmul_iq1(struct kern_table *t);
void avx2_matmul_ternary(struct kern_table *t);
void avx2_quantize(struct kern_table *t);

#endif
