/* tile.h - the one shape to which every AVX2 matrix kernel brings its weights: a tile of 8 rows x 256 columns of bytes in L1.
 *
 *   w[2*g]     columns 8g..8g+7 of rows 0, 1 | 4, 5      "A": one row in each 64-bit lane
 *   w[2*g+1]   columns 8g..8g+7 of rows 2, 3 | 6, 7      "B"
 *
 * An octet of activations enters as one 64-bit broadcast and serves A and B; int32 sums of A and B meet in one vphaddd that
 * leaves rows 0..7 in lanes 0..7, where the float chain of rule R1 runs. So a row is never summed across a vector, scales
 * of four rows are one vector, 16 bytes of packed codes need two shuffles to get here, and a codebook entry is one 64-bit load.
 * A format is one unpack function and one `shape`; all column counts share it: unpack once, multiply many.
 *
 * Codes are stored unsigned (code + bias) so that vpmaddubsw takes them as they are; the bias goes out through the activation
 * sums. Formats whose range does not allow that (q8_0, iq4_nl) stay signed and lend their sign to the activation.
 * int16 sums: `group` octets of products (two adjacent ones each) must stay within 32767 for |a| <= 127. */
#ifndef KERNELS_AVX2_TILE_H
#define KERNELS_AVX2_TILE_H

#include "kernels/kernels.h"
#include "platform/base/compiler.h"

#include <assert.h>
#include <immintrin.h>
#include <string.h>

enum {
    TILE_ROWS = 8,
    TILE_OCTETS = 32,   /* of columns */
    TILE_DIRECT = 4,    /* up to so many columns the tile stays in registers */
    TILE_COLS_MAX = 128 /* activation columns between two unpackings of the same tile: 4 KiB of accumulators */
};

/* body(args, i) for i = 0 .. n-1, written out: with i a constant the eight row pointers stay in registers and all else is an
 * immediate offset. As loops GCC keeps eight moving pointers in memory (measured, Zen 5, gcc 12: 12 against 16 weights a cycle,
 * q2_K). */
#define TILE_FOR_2(body, ...)                                                                                                  \
    do {                                                                                                                       \
        body(__VA_ARGS__, 0);                                                                                                  \
        body(__VA_ARGS__, 1);                                                                                                  \
    } while (0)
#define TILE_FOR_4(body, ...)                                                                                                  \
    do {                                                                                                                       \
        TILE_FOR_2(body, __VA_ARGS__);                                                                                         \
        body(__VA_ARGS__, 2);                                                                                                  \
        body(__VA_ARGS__, 3);                                                                                                  \
    } while (0)
#define TILE_FOR_8(body, ...)                                                                                                  \
    do {                                                                                                                       \
        TILE_FOR_4(body, __VA_ARGS__);                                                                                         \
        body(__VA_ARGS__, 4);                                                                                                  \
        body(__VA_ARGS__, 5);                                                                                                  \
        body(__VA_ARGS__, 6);                                                                                                  \
        body(__VA_ARGS__, 7);                                                                                                  \
    } while (0)

/* Rows of the tile at hand; a short last tile repeats its last row. ahead: the same amount of the next tile is fetched into L2
 * while this one is read; eight short streams are too many for the hardware to see the next eight coming. */
struct tile_rows {
    const uint8_t *p[TILE_ROWS];
    const uint8_t *ahead;
};

/* Two vectors of A, two of B: what 16 consecutive bytes of 8 rows become. */
struct tile_16 {
    __m256i v[4]; /* bytes 0..7 of A, bytes 0..7 of B, bytes 8..15 of A, bytes 8..15 of B */
};

MC_INLINE __m256i tile_pair(const void *low, const void *high)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(low)), _mm_loadu_si128(high), 1);
}

MC_INLINE struct tile_16 tile_load_16(const struct tile_rows *r, size_t off)
{
    const __m256i r04 = tile_pair(r->p[0] + off, r->p[4] + off), r15 = tile_pair(r->p[1] + off, r->p[5] + off);
    const __m256i r26 = tile_pair(r->p[2] + off, r->p[6] + off), r37 = tile_pair(r->p[3] + off, r->p[7] + off);
    return (struct tile_16){{_mm256_unpacklo_epi64(r04, r15), _mm256_unpacklo_epi64(r26, r37), _mm256_unpackhi_epi64(r04, r15),
                             _mm256_unpackhi_epi64(r26, r37)}};
}

/* Two 64-bit entries at any address (_mm_load_sd wants aligned ones). */
MC_INLINE __m128d tile_two_entries(const void *e0, const void *e1)
{
    double d;
    memcpy(&d, e0, 8);
    return _mm_loadh_pd(_mm_set_sd(d), e1);
}

