/* packed.h - products with matrices in packed form (kernels/pack.h): what the families of formats share.
 *
 * Dword lane r of a code vector holds the codes of 4 consecutive columns of row r, unsigned. The activation enters as a dword
 * of memory that vpdpbusd broadcasts itself, so nothing is ever summed across lanes and rule R1 (kernels.h) runs in lanes.
 *
 *   up to 4 columns   unpacked in registers and used at once (`direct` in packed_steps.c and packed_blocks.h); one column:
 * several groups together, which share the loads of the activation and read memory as several streams more              16 rows
 * x 256 columns are unpacked once into a tile in L1, as bytes with the scales beside them; one kernel for all formats then
 * walks over the columns (packed_tile.c)
 *
 * Private to the packed_*.c files of this folder. */
#ifndef KERNELS_AVX512_PACKED_H
#define KERNELS_AVX512_PACKED_H

#include "kernels/kernels.h"
#include "kernels/pack.h"
#include "platform/base/compiler.h"

#include <immintrin.h>
#include <string.h>

enum {
    PACKED_DIRECT_COLS = 4,
    PACKED_COLS = 64,     /* columns that share an unpacked tile; their rows should stay in L2 */
    PACKED_TILE_COLS = 6, /* at a time: 2 tiles x 6 columns of sums fill the registers */
    PACKED_AHEAD = 1536,  /* bytes from the line in use to the one that is asked for */
};

void avx512_init_packed_steps(struct kern_table *t);
void avx512_init_packed_kquant(struct kern_table *t);
void avx512_init_packed_iq2(struct kern_table *t);
void avx512_init_packed_iq4(struct kern_table *t);
void avx512_init_packed_ternary(struct kern_table *t);

/* ---- what is to be multiplied ---- */

/* Where the arrays of an activation row start (kernels.h). */
struct row_offsets {
    size_t d, sum32, sum16, sum8, s; /* the first two, with s (q8_0) or the other sums (q8_K) */
};

MC_INLINE struct row_offsets row_offsets_of(enum quant_act act, size_t k)
{
    struct row_offsets at = {.d = KERN_PAD(k)};
    at.sum32 = at.d + KERN_PAD(k / (act == QUANT_ACT_Q8_0 ? 32 : 256) * 4);
    at.s = at.sum16 = at.sum32 + KERN_PAD(k / 32 * 2);
    at.sum8 = at.sum16 + KERN_PAD(k / 16 * 2);
    return at;
}

struct job {
    float *const *y;
    const uint8_t *w;
    const void *const *x;
    size_t k, head, bytes; /* of a group */
    struct row_offsets at;
};

/* ---- loads ---- */

MC_INLINE __m512i line_at(const void *p)
{
    return _mm512_load_si512(p);
}

MC_INLINE __m512i dword_at(const void *p)
{
    int32_t v;
    memcpy(&v, p, 4);
    return _mm512_set1_epi32(v);
}

MC_INLINE __m512 float_at(const void *p)
{
    float v;
    memcpy(&v, p, 4);
    return _mm512_set1_ps(v);
}

/* 16 float16 values */
MC_INLINE __m512 halves_at(const void *p)
{
    return _mm512_cvtph_ps(_mm256_load_si256(p));
}

/* `groups` groups of `bytes` bytes, whose bodies start at `body` in the first one, advance together and have come to byte `at`
 * of their bodies: the byte PACKED_AHEAD further on in the first one, which at the end is in the next groups. */
MC_INLINE const uint8_t *ahead_of(unsigned groups, const uint8_t *body, size_t body_bytes, size_t bytes, size_t at)
{
    const size_t to = at + PACKED_AHEAD;
    return body + (to < body_bytes ? to : to - body_bytes + groups * bytes);
}

/* Step i of n asks for its share of the `bytes` bytes at p. Requests that come in a bunch fill the queue of misses and stop the
 * arithmetic; spread over it, both go on. */
MC_INLINE void ask_share(const uint8_t *p, size_t bytes, unsigned i, unsigned n)
{
    const size_t lines = (bytes + 63) / 64;
    MC_UNROLL for (size_t l = lines * i / n; l < lines * (i + 1) / n; l++) _mm_prefetch((const char *)p + 64 * l, _MM_HINT_T0);
}

/* Asks for n bytes from p on: what the next tile is made of, while this one is multiplied. */
MC_INLINE void ask_next(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i += 64) _mm_prefetch((const char *)p + i, _MM_HINT_T0);
}

