/* init.c - the AVX-512 rung of the kernel table. */
#include "kernels/kernels_isa.h"

void kern_init_avx512(struct kern_table *t, uint32_t cpu_flags)
{
    (void)cpu_flags; /* KERN_AVX512 stands for everything these files use */
    kern_init_avx512_float(t);
    kern_init_avx512_matmul(t);
    kern_init_avx512_packed(t);
}
