/* matmul_init.c - which matrix products and quantisers this folder improves. */
#include "kernels/avx2/matmul.h"
#include "kernels/kernels_isa.h"

void kern_init_avx2_matmul(struct kern_table *t, uint32_t cpu_flags)
{
    (void)cpu_flags;
    avx2_matmul_q8_0(t);
    avx2_matmul_kquant(t);
    avx2_matmul_iquant(t);
    avx2_matmul_iq1(t);
    avx2_matmul_ternary(t);
    avx2_quantize(t);
}
