/* float_ops.inc.h - every float kernel, written once over vec_<isa>.h. kernels/<isa>/float_ops.c includes the vector header,
 * then this file, and names the one function that leaves it: FLOAT_OPS_INIT. Everything else is static. */
#ifndef KERNELS_VEC_FLOAT_OPS_INC_H
#define KERNELS_VEC_FLOAT_OPS_INC_H

#include "kernels/kernels_isa.h"

#include <assert.h>

#include "kernels/vec/functions.h"

#include "kernels/vec/dot.inc.h"
#include "kernels/vec/rows.inc.h"
#include "kernels/vec/streams.inc.h"

#include "kernels/vec/attend.inc.h"

void FLOAT_OPS_INIT(struct kern_table *t)
{
    t->quantize[QUANT_ACT_F32] = quantize_f32;
    t->dequantize[QUANT_F32] = dequantize_f32;
    t->dequantize[QUANT_F16] = dequantize_f16;
    t->dequantize[QUANT_BF16] = dequantize_bf16;
    t->matmul[QUANT_F32] = matmul_f32;
    t->matmul[QUANT_F16] = matmul_f16;
    t->matmul[QUANT_BF16] = matmul_bf16;
    t->rms_norm = rms_norm;
    t->sum_squares = sum_squares;
    t->rope = rope;
    t->hadamard = hadamard;
    t->swiglu = swiglu;
    t->gate = gate;
    t->combine = combine;
    t->pool = pool;
    t->hyper_read = hyper_read;
    t->hyper_write = hyper_write;
    t->kv_store = kv_store;
    t->kv_load = kv_load;
    t->attend_part = attend_part;
    t->attend_finish = attend_finish;
    t->index_scores = index_scores;
}

#endif
