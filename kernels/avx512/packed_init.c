/* packed_init.c - the packed slots of this rung. */
#include "kernels/avx512/packed.h"
#include "kernels/kernels_isa.h"

void kern_init_avx512_packed(struct kern_table *t)
{
    avx512_init_packed_steps(t);
    avx512_init_packed_kquant(t);
    avx512_init_packed_iq2(t);
    avx512_init_packed_iq4(t);
    avx512_init_packed_ternary(t);
}
