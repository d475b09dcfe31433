/* matmul.h - the files of this folder that fill matmul slots; each sets the slots of its own formats. */
#ifndef KERNELS_AVX512_MATMUL_H
#define KERNELS_AVX512_MATMUL_H

#include "kernels/kernels.h"

void avx512_init_matmul_q8_0(struct kern_table *t);
void avx512_init_matmul_kquant(struct kern_table *t);
void avx512_init_matmul_iquant(struct kern_table *t);
void avx512_init_matmul_iq1(struct kern_table *t);
void avx512_init_matmul_ternary(struct kern_table *t);
void avx512_init_quantize(struct kern_table *t);

#endif
