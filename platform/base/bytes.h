/* bytes.h - little-endian loads and stores at any address, and sizes that cannot wrap.
 *
 * The checked helpers return false when the exact result does not fit; *out is then untouched. */
#ifndef PLATFORM_BASE_BYTES_H
#define PLATFORM_BASE_BYTES_H

#include "platform/base/compiler.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* A borrowed run of bytes; text from files is never a C string. */
struct mc_span {
    const uint8_t *data;
    size_t size;
};

static inline uint16_t mc_load_u16(const void *p)
{
    uint8_t b[2];
    memcpy(b, p, 2);
    return (uint16_t)(b[0] | b[1] << 8);
}

static inline uint32_t mc_load_u32(const void *p)
{
    uint8_t b[4];
    memcpy(b, p, 4);
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static inline uint64_t mc_load_u64(const void *p)
{
    return (uint64_t)mc_load_u32(p) | (uint64_t)mc_load_u32((const uint8_t *)p + 4) << 32;
}

static inline float mc_load_f32(const void *p)
{
    const uint32_t u = mc_load_u32(p);
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static inline double mc_load_f64(const void *p)
{
    const uint64_t u = mc_load_u64(p);
    double f;
    memcpy(&f, &u, 8);
    return f;
}

static inline void mc_store_u16(void *p, uint16_t v)
{
    const uint8_t b[2] = {(uint8_t)v, (uint8_t)(v >> 8)};
    memcpy(p, b, 2);
}

static inline void mc_store_u32(void *p, uint32_t v)
{
    const uint8_t b[4] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), (uint8_t)(v >> 24)};
    memcpy(p, b, 4);
}

static inline void mc_store_u64(void *p, uint64_t v)
{
    mc_store_u32(p, (uint32_t)v);
    mc_store_u32((uint8_t *)p + 4, (uint32_t)(v >> 32));
}

MC_MUST_CHECK static inline bool mc_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

MC_MUST_CHECK static inline bool mc_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_add_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

/* v rounded up to a multiple of `step` (a power of two). */
MC_MUST_CHECK static inline bool mc_align_up_u64(uint64_t v, uint64_t step, uint64_t *out)
{
    uint64_t r;
    if (__builtin_add_overflow(v, step - 1, &r)) return false;
    *out = r & ~(step - 1);
    return true;
}

/* The same for sizes of ours that are known to be small. */
static inline size_t mc_round_up(size_t v, size_t step)
{
    return (v + step - 1) / step * step;
}

#endif
