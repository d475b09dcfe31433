/* rows16.h - matrix products with integer activations, 16 rows at a time: what all formats of this folder share.
 *
 * The file layout keeps one row together; the arithmetic wants lane = row. So 16 bytes of 16 rows are loaded and transposed as
 * packed codes (quads16), which is cheap because the codes are still small, and unpacked afterwards: dword lane r of a code
 * vector holds the codes of 4 consecutive columns of row r, unsigned (a bias is added). The activation enters as a broadcast
 * dword, vpdpbusd adds 4 columns of 16 rows, nothing is ever summed across lanes, sub-scales are lane = row vectors, and the
 * float chain of rule R1 (kernels.h) runs in lanes as it stands.
 *
 *   one column        the code vectors go straight into vpdpbusd
 *   several columns   256 columns of 16 rows are unpacked once into a tile in L1, then all columns pass over it, 8 at a time
 *
 * A format supplies two always-inlined functions: `head` writes scales into the tile, `codes` makes code vectors. A tail of
 * fewer than 16 rows: with 16 or more rows in all the last group overlaps the one before (same inputs, same bits); otherwise
 * the blocks are copied beside zero rows. Only for files of this folder: everything is static inline. */
#ifndef KERNELS_AVX512_ROWS16_H
#define KERNELS_AVX512_ROWS16_H

#include "kernels/kernels.h"
#include "platform/base/compiler.h"

#include <immintrin.h>
#include <string.h>

#define ROWS16_COLS      64 /* columns that share one unpacking of a tile */
#define ROWS16_BLOCK_MAX 288

struct tile {
    MC_ALIGNED(64) uint8_t q[64][64];     /* dword v of 16 rows: columns 4v .. 4v+3 */
    MC_ALIGNED(64) int32_t scale[16][16]; /* integer scale of each 16 or 32 columns */
    MC_ALIGNED(64) int16_t pair[16][32];  /* factors of two neighbouring activation sums each */
    MC_ALIGNED(64) float d[8][16];        /* scale of each activation block */
    MC_ALIGNED(64) float m[8][16];        /* minimum */
    MC_ALIGNED(64) uint8_t raw[20][64];   /* packed words of the block, transposed, for formats that need them in every step */
};

/* ---- loads ------------------------------------------------------------------------------------------------------ */

MC_INLINE __m512i bytes64(const void *p)
{
    return _mm512_loadu_si512(p);
}

MC_INLINE __m512i dword_all(const void *p)
{
    int32_t v;
    memcpy(&v, p, 4);
    return _mm512_set1_epi32(v);
}

/* 4 x 4 dwords in each 128-bit lane. */
MC_INLINE void transpose4(__m512i q[4], const __m512i z[4])
{
    const __m512i a = _mm512_unpacklo_epi32(z[0], z[1]), b = _mm512_unpackhi_epi32(z[0], z[1]);
    const __m512i c = _mm512_unpacklo_epi32(z[2], z[3]), d = _mm512_unpackhi_epi32(z[2], z[3]);
    q[0] = _mm512_unpacklo_epi64(a, c);
    q[1] = _mm512_unpackhi_epi64(a, c);
    q[2] = _mm512_unpacklo_epi64(b, d);
    q[3] = _mm512_unpackhi_epi64(b, d);
}

/* Distances between rows. The odd multiples are variables of their own, so that the address of each of 16 rows is one base and
 * one scaled index: computed from a single stride, GCC keeps 15 sums and spills them into vector registers. */
struct strides {
    size_t odd[8]; /* 1, 3, 5 ... 15 strides */
};

MC_INLINE const uint8_t *row_at(const uint8_t *p, const struct strides *s, unsigned r)
{
    return r == 0  ? p
           : r & 1 ? p + s->odd[r / 2]
           : r & 2 ? p + 2 * s->odd[r / 4]
           : r & 4 ? p + 4 * s->odd[r / 8]
                   : p + 8 * s->odd[0];
}

/* 16 bytes at p of 16 rows: q[t] lane r = bytes 4t .. 4t+3 of row r. */
MC_INLINE void quads16(__m512i q[4], const uint8_t *p, const struct strides *s)
{
    __m512i z[4];
    MC_UNROLL for (unsigned j = 0; j < 4; j++)
    {
        z[j] = _mm512_castsi128_si512(_mm_loadu_si128((const void *)row_at(p, s, j)));
        z[j] = _mm512_mask_broadcast_i32x4(z[j], 0x00F0, _mm_loadu_si128((const void *)row_at(p, s, 4 + j)));
        z[j] = _mm512_mask_broadcast_i32x4(z[j], 0x0F00, _mm_loadu_si128((const void *)row_at(p, s, 8 + j)));
        z[j] = _mm512_mask_broadcast_i32x4(z[j], 0xF000, _mm_loadu_si128((const void *)row_at(p, s, 12 + j)));
    }
    transpose4(q, z);
}

