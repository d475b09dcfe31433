/* quantize.c - float rows to 8-bit rows: scalar twins (quants.md 3.1 "simd", 3.2, 3.3; row layout: kernels.h).
 *
 * A block is a function of its own 32 or 256 floats. Blocks too small to have a reciprocal (below 2^-119) become zero. */
#include "kernels/ref/ref.h"

#include "kernels/f16.h"

#include <assert.h>
#include <math.h>

/* Rows are read through const views; their writer takes the const away in this one place. */
#define WRITABLE(type, p) ((type *)(uintptr_t)(p))

#define SMALLEST_SCALED 0x1p-119f

/* Saturated; a NaN gives -128, as the instructions do. */
static int8_t code_of(float v)
{
    v = round_even(v);
    return (int8_t)(v > 127 ? 127 : v >= -128 ? v : -128);
}

static int sum_codes(const int8_t *q, unsigned n)
{
    int sum = 0;
    for (unsigned i = 0; i < n; i++) sum += q[i];
    return sum;
}

static void quantize_q8_0(void *row, const float *x, size_t k, size_t i0, size_t i1)
{
    const struct kern_q8_0 v = kern_q8_0_view(row, k);
    int8_t *q = WRITABLE(int8_t, v.q);
    assert(i0 % 32 == 0 && i1 % 32 == 0 && i1 <= k);
    for (size_t b = i0 / 32; b < i1 / 32; b++) {
        float amax = 0;
        for (unsigned i = 0; i < 32; i++) {
            const float a = fabsf(x[32 * b + i]);
            if (a > amax || isnan(a)) amax = a; /* a NaN stays: the row must not look sound */
        }
        const float d = amax / 127.0f, inv = amax < SMALLEST_SCALED ? 0 : 127.0f / amax;
        for (unsigned i = 0; i < 32; i++) q[32 * b + i] = code_of(x[32 * b + i] * inv);
        const int sum = sum_codes(q + 32 * b, 32);
        WRITABLE(float, v.d)[b] = f16_to_f32(f32_to_f16(d));
        WRITABLE(int16_t, v.sum32)[b] = (int16_t)sum;
        WRITABLE(float, v.s)[b] = f16_to_f32(f32_to_f16(d * (float)sum));
    }
}

/* Sums of n codes each, over the 256 codes of block b. */
static void write_sums(const int16_t *sums, const int8_t *q, size_t b, unsigned n)
{
    for (unsigned j = 0; j < 256 / n; j++)
        WRITABLE(int16_t, sums)[b * (256 / n) + j] = (int16_t)sum_codes(q + 256 * b + n * j, n);
}

static void quantize_q8_k(void *row, const float *x, size_t k, size_t i0, size_t i1)
{
    const struct kern_q8_k v = kern_q8_k_view(row, k);
    int8_t *q = WRITABLE(int8_t, v.q);
    assert(i0 % 256 == 0 && i1 % 256 == 0 && i1 <= k);
    for (size_t b = i0 / 256; b < i1 / 256; b++) {
        float amax = 0, mx = 0; /* the first of the largest, with its sign */
        for (unsigned i = 0; i < 256; i++) {
            const float a = fabsf(x[256 * b + i]);
            if (a > amax || isnan(a)) amax = a, mx = x[256 * b + i];
        }
        const float iscale = amax < SMALLEST_SCALED ? 0 : -127.0f / mx;
        for (unsigned i = 0; i < 256; i++) q[256 * b + i] = code_of(x[256 * b + i] * iscale);
        WRITABLE(float, v.d)[b] = amax < SMALLEST_SCALED ? 0 : 1.0f / iscale;
        write_sums(v.sum32, q, b, 32);
        write_sums(v.sum16, q, b, 16);
        write_sums(v.sum8, q, b, 8);
    }
}

static void quantize_f32(void *row, const float *x, size_t k, size_t i0, size_t i1)
{
    assert(i0 <= i1 && i1 <= k);
    memcpy((float *)row + i0, x + i0, (i1 - i0) * sizeof *x);
    (void)k;
}

void ref_init_quantize(struct kern_table *t)
{
    t->quantize[QUANT_ACT_F32] = quantize_f32;
    t->quantize[QUANT_ACT_Q8_0] = quantize_q8_0;
    t->quantize[QUANT_ACT_Q8_K] = quantize_q8_k;
}
