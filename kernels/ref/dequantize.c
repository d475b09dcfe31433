/* dequantize.c - weights as floats, exact for every format (quants.md 4).
 *
 * d * scale and its product with the code are exact in float32; where there is a minimum, it is subtracted (or added) with the
 * only rounding there is. */
#include "kernels/ref/ref.h"

#include "kernels/ref/unpack.h"

MC_INLINE void dequantize(enum quant_type type, float *dst, const uint8_t *src, size_t k)
{
    const struct ref_law law = ref_law_of(type);
    const size_t bytes = quant_info(type)->block_bytes;
    for (size_t i0 = 0; i0 < k; i0 += law.len, src += bytes, dst += law.len) {
        struct ref_block b;
        ref_unpack(type, &b, src);
        for (unsigned i = 0; i < law.len; i++) {
            const float w = b.d[i / law.step] * (float)b.scale[i / law.sub] * (float)b.q[i];
            dst[i] = law.minimum == REF_MIN_SUB   ? w - b.m * (float)b.min[i / law.sub]
                     : law.minimum == REF_MIN_ADD ? w + b.m
                                                  : w;
        }
    }
}

#define DEQUANTIZE(name, NAME, len, step, sub, minimum)                                                                        \
    static void dequantize_##name(float *dst, const void *src, size_t k)                                                       \
    {                                                                                                                          \
        dequantize(QUANT_##NAME, dst, src, k);                                                                                 \
    }
REF_TYPES(DEQUANTIZE)

static void dequantize_f32(float *dst, const void *src, size_t k)
{
    memcpy(dst, src, k * sizeof *dst);
}

static void dequantize_f16(float *dst, const void *src, size_t k)
{
    for (size_t i = 0; i < k; i++) dst[i] = f16_to_f32(mc_load_u16((const uint8_t *)src + 2 * i));
}

static void dequantize_bf16(float *dst, const void *src, size_t k)
{
    for (size_t i = 0; i < k; i++) dst[i] = bf16_to_f32(mc_load_u16((const uint8_t *)src + 2 * i));
}

void ref_init_dequantize(struct kern_table *t)
{
#define SET_DEQUANTIZE(name, NAME, len, step, sub, minimum) t->dequantize[QUANT_##NAME] = dequantize_##name;
    REF_TYPES(SET_DEQUANTIZE)
    t->dequantize[QUANT_F32] = dequantize_f32;
    t->dequantize[QUANT_F16] = dequantize_f16;
    t->dequantize[QUANT_BF16] = dequantize_bf16;
}
