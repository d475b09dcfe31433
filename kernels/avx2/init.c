/* init.c - the AVX2 rung of the kernel table. */
#include "kernels/kernels_isa.h"

void kern_init_avx2(struct kern_table *t, uint32_t cpu_flags)
{
    kern_init_avx2_float(t);
    kern_init_avx2_matmul(t, cpu_flags);
    kern_init_avx2_packed(t, cpu_flags);
    kern_init_avx2_pack(t);
}