/* Four 64-bit entries, in lane order. */
MC_INLINE __m256i tile_entries(const void *e0, const void *e1, const void *e2, const void *e3)
{
    const __m128d low = tile_two_entries(e0, e1), high = tile_two_entries(e2, e3);
    return _mm256_castpd_si256(_mm256_insertf128_pd(_mm256_castpd128_pd256(low), high, 1));
}

/* 8 bytes of 8 rows: A and B. */
MC_INLINE void tile_load_8(__m256i ab[2], const struct tile_rows *r, size_t off)
{
    ab[0] = tile_entries(r->p[0] + off, r->p[1] + off, r->p[4] + off, r->p[5] + off);
    ab[1] = tile_entries(r->p[2] + off, r->p[3] + off, r->p[6] + off, r->p[7] + off);
}

MC_INLINE uint64_t tile_u16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, 2);
    return v;
}

/* Eight float16 at `off`, lane = row. Put together in general registers: the vector shuffles are busy. */
MC_INLINE __m256 tile_f16(const struct tile_rows *r, size_t off)
{
    uint64_t q[2];
    for (int i = 0; i < 2; i++)
        q[i] = tile_u16(r->p[4 * i] + off) | tile_u16(r->p[4 * i + 1] + off) << 16 | tile_u16(r->p[4 * i + 2] + off) << 32 |
               tile_u16(r->p[4 * i + 3] + off) << 48;
    return _mm256_cvtph_ps(_mm_set_epi64x((long long)q[1], (long long)q[0]));
}

MC_INLINE __m256i tile_and(__m256i v, int mask)
{
    return _mm256_and_si256(v, _mm256_set1_epi8((char)mask));
}

/* Byte-wise shifts: 16-bit ones whose strays the mask removes. */
MC_INLINE __m256i tile_shr(__m256i v, int n, int mask)
{
    return tile_and(_mm256_srli_epi16(v, n), mask);
}
MC_INLINE __m256i tile_shl(__m256i v, int n, int mask)
{
    return tile_and(_mm256_slli_epi16(v, n), mask);
}

/* Byte j (0..7) of each lane as four equal int16, zero extended. */
MC_INLINE __m256i tile_spread_u8(__m256i v, int j)
{
    const long long low = (long long)(0xFF00FF00FF00FF00u | (unsigned)j * 0x0001000100010001u), high = low + 0x0008000800080008;
    return _mm256_shuffle_epi8(v, _mm256_setr_epi64x(low, high, low, high));
}

/* Byte j as the high half of four int16, the low half 0: an arithmetic shift right by 8 makes it a signed value. */
MC_INLINE __m256i tile_spread_high(__m256i v, int j)
{
    const long long low = (long long)(0x00FF00FF00FF00FFu | (unsigned)j * 0x0100010001000100u), high = low + 0x0800080008000800;
    return _mm256_shuffle_epi8(v, _mm256_setr_epi64x(low, high, low, high));
}

MC_INLINE __m256i tile_spread_s8(__m256i v, int j)
{
    return _mm256_srai_epi16(tile_spread_high(v, j), 8);
}

/* Bytes 4q..4q+3 of each lane as int16, zero or sign extended. */
MC_INLINE __m256i tile_widen_u8(__m256i v, int q)
{
    const long long low = (long long)0xFF03FF02FF01FF00 + 0x0004000400040004 * q, high = low + 0x0008000800080008;
    return _mm256_shuffle_epi8(v, _mm256_setr_epi64x(low, high, low, high));
}

MC_INLINE __m256i tile_widen_s8(__m256i v, int q)
{
    const long long low = (long long)0x03FF02FF01FF00FF + 0x0400040004000400 * q, high = low + 0x0800080008000800;
    return _mm256_srai_epi16(_mm256_shuffle_epi8(v, _mm256_setr_epi64x(low, high, low, high)), 8);
}

/* int16 j (0..3) of each lane, four times. */
MC_INLINE __m256i tile_spread_16(__m256i v, int j)
{
    const long long low = 0x0100010001000100 + 0x0202020202020202 * (long long)j, high = low + 0x0808080808080808;
    return _mm256_shuffle_epi8(v, _mm256_setr_epi64x(low, high, low, high));
}

/* Byte j (0..7) of each lane, eight times. */
MC_INLINE __m256i tile_spread_byte(__m256i v, int j)
{
    const long long low = 0x0101010101010101 * (long long)j, high = low + 0x0808080808080808;
    return _mm256_shuffle_epi8(v, _mm256_setr_epi64x(low, high, low, high));
}

/* Bits 0..7 of byte j of each lane as eight bytes, -1 where the bit is set. */
MC_INLINE __m256i tile_bits(__m256i v, int j)
{
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    return _mm256_cmpeq_epi8(_mm256_and_si256(tile_spread_byte(v, j), bit), bit);
}