/* The first lines of their heads. */
MC_INLINE void ask_heads(unsigned groups, const uint8_t *w, size_t bytes)
{
    MC_UNROLL for (unsigned g = 0; g < groups; g++) _mm_prefetch((const char *)w + g * bytes, _MM_HINT_T1);
}

/* ---- codes of columns 4v .. 4v + 3, v < 8, from the lines of 32 columns at p ----
 * One vector at a time, because the compilers keep the order of the source: that bounds what is alive. The lines of a plane
 * are loaded once, whatever it looks like here. */

/* a | (b & m) */
MC_INLINE __m512i or_and(__m512i a, __m512i b, __m512i m)
{
    return _mm512_ternarylogic_epi32(a, b, m, 0xF8);
}

/* x >> n, left for negative n; bits move between the two bytes of a word. */
MC_INLINE __m512i shift_right(__m512i x, int n)
{
    return n == 0 ? x : n > 0 ? _mm512_srli_epi16(x, (unsigned)n) : _mm512_slli_epi16(x, (unsigned)-n);
}

MC_INLINE __m512i masked(__m512i x, int mask)
{
    return _mm512_and_si512(x, _mm512_set1_epi8((char)mask));
}

/* The v-th field of a plane of `bits` bits, moved to bit `at`, with other bits around it. */
MC_INLINE __m512i loose_field(const uint8_t *p, int v, int bits, int at)
{
    const int per = 8 / bits;
    return shift_right(line_at(p + 64 * (v / per)), bits * (v % per) - at);
}

MC_INLINE __m512i field(const uint8_t *p, int v, int bits, int at)
{
    return masked(loose_field(p, v, bits, at), ((1 << bits) - 1) << at);
}

/* Planes of 4 + 1 and 4 + 2 bits. */
MC_INLINE __m512i field_5(const uint8_t *p, int v)
{
    return or_and(field(p, v, 4, 0), loose_field(p + 256, v, 1, 4), _mm512_set1_epi8(16));
}
MC_INLINE __m512i field_6(const uint8_t *p, int v)
{
    return or_and(field(p, v, 4, 0), loose_field(p + 256, v, 2, 4), _mm512_set1_epi8(48));
}

/* ---- the tile: 256 columns of one group ---- */

struct packed_tile {
    MC_ALIGNED(64) uint8_t q[64][64];     /* unsigned bytes, columns 4v .. 4v + 3 */
    MC_ALIGNED(64) int32_t scale[16][16]; /* integer scale of each sub-block */
    MC_ALIGNED(64) int16_t pair[16][32];  /* factors of two neighbouring activation sums each */
    MC_ALIGNED(64) float d[16][16];       /* scale of each step, or of the block in d[0] */
    MC_ALIGNED(64) float m[8][16];        /* minimum */
};

/* Columns to take next: never few at the end because the ones before were many. */
MC_INLINE size_t packed_take(size_t left)
{
    const size_t times = (left + PACKED_TILE_COLS - 1) / PACKED_TILE_COLS;
    return (left + times - 1) / times;
}

/* Asks for 256 bytes of each of the columns that come after the next `take`: every column is a row of its own, where the
 * hardware does not see a stream. */
MC_INLINE void ask_columns(const void *const *x, size_t i0, size_t take, size_t left)
{
    for (size_t c = take; c < 2 * take && c < left; c++)
        for (size_t i = 0; i < 256; i += 64) _mm_prefetch((const char *)x[c] + i0 + i, _MM_HINT_T0);
}

/* Both kernels: one tile, or two of neighbouring groups, times `cols` columns, into rows r0 .. of y[c], which starts at 0 where
 * i0 == 0. i0: first column of weights. */

/* Formats of q8_0 rows: n / step fused multiply-adds for n <= 256 columns of weights. */
struct packed_steps {
    unsigned step; /* columns: 32 or 16 */
    int bias;      /* of the bytes */
    bool minimum;  /* + m * s */
};
void avx512_packed_steps_tile(const struct packed_tile *t, unsigned tiles, struct packed_steps law, float *const *y, size_t r0,
                              const void *const *x, size_t k, size_t i0, size_t n, size_t cols);

/* Formats of q8_K rows. */
struct packed_block {
    unsigned sub;   /* columns under one entry of scale: 16, 32, or 256 where the bytes carry the scales */
    unsigned pairs; /* entries of pair */
    unsigned width; /* columns in an activation sum: 8, 16, 32 */
    bool minimum;   /* pairs make the minimum; else they are added to the sum */
};
void avx512_packed_block_tile(const struct packed_tile *t, unsigned tiles, struct packed_block law, float *const *y, size_t r0,
                              const void *const *x, size_t k, size_t i0, size_t cols);

#endif