/* 32 bytes at p of 16 rows: q[t] lane r = bytes 4t .. 4t+3 of row r. */
MC_INLINE void octs16(__m512i q[8], const uint8_t *p, const struct strides *s)
{
    __m512i half[2][4];
    MC_UNROLL for (unsigned h = 0; h < 2; h++)
    {
        __m512i z[4];
        MC_UNROLL for (unsigned j = 0; j < 4; j++)
        {
            z[j] = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)row_at(p, s, 8 * h + j)));
            z[j] = _mm512_mask_broadcast_i64x4(z[j], 0xF0, _mm256_loadu_si256((const void *)row_at(p, s, 8 * h + j + 4)));
        }
        transpose4(half[h], z);
    }
    /* lanes of 128 bits: rows 0..3 of dword t and of dword t + 4, rows 4..7 of both */
    MC_UNROLL for (unsigned t = 0; t < 4; t++)
    {
        q[t] = _mm512_shuffle_i64x2(half[0][t], half[1][t], 0x88);
        q[t + 4] = _mm512_shuffle_i64x2(half[0][t], half[1][t], 0xDD);
    }
}

/* 4 bytes at p of 16 rows. */
MC_INLINE __m512i lanes_u32(const uint8_t *p, const struct strides *s)
{
    __m512i z[4];
    MC_UNROLL for (unsigned j = 0; j < 4; j++)
    {
        z[j] = _mm512_maskz_broadcastd_epi32((__mmask16)(1u << j), _mm_loadu_si32(row_at(p, s, j)));
        z[j] = _mm512_mask_broadcastd_epi32(z[j], (__mmask16)(1u << (j + 4)), _mm_loadu_si32(row_at(p, s, j + 4)));
        z[j] = _mm512_mask_broadcastd_epi32(z[j], (__mmask16)(1u << (j + 8)), _mm_loadu_si32(row_at(p, s, j + 8)));
        z[j] = _mm512_mask_broadcastd_epi32(z[j], (__mmask16)(1u << (j + 12)), _mm_loadu_si32(row_at(p, s, j + 12)));
    }
    return _mm512_or_si512(_mm512_or_si512(z[0], z[1]), _mm512_or_si512(z[2], z[3]));
}

/* 8 bytes at p of 16 rows: two dwords. */
MC_INLINE void lanes_u64(__m512i q[2], const uint8_t *p, const struct strides *s)
{
    __m512i z[4]; /* rows 0..3, 4..7 merged into z[0]; two chains a half */
    MC_UNROLL for (unsigned j = 0; j < 4; j++)
    {
        const unsigned r = 4 * j, lane = r % 8;
        z[j] = _mm512_maskz_broadcastq_epi64((__mmask8)(1u << lane), _mm_loadl_epi64((const void *)row_at(p, s, r)));
        z[j] = _mm512_mask_broadcastq_epi64(z[j], (__mmask8)(2u << lane), _mm_loadl_epi64((const void *)row_at(p, s, r + 1)));
        z[j] = _mm512_mask_broadcastq_epi64(z[j], (__mmask8)(4u << lane), _mm_loadl_epi64((const void *)row_at(p, s, r + 2)));
        z[j] = _mm512_mask_broadcastq_epi64(z[j], (__mmask8)(8u << lane), _mm_loadl_epi64((const void *)row_at(p, s, r + 3)));
    }
    const __m512i a = _mm512_or_si512(z[0], z[1]), b = _mm512_or_si512(z[2], z[3]);
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    q[0] = _mm512_permutex2var_epi32(a, even, b);
    q[1] = _mm512_permutex2var_epi32(a, _mm512_add_epi32(even, _mm512_set1_epi32(1)), b);
}

/* The float16 in the low half of each lane. */
MC_INLINE __m512 low_f16(__m512i v)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
}
MC_INLINE __m512 high_f16(__m512i v)
{
    return low_f16(_mm512_srli_epi32(v, 16));
}

MC_INLINE __m512i low_nibbles(__m512i v)
{
    return _mm512_and_si512(v, _mm512_set1_epi8(15));
}
MC_INLINE __m512i high_nibbles(__m512i v)
{
    return low_nibbles(_mm512_srli_epi16(v, 4));
}

