/* rows.inc.h - float rows to and from their stored forms: f32, f16, bf16 and the q8_0 blocks of the KV cache. */
#ifndef KERNELS_VEC_ROWS_INC_H
#define KERNELS_VEC_ROWS_INC_H

enum { Q8_LEN = 32, Q8_BYTES = 34 }; /* f16 d, int8 q[32] */

MC_INLINE void rows_load(enum vec_kind kind, float *dst, const void *src, size_t n)
{
    size_t i = 0;
    for (; i + VL <= n; i += VL) v_store(dst + i, v_load_kind(kind, src, i));
    if (i < n) v_store_part(dst + i, v_load_kind_part(kind, src, i, n - i), n - i);
}

static void dequantize_f32(float *dst, const void *src, size_t k)
{
    memcpy(dst, src, k * sizeof(float));
}

static void dequantize_f16(float *dst, const void *src, size_t k)
{
    rows_load(VEC_F16, dst, src, k);
}

static void dequantize_bf16(float *dst, const void *src, size_t k)
{
    rows_load(VEC_BF16, dst, src, k);
}

static void quantize_f32(void *row, const float *x, size_t k, size_t i0, size_t i1)
{
    (void)k;
    memcpy((float *)row + i0, x + i0, (i1 - i0) * sizeof(float));
}

/* The simd variant of q8_0: codes from the unrounded scale, halves to even.                     quants.md 3.1 */
static void kv_store_q8(char *row, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i += Q8_LEN, row += Q8_BYTES) {
        vf most = v_zero();
        for (size_t j = 0; j < Q8_LEN; j += VL) most = v_max(v_abs(v_load(x + i + j)), most);
        const float amax = v_max_all(most), inverse = amax > 0 ? 127.0f / amax : 0;
        const uint16_t d = f32_to_f16(amax / 127.0f);
        int8_t q[Q8_LEN];
        for (size_t j = 0; j < Q8_LEN; j += VL) v_store_i8(q + j, v_mul(v_load(x + i + j), v_set1(inverse)));
        memcpy(row, &d, sizeof d);
        memcpy(row + 2, q, sizeof q);
    }
}

static void kv_load_q8(float *x, const char *row, size_t n)
{
    for (size_t i = 0; i < n; i += Q8_LEN, row += Q8_BYTES) {
        uint16_t d;
        memcpy(&d, row, sizeof d);
        for (size_t j = 0; j < Q8_LEN; j += VL)
            v_store(x + i + j, v_mul(v_set1(f16_to_f32(d)), v_load_i8((const int8_t *)row + 2 + j)));
    }
}

static void kv_store(void *row, const float *x, size_t n, enum kern_kv kv)
{
    size_t i = 0;
    switch (kv) {
    case KERN_KV_Q8:
        kv_store_q8(row, x, n);
        break;
    case KERN_KV_F16:
        for (; i + VL <= n; i += VL) v_store_f16((char *)row + 2 * i, v_load(x + i));
        if (i < n) v_store_f16_part((char *)row + 2 * i, v_load_part(x + i, n - i), n - i);
        break;
    default:
        memcpy(row, x, n * sizeof(float));
    }
}

static void kv_load(float *x, const void *row, size_t n, enum kern_kv kv)
{
    switch (kv) {
    case KERN_KV_Q8:
        kv_load_q8(x, row, n);
        break;
    case KERN_KV_F16:
        rows_load(VEC_F16, x, row, n);
        break;
    default:
        memcpy(x, row, n * sizeof(float));
    }
}

#endif
