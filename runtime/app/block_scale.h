/* block_scale.h - where the scale of a block of weights stands and in what form: facts of the file formats that synth writes
 * and inspect checks. */
#ifndef RUNTIME_APP_BLOCK_SCALE_H
#define RUNTIME_APP_BLOCK_SCALE_H

#include "kernels/quant/types.h"

enum scale_form {
    SCALE_NONE,    /* f32, f16, bf16, i32: no blocks */
    SCALE_F16,     /* a float16 */
    SCALE_F16_MIN, /* a float16 and, right behind it, the minimum */
    SCALE_IQ1_M,   /* a float16, one hexadecimal digit on top of each of four words */
    SCALE_E8M0,    /* a power of two */
    SCALE_E4M3     /* four 8-bit floats */
};

struct block_scale {
    enum scale_form form;
    uint8_t at; /* offset in the block */
};

struct block_scale block_scale_of(enum quant_type type);

#endif
