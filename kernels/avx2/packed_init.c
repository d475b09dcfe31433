/* packed_init.c - the packed slots of this rung. */
#include "kernels/avx2/packed.h"
#include "kernels/cpu_flags.h"
#include "kernels/kernels_isa.h"

void kern_init_avx2_packed(struct kern_table *t, uint32_t cpu_flags)
{
    avx2_init_packed_steps(t);
    avx2_init_packed_kquant(t);
    avx2_init_packed_iq2(t);
    avx2_init_packed_iq4(t);
    avx2_init_packed_ternary(t);
    if (!(cpu_flags & KERN_AVX_VNNI)) return;
    avx2_vnni_init_packed_steps(t);
    avx2_vnni_init_packed_kquant(t);
    avx2_vnni_init_packed_iq2(t);
    avx2_vnni_init_packed_iq4(t);
    avx2_vnni_init_packed_ternary(t);
}
