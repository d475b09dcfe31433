/* f16.h - exact conversions between float formats and the one fused multiply-add, for scalar code.
 *
 * Static inline functions only, so that a file compiled for a special instruction set may include it without leaving a copy of
 * a shared function behind. Conversions are integer arithmetic or exact float operations: they do not depend on F16C. */
#ifndef KERNELS_F16_H
#define KERNELS_F16_H

#include <stdint.h>
#include <string.h>

static inline float f32_of_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static inline uint32_t f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

/* Exact for every pattern; a NaN keeps its payload and becomes quiet, as the hardware does. */
static inline float f16_to_f32(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, mag = h & 0x7FFF;
    if (mag < 0x0400) { /* zero and subnormals: mag * 2^-24 is a normal float */
        const float v = (float)mag * 0x1p-24f;
        return f32_of_bits(f32_bits(v) | sign);
    }
    if (mag < 0x7C00) return f32_of_bits(sign | ((mag << 13) + (112u << 23)));
    return f32_of_bits(sign | 0x7F800000 | (mag & 0x3FF) << 13 | (mag > 0x7C00 ? 0x00400000u : 0));
}

/* Nearest, ties to even; from 65520 on infinite. A NaN becomes quiet. */
static inline uint16_t f32_to_f16(float f)
{
    const uint32_t u = f32_bits(f), mag = u & 0x7FFFFFFF, sign = u >> 16 & 0x8000;
    if (mag > 0x7F800000) return (uint16_t)(sign | 0x7E00 | (mag >> 13 & 0x3FF));
    if (mag >= 0x477FF000) return (uint16_t)(sign | 0x7C00);
    if (mag < 0x38800000) { /* below 2^-14: the sum with 0.5 rounds at 2^-24, the last place of a subnormal */
        return (uint16_t)(sign | (f32_bits(f32_of_bits(mag) + 0.5f) - f32_bits(0.5f)));
    }
    return (uint16_t)(sign | ((mag - (112u << 23) + 0xFFF + (mag >> 13 & 1)) >> 13));
}

static inline float bf16_to_f32(uint16_t h)
{
    return f32_of_bits((uint32_t)h << 16);
}

/* Nearest integer, ties to even, for |v| <= 2^22. */
static inline float round_even(float v)
{
    return (v + 0x1.8p23f) - 0x1.8p23f;
}

/* Scale of an mxfp4 block: half of 2^(e-127), because the code table is doubled. */
static inline float e8m0_half(uint8_t e)
{
    return f32_of_bits(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

/* Scale of an nvfp4 sub-block: half of the unsigned E4M3 value; bit 7 is ignored, 0x7F reads as 0. */
static inline float ue4m3_half(uint8_t e)
{
    const unsigned x = e >> 3 & 15, m = e & 7;
    if (e == 0x7F) return 0;
    return x == 0 ? (float)m * 0x1p-10f : (float)(8 + m) * f32_of_bits((x + 127 - 11) << 23);
}

/* x * y + z, rounded once.
 * Without a fused instruction: the product of two floats is exact as a double. Its sum with z, already rounded to double, goes
 * wrong on the second rounding only when it looks like the middle between two floats (or when the float is subnormal); there
 * the double is made odd if the sum was inexact, which keeps it on the right side. (The C library of mingw rounds twice.) */
static inline float kern_fma(float x, float y, float z)
{
#if defined(__FMA__) || defined(__FP_FAST_FMAF)
    return __builtin_fmaf(x, y, z);
#else
    const double p = (double)x * (double)y;
    double s = p + (double)z;
    uint64_t u;
    memcpy(&u, &s, 8);
    const uint32_t exponent = (uint32_t)(u >> 52) & 0x7FF;
    /* Common case: normal float result, lower 29 bits are not exactly one half. */
    if ((u & 0x1FFFFFFF) != 0x10000000 && exponent > 1023 - 126) return (float)s;
    if (exponent == 0x7FF) return (float)s; /* infinity or NaN */
    const double zz = s - p, error = (p - (s - zz)) + ((double)z - zz);
    if (error != 0 && !(u & 1)) {
        u += (error > 0) == (s > 0) ? 1 : (uint64_t)-1;
        memcpy(&s, &u, 8);
    }
    return (float)s;
#endif
}

#endif
