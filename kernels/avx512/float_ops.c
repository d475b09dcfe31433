/* float_ops.c - the float kernels (kernels/vec/float_ops.inc.h) for AVX-512. */
#include "kernels/vec/vec_avx512.h"

#define FLOAT_OPS_INIT kern_init_avx512_float
#include "kernels/vec/float_ops.inc.h"
