/* ref.h - the files of ref/ and the slots they fill. Private to ref/. */
#ifndef KERNELS_REF_REF_H
#define KERNELS_REF_REF_H

#include "kernels/kernels.h"

void ref_init_quantize(struct kern_table *t);
void ref_init_dequantize(struct kern_table *t);

#endif