MC_INLINE __m256i tile_broadcast_8(const void *p)
{
    long long v;
    memcpy(&v, p, 8);
    return _mm256_set1_epi64x(v);
}

MC_INLINE __m256 tile_float(const void *p)
{
    float f;
    memcpy(&f, p, 4);
    return _mm256_set1_ps(f);
}

/* a + b. The optimiser must not see that it is a sum: GCC turns chains of them into trees whose leaves, all of one
 * sub-block, do not fit the registers (measured: a third of the speed at 4 columns). */
MC_INLINE __m256i tile_add_16(__m256i a, __m256i b)
{
    __m256i sum = _mm256_add_epi16(a, b);
    MC_OPAQUE_VECTOR(sum);
    return sum;
}

MC_INLINE __m256i tile_add_32(__m256i a, __m256i b)
{
    __m256i sum = _mm256_add_epi32(a, b);
    MC_OPAQUE_VECTOR(sum);
    return sum;
}

/* int16 sums of adjacent products of one octet. */
MC_INLINE __m256i tile_dot(__m256i w, __m256i a, bool is_signed)
{
    if (!is_signed) return _mm256_maddubs_epi16(w, a);
    return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w));
}

MC_INLINE struct tile_rows tile_rows_at(const uint8_t *w, size_t stride, size_t n)
{
    struct tile_rows r;
    for (size_t i = 0; i < TILE_ROWS; i++) r.p[i] = w + (i < n ? i : n - 1) * stride;
    r.ahead = w + TILE_ROWS * stride;
    return r;
}

MC_INLINE void tile_advance(struct tile_rows *r, size_t bytes)
{
    for (size_t off = 0; off < TILE_ROWS * bytes; off += 64) _mm_prefetch((const void *)(r->ahead + off), _MM_HINT_T1);
    for (int i = 0; i < TILE_ROWS; i++) r->p[i] += bytes;
    r->ahead += TILE_ROWS * bytes;
}

MC_INLINE void tile_store(float *y, const float acc[TILE_ROWS], size_t n)
{
    if (n == TILE_ROWS)
        _mm256_storeu_ps(y, _mm256_loadu_ps(acc));
    else
        memcpy(y, acc, n * sizeof *y);
}

/* Results of 8 rows and up to TILE_COLS_MAX columns, over all of k. */
typedef void (*tile_rows_fn)(float (*acc)[8], const struct tile_rows *r, const void *const *x, size_t k, size_t cols);

/* How many column counts have a function of their own: formats of the model's large matrices up to 3, codebook formats, whose
 * lookups a tile does not save, up to 4, the others 1 (each costs 5 to 10 KiB of code). */
#define TILE_UP_TO_1(rows, name, shape) rows(name, 1, shape)
#define TILE_UP_TO_3(rows, name, shape) rows(name, 1, shape) rows(name, 2, shape) rows(name, 3, shape)
#define TILE_UP_TO_4(rows, name, shape) TILE_UP_TO_3(rows, name, shape) rows(name, 4, shape)
#define TILE_WAYS_1(name)                                                                                                      \
    {                                                                                                                          \
        rows_##name##_0, rows_##name##_1, rows_##name##_0, rows_##name##_0, rows_##name##_0                                    \
    }
#define TILE_WAYS_3(name)                                                                                                      \
    {                                                                                                                          \
        rows_##name##_0, rows_##name##_1, rows_##name##_2, rows_##name##_3, rows_##name##_0                                    \
    }
#define TILE_WAYS_4(name)                                                                                                      \
    {                                                                                                                          \
        rows_##name##_0, rows_##name##_1, rows_##name##_2, rows_##name##_3, rows_##name##_4                                    \
    }

/* Cuts a product into tiles; ways[n]: what serves n columns, ways[0] any number. */
static inline void tile_matmul(float *const *y, const void *w, size_t w_stride, const void *const *x, size_t k, size_t rows,
                               size_t cols, const tile_rows_fn ways[TILE_DIRECT + 1])
{
    float acc[TILE_COLS_MAX][TILE_ROWS];
    for (size_t c0 = 0; c0 < cols; c0 += TILE_COLS_MAX) {
        const size_t n = cols - c0 < TILE_COLS_MAX ? cols - c0 : TILE_COLS_MAX;
        for (size_t r0 = 0; r0 < rows; r0 += TILE_ROWS) {
            const size_t m = rows - r0 < TILE_ROWS ? rows - r0 : TILE_ROWS;
            const struct tile_rows r = tile_rows_at((const uint8_t *)w + r0 * w_stride, w_stride, m);
            ways[n <= TILE_DIRECT ? n : 0](acc, &r, x + c0, k, n);
            for (size_t c = 0; c < n; c++) tile_store(y[c0 + c] + r0, acc[c], m);
        }
    }
}

#endif