/* a where m has ones, b elsewhere */
MC_INLINE __m512i select_bits(__m512i m, __m512i a, __m512i b)
{
    return _mm512_ternarylogic_epi32(m, a, b, 0xCA);
}
/* a | (b & m) */
MC_INLINE __m512i or_and(__m512i a, __m512i b, __m512i m)
{
    return _mm512_ternarylogic_epi32(a, b, m, 0xF8);
}

/* Offsets for vpmultishiftqb: byte j of each dword takes the 8 bits from `first + step * j` of the same dword on (modulo the
 * qword: bits that come from elsewhere must be masked away). */
MC_INLINE __m512i dword_offsets(unsigned first, unsigned step)
{
    uint64_t v = 0;
    MC_UNROLL for (unsigned j = 0; j < 8; j++) v |= (uint64_t)((j / 4 * 32 + first + step * (j % 4)) & 63) << (8 * j);
    return _mm512_set1_epi64((long long)v);
}

/* Order for vpermi2b: in each lane bytes first .. 3 of the first dword, then bytes 0 .. first - 1 of the second. */
MC_INLINE __m512i dword_window(unsigned first)
{
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    uint32_t bytes = 0;
    MC_UNROLL for (unsigned j = 0; j < 4; j++) bytes |= (first + j < 4 ? first + j : 64 + first + j - 4) << (8 * j);
    return _mm512_add_epi32(_mm512_mullo_epi32(lanes, _mm512_set1_epi32(0x04040404)), _mm512_set1_epi32((int)bytes));
}

/* Tables of bytes in registers: 128 entries at `table`, index in the low seven bits. */
MC_INLINE __m512i look_up_128(__m512i idx, const uint8_t *table)
{
    return _mm512_permutex2var_epi8(bytes64(table), idx, bytes64(table + 64));
}

/* 256 entries; high: bit 7 of each index. */
MC_INLINE __m512i look_up_256(__m512i idx, __mmask64 high, const uint8_t *table)
{
    return _mm512_mask_mov_epi8(look_up_128(idx, table), high, look_up_128(idx, table + 128));
}

/* ---- groups of rows --------------------------------------------------------------------------------------------- */

struct rows16 {
    const uint8_t *p; /* first block of the first row */
    struct strides s;
    size_t stride;
    size_t r0;
    __mmask16 live; /* rows whose results are stored */
    bool copied;    /* fewer than 16 rows: blocks are read through the copy buffer */
};

MC_INLINE struct strides strides_of(size_t stride)
{
    struct strides s;
    MC_UNROLL for (unsigned i = 0; i < 8; i++) s.odd[i] = (2 * i + 1) * stride;
    return s;
}

/* The group that starts at row r0 or, at the end, the last 16 rows. */
MC_INLINE struct rows16 rows16_group(const void *w, size_t stride, size_t r0, size_t rows)
{
    struct rows16 g = {0};
    g.copied = rows < 16;
    g.r0 = g.copied ? 0 : r0 + 16 > rows ? rows - 16 : r0;
    g.p = (const uint8_t *)w + g.r0 * stride;
    g.s = strides_of(g.copied ? ROWS16_BLOCK_MAX : stride);
    g.stride = stride;
    g.live = (__mmask16)(g.copied ? (1u << rows) - 1 : 0xFFFF);
    return g;
}

/* Block of `bytes` bytes at p of the live rows, beside zero rows, ROWS16_BLOCK_MAX apart. */
static MC_NOINLINE const uint8_t *rows16_copy(uint8_t buf[16 * ROWS16_BLOCK_MAX + 64], const struct rows16 *g, const uint8_t *p,
                                              size_t bytes)
{
    for (unsigned r = 0; r < 16; r++) {
        if (g->live >> r & 1)
            memcpy(buf + r * ROWS16_BLOCK_MAX, p + r * g->stride, bytes);
        else
            memset(buf + r * ROWS16_BLOCK_MAX, 0, bytes);
    }
    return buf;
}

/* Block b of this group asks for its share of the next group, which lies behind it; `bytes` is the size of a block. Rows are
 * too short for the hardware to see 16 streams; in the order of addresses they are one. */
MC_INLINE void rows16_prefetch(const struct rows16 *g, size_t b, unsigned bytes)
{
    const char *next = (const char *)g->p + 16 * g->stride + b * 16 * bytes;
    for (unsigned i = 0; i < 16 * bytes; i += 64) _mm_prefetch(next + i, _MM_HINT_T0);
}

#endif
