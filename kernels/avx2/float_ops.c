/* float_ops.c - the float kernels (kernels/vec/float_ops.inc.h) for AVX2. */
#include "kernels/vec/vec_avx2.h"

#define FLOAT_OPS_INIT kern_init_avx2_float
#include "kernels/vec/float_ops.inc.h"
