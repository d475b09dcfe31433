/* vec_scalar.h - vec.h in plain C: 16 lanes in an array. This is the specification that the other two reproduce. */
#ifndef KERNELS_VEC_VEC_SCALAR_H
#define KERNELS_VEC_VEC_SCALAR_H

#include "kernels/f16.h"
#include "platform/base/compiler.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Tiles would gain nothing: there are no registers to keep 16 lanes in. */
enum { VL = 16, TILE_ROWS = 1, TILE_COLS = 1, ONE_COL_ROWS = 1, TWO_COL_ROWS = 0 };

typedef struct {
    float f[VL];
} vf;

/* One statement for all lanes. */
#define V_LANES(expression)                                                                                                    \
    vf r;                                                                                                                      \
    for (int i = 0; i < VL; i++) r.f[i] = (expression);                                                                        \
    return r

MC_INLINE vf v_set1(float x)
{
    V_LANES(x);
}
MC_INLINE vf v_zero(void)
{
    V_LANES(0.0f);
}
MC_INLINE vf v_add(vf a, vf b)
{
    V_LANES(a.f[i] + b.f[i]);
}
MC_INLINE vf v_sub(vf a, vf b)
{
    V_LANES(a.f[i] - b.f[i]);
}
MC_INLINE vf v_mul(vf a, vf b)
{
    V_LANES(a.f[i] * b.f[i]);
}
MC_INLINE vf v_div(vf a, vf b)
{
    V_LANES(a.f[i] / b.f[i]);
}
MC_INLINE vf v_fma(vf a, vf b, vf c)
{
    V_LANES(kern_fma(a.f[i], b.f[i], c.f[i]));
}
MC_INLINE vf v_min(vf a, vf b)
{
    V_LANES(a.f[i] < b.f[i] ? a.f[i] : b.f[i]);
}
MC_INLINE vf v_max(vf a, vf b)
{
    V_LANES(a.f[i] > b.f[i] ? a.f[i] : b.f[i]);
}
MC_INLINE vf v_if_less(vf a, vf b, vf x, vf y)
{
    V_LANES(a.f[i] < b.f[i] ? x.f[i] : y.f[i]);
}
MC_INLINE vf v_abs(vf a)
{
    V_LANES(f32_of_bits(f32_bits(a.f[i]) & 0x7FFFFFFF));
}
MC_INLINE vf v_pow2(vf n)
{
    V_LANES(f32_of_bits((f32_bits(n.f[i] + 0x1.8p23f) << 23) + 0x3F800000));
}
MC_INLINE vf v_swap(vf a, int d)
{
    V_LANES(a.f[i ^ d]);
}

MC_INLINE vf v_load(const float *p)
{
    vf r;
    memcpy(&r, p, sizeof r);
    return r;
}

MC_INLINE void v_store(float *p, vf v)
{
    memcpy(p, &v, sizeof v);
}

MC_INLINE vf v_load_part(const float *p, size_t n)
{
    vf r = v_zero();
    memcpy(r.f, p, n * sizeof *p); // weight rows may stand at any address
    return r;
}

MC_INLINE void v_store_part(float *p, vf v, size_t n)
{
    memcpy(p, v.f, n * sizeof *p);
}

MC_INLINE vf v_load_f16_part(const void *p, size_t n)
{
    vf r = v_zero();
    uint16_t h[VL];
    memcpy(h, p, 2 * n);
    for (size_t i = 0; i < n; i++) r.f[i] = f16_to_f32(h[i]);
    return r;
}

MC_INLINE vf v_load_f16(const void *p)
{
    return v_load_f16_part(p, VL);
}

MC_INLINE vf v_load_bf16_part(const void *p, size_t n)
{
    vf r = v_zero();
    uint16_t h[VL];
    memcpy(h, p, 2 * n);
    for (size_t i = 0; i < n; i++) r.f[i] = bf16_to_f32(h[i]);
    return r;
}

MC_INLINE vf v_load_bf16(const void *p)
{
    return v_load_bf16_part(p, VL);
}

MC_INLINE void v_store_f16_part(void *p, vf v, size_t n)
{
    uint16_t h[VL];
    for (size_t i = 0; i < n; i++) h[i] = f32_to_f16(v.f[i]);
    memcpy(p, h, 2 * n);
}

MC_INLINE void v_store_f16(void *p, vf v)
{
    v_store_f16_part(p, v, VL);
}

MC_INLINE vf v_load_i8(const int8_t *p)
{
    V_LANES((float)p[i]);
}

/* The integer appears in the low bits of v + 1.5 * 2^23; taken from there nothing is undefined, whatever v is. */
MC_INLINE void v_store_i8(int8_t *p, vf v)
{
    uint8_t b[VL];
    for (int i = 0; i < VL; i++) b[i] = (uint8_t)f32_bits(v.f[i] + 0x1.8p23f);
    memcpy(p, b, VL);
}

MC_INLINE float v_sum16(const vf parts[1])
{
    vf s = parts[0];
    for (int d = 8; d > 0; d /= 2)
        for (int i = 0; i < d; i++) s.f[i] += s.f[i + d];
    return s.f[0];
}

MC_INLINE vf v_sum16_block(const vf *sums, size_t stride)
{
    (void)stride; /* one part */
    V_LANES(v_sum16(&sums[i]));
}

#undef V_LANES

#include "kernels/vec/vec.h"

#endif
