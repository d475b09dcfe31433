/* matmul_init.c - the matmul and quantize slots of this rung. */
#include "kernels/avx512/matmul.h"
#include "kernels/kernels_isa.h"

void kern_init_avx512_matmul(struct kern_table *t)
{
    avx512_init_matmul_q8_0(t);
    avx512_init_matmul_kquant(t);
    avx512_init_matmul_iquant(t);
    avx512_init_matmul_iq1(t);
    avx512_init_matmul_ternary(t);
    avx512_init_quantize(t);
}
