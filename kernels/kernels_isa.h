/* kernels_isa.h - the rungs of kern_table_init; the only external symbols of their folders. */
#ifndef KERNELS_KERNELS_ISA_H
#define KERNELS_KERNELS_ISA_H

#include "kernels/kernels.h"

void kern_init_ref(struct kern_table *t); /* fills every slot */
void kern_init_avx2(struct kern_table *t, uint32_t cpu_flags);
void kern_init_avx512(struct kern_table *t, uint32_t cpu_flags);

/* Parts of a rung, one per file of the folder: they set the slots of their own file. */
void kern_init_ref_matmul(struct kern_table *t);
void kern_init_ref_float(struct kern_table *t);
void kern_init_ref_pack(struct kern_table *t); /* kernels/pack.c */
void kern_init_avx2_float(struct kern_table *t);
void kern_init_avx2_matmul(struct kern_table *t, uint32_t cpu_flags);
void kern_init_avx512_float(struct kern_table *t);
void kern_init_avx512_matmul(struct kern_table *t);
void kern_init_avx2_pack(struct kern_table *t);
void kern_init_avx2_packed(struct kern_table *t, uint32_t cpu_flags);
void kern_init_avx512_packed(struct kern_table *t);

#endif
