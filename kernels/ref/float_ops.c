/* float_ops.c - the float kernels (kernels/vec/float_ops.inc.h) in plain C: the specification of the others. */
#include "kernels/vec/vec_scalar.h"

#define FLOAT_OPS_INIT kern_init_ref_float
#include "kernels/vec/float_ops.inc.h"
