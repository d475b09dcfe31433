/* packed.h - products with matrices in packed form (kernels/pack.h): what the families of formats share.
 *
 * Half a line holds 4 columns of 8 rows (lane = row) for each code a byte has room for; the activation enters as a broadcast
 * dword and serves both halves, so nothing is ever summed across lanes and rule R1 (kernels.h) runs in lanes.
 *
 * Codes are unsigned: vpmaddubsw makes int16 sums of two products; as many vectors as fit 16 bits are added there (`depth`)
 * before one vpmaddwd takes them to 32 bits and multiplies by the scale of the sub-block on the way. Codes of all 8 bits (q8_0,
 * iq4) would saturate; see flip_32.
 *
 *   up to 4 columns   unpacked in registers and used at once (`direct` in packed_steps.c and packed_blocks.h); several groups
 *                     advance together, so that memory is read as several streams
 *   more              16 rows x 256 columns are unpacked once into a tile in L1, as bytes with the scales beside them; one
 *                     kernel for each shape of sums then walks over the columns (packed_tile_*.c)
 *
 * Private to the packed_*.c files of this folder. */
#ifndef KERNELS_AVX2_PACKED_H
#define KERNELS_AVX2_PACKED_H

#include "kernels/kernels.h"
#include "kernels/pack.h"
#include "platform/base/compiler.h"

#include <immintrin.h>
#include <string.h>

/* These files are compiled twice, the second time for CPUs with 256-bit VNNI, where vpdpbusd makes int32 sums of four products
 * each: nothing saturates, so that neither `depth` nor flips are needed. PLAIN_ONLY: formats that gain less than a tenth. */
#if defined(__AVXVNNI__)
#define VNNI              1
#define PACKED_NAME(name) avx2_vnni_##name
#define PLAIN_ONLY(...)
#else
#define VNNI              0
#define PACKED_NAME(name) avx2_##name
#define PLAIN_ONLY(...)   __VA_ARGS__
#endif

enum {
    PACKED_DIRECT_COLS = 4,
    PACKED_GROUPS = 4, /* that advance together where codes go straight to the product */
    PACKED_COLS = 64,  /* columns that share an unpacked tile */
    /* at a time: 2 halves x 3 columns of int16 and int32 sums fill the registers, or 2 x 6 of int32 sums alone */
    PACKED_TILE_COLS = VNNI ? 6 : 3,
    PACKED_FLIPPED = 8192, /* columns of weights x columns of activations, where few of these are flipped at a time */
    PACKED_AHEAD = 2048,   /* bytes from the line in use to the one that is asked for */
};

void avx2_init_packed_steps(struct kern_table *t);
void avx2_vnni_init_packed_steps(struct kern_table *t);
void avx2_init_packed_kquant(struct kern_table *t);
void avx2_vnni_init_packed_kquant(struct kern_table *t);
void avx2_init_packed_iq2(struct kern_table *t);
void avx2_vnni_init_packed_iq2(struct kern_table *t);
void avx2_init_packed_iq4(struct kern_table *t);
void avx2_vnni_init_packed_iq4(struct kern_table *t);
void avx2_init_packed_ternary(struct kern_table *t);
void avx2_vnni_init_packed_ternary(struct kern_table *t);

/* ---- loads ---- */

MC_INLINE __m256i half_at(const void *p)
{
    return _mm256_load_si256(p);
}

/* Once, in a register: GCC would rather load again for each use. */
MC_INLINE __m256i codes_at_once(const void *p)
{
    __m256i v = _mm256_load_si256(p);
    MC_OPAQUE_VECTOR(v);
    return v;
}

MC_INLINE __m256i dword_at(const void *p)
{
    int32_t v;
    memcpy(&v, p, 4);
    return _mm256_set1_epi32(v);
}

MC_INLINE __m256 float_at(const void *p)
{
    float v;
    memcpy(&v, p, 4);
    return _mm256_set1_ps(v);
}

/* 8 float16 values */
MC_INLINE __m256 halves_at(const void *p)
{
    return _mm256_cvtph_ps(_mm_load_si128(p));
}

/* What to ask for when a group has come to byte `at` of its body (body_bytes, starting at `body`): PACKED_AHEAD further on;
 * past its end that is in the group that the same stream comes to next, `next` bytes on. */
MC_INLINE const char *ahead_of(const uint8_t *body, size_t body_bytes, size_t next, size_t at)
{
    const size_t to = at + PACKED_AHEAD;
    return (const char *)body + (to < body_bytes ? to : to - body_bytes + next);
}

MC_INLINE void ask(const char *p, size_t n)
{
    MC_OPAQUE_POINTER(p); /* else GCC keeps the address of every line in a variable of its own */
    MC_UNROLL for (size_t i = 0; i < n; i += 64) _mm_prefetch(p + i, _MM_HINT_T0);
}

/* ---- int16 and int32 sums ----
 * The optimiser must not see that they are sums: GCC makes trees of chains of them, whose leaves do not fit the registers. */

MC_INLINE __m256i add_16(__m256i a, __m256i b)
{
    __m256i sum = _mm256_add_epi16(a, b);
    MC_OPAQUE_VECTOR(sum);
    return sum;
}

MC_INLINE __m256i add_32(__m256i a, __m256i b)
{
    __m256i sum = _mm256_add_epi32(a, b);
    MC_OPAQUE_VECTOR(sum);
    return sum;
}

/* Plus products of bytes, four to a lane; without VNNI exact for codes below 128 only. */
MC_INLINE __m256i add_bytes(__m256i sum, __m256i code, __m256i a)
{
#if VNNI
    return _mm256_dpbusd_avx_epi32(sum, code, a);
#else
    return add_32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(code, a), _mm256_set1_epi16(1)));
#endif
}

/* Plus products of words, two to a lane. */
MC_INLINE __m256i add_words(__m256i sum, __m256i a, __m256i b)
{
#if VNNI
    return _mm256_dpwssd_avx_epi32(sum, a, b);
#else
    return add_32(sum, _mm256_madd_epi16(a, b));
#endif
}

/* ---- codes of columns 4v .. 4v + 3, v < 8, from half lines of 32 columns at p ---- */

/* x >> n, left for negative n; bits move between the two bytes of a word. */
MC_INLINE __m256i shift_right(__m256i x, int n)
{
    return n == 0 ? x : n > 0 ? _mm256_srli_epi16(x, n) : _mm256_slli_epi16(x, -n);
}

MC_INLINE __m256i masked(__m256i x, int mask)
{
    return _mm256_and_si256(x, _mm256_set1_epi8((char)mask));
}

/* The v-th field of a plane of `bits` bits, moved to bit `at`, with other bits around it. */
MC_INLINE __m256i loose_field(const uint8_t *p, int v, int bits, int at)
{
    const int per = 8 / bits;
    return shift_right(codes_at_once(p + 64 * (v / per)), bits * (v % per) - at);
}

MC_INLINE __m256i field(const uint8_t *p, int v, int bits, int at)
{
    return masked(loose_field(p, v, bits, at), ((1 << bits) - 1) << at);
}

/* Planes of 4 + 1, 4 + 2 and 2 + 1 bits. */
MC_INLINE __m256i field_5(const uint8_t *p, int v)
{
    return _mm256_or_si256(field(p, v, 4, 0), field(p + 256, v, 1, 4));
}
MC_INLINE __m256i field_6(const uint8_t *p, int v)
{
    return _mm256_or_si256(field(p, v, 4, 0), field(p + 256, v, 2, 4));
}
MC_INLINE __m256i field_3(const uint8_t *p, int v)
{
    return _mm256_or_si256(field(p, v, 2, 0), field(p + 128, v, 1, 2));
}

/* Fields of two bits with half the shifts: those of odd v come four times as large (quarters are added at the end). */
MC_INLINE __m256i field_2_quick(const uint8_t *p, int v)
{
    return masked(shift_right(codes_at_once(p + 64 * (v / 4)), v % 4 / 2 * 4), v % 2 ? 12 : 3);
}

/* -bias times the sum of 16 activations, in every lane. */
MC_INLINE __m256i bias_sum_16(const char *q, int bias)
{
    const __m128i words = _mm_maddubs_epi16(_mm_set1_epi8((char)bias), _mm_loadu_si128((const void *)q));
    __m128i s = _mm_madd_epi16(words, _mm_set1_epi16(-1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1));
    return _mm256_broadcastd_epi32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E)));
}

/* ---- weights of 8 bits ----
 * |a| is the unsigned operand of vpmaddubsw, w * sign(a) the signed one. -w is ~w + 1, and w = -128 must not be negated, so
 * the weight is only complemented where a is negative: |a| * ~w = a * w - |a| there. Hence
 *
 *     sum of |a| * (code ^ flip)  =  sum of a * w  -  sum of |a| where a < 0,     flip = 0x80 ^ (a < 0 ? 0xFF : 0)
 *
 * with code = w + 128; what is missing does not depend on the weights and starts the sum. A pair of products is at most
 * 2 * 127 * 128 = 32512 in magnitude: depth 1. */

enum { FLIPPED_BYTES = 64 }; /* of 32 columns: for each 4 the dword of flips and that of |a| */

/* Returns four partial sums of |a| where a < 0. */
MC_INLINE __m256i flip_32(uint8_t out[FLIPPED_BYTES], const char *q)
{
    const __m256i zero = _mm256_setzero_si256(), a = _mm256_loadu_si256((const void *)q);
    const __m256i negative = _mm256_cmpgt_epi8(zero, a), magnitude = _mm256_abs_epi8(a);
    const __m256i flip = _mm256_xor_si256(negative, _mm256_set1_epi8((char)0x80));
    const __m256i low = _mm256_unpacklo_epi32(flip, magnitude), high = _mm256_unpackhi_epi32(flip, magnitude);
    _mm_storeu_si128((void *)out, _mm256_castsi256_si128(low));
    _mm_storeu_si128((void *)(out + 16), _mm256_castsi256_si128(high));
    _mm_storeu_si128((void *)(out + 32), _mm256_extracti128_si256(low, 1));
    _mm_storeu_si128((void *)(out + 48), _mm256_extracti128_si256(high, 1));
    return _mm256_sad_epu8(_mm256_and_si256(negative, magnitude), zero);
}

/* Flipped pieces of several columns of activations. */
struct packed_room {
    MC_ALIGNED(32) uint8_t bytes[2 * PACKED_COLS * 256];
    MC_ALIGNED(32) int32_t sums[PACKED_COLS * 256 / 32]; /* 4-byte or, in their first half, 2-byte ones for each 32 */
};

/* n blocks of 32; sums: n rounded up to a multiple of 4. */
MC_INLINE void flip(uint8_t *out, int32_t *sums, const char *q, size_t n)
{
    for (size_t b = 0; b < n; b += 4) {
        __m256i s[4];
        for (size_t i = 0; i < 4; i++)
            s[i] = b + i < n ? flip_32(out + FLIPPED_BYTES * (b + i), q + 32 * (b + i)) : _mm256_setzero_si256();
        const __m256i s01 = _mm256_or_si256(s[0], _mm256_slli_epi64(s[1], 32));
        const __m256i s23 = _mm256_or_si256(s[2], _mm256_slli_epi64(s[3], 32));
        const __m256i sum = _mm256_add_epi32(_mm256_unpacklo_epi64(s01, s23), _mm256_unpackhi_epi64(s01, s23));
        _mm_storeu_si128((void *)(sums + b), _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1)));
    }
}

/* Adjacent products of a code vector and 4 activations, which start at a (flipped: at their two dwords). */
MC_INLINE __m256i products(bool flipped, __m256i code, const char *a)
{
    if (!flipped) return _mm256_maddubs_epi16(code, dword_at(a));
    return _mm256_maddubs_epi16(dword_at(a + 4), _mm256_xor_si256(code, dword_at(a)));
}

/* ---- the tile: 256 columns of one group ---- */

struct packed_tile {
    MC_ALIGNED(64) uint8_t q[64][64];     /* unsigned bytes, columns 4v .. 4v + 3 */
    MC_ALIGNED(64) int16_t scale[16][32]; /* integer scale of each sub-block, twice in each lane (VNNI: as a dword) */
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

/* Asks for the next 256 bytes of each column, which are far from each other and no stream the hardware could see. */
MC_INLINE void ask_columns(const void *const *rows, size_t cols, size_t at)
{
    for (size_t c = 0; c < cols; c++)
        for (size_t i = 0; i < 256; i += 64) _mm_prefetch((const char *)rows[c] + at + i, _MM_HINT_T1);
}

/* A table of functions for 1 .. PACKED_TILE_COLS columns, each defined by COLUMNS(shape, columns, constants). */
#if VNNI
#define PACKED_SHAPE(shape, ...)                                                                                               \
    COLUMNS(shape, 1, __VA_ARGS__)                                                                                             \
    COLUMNS(shape, 2, __VA_ARGS__)                                                                                             \
    COLUMNS(shape, 3, __VA_ARGS__)                                                                                             \
    COLUMNS(shape, 4, __VA_ARGS__)                                                                                             \
    COLUMNS(shape, 5, __VA_ARGS__)                                                                                             \
    COLUMNS(shape, 6, __VA_ARGS__)                                                                                             \
    static const columns_fn shape[] = {shape##_1, shape##_2, shape##_3, shape##_4, shape##_5, shape##_6};
#else
#define PACKED_SHAPE(shape, ...)                                                                                               \
    COLUMNS(shape, 1, __VA_ARGS__)                                                                                             \
    COLUMNS(shape, 2, __VA_ARGS__)                                                                                             \
    COLUMNS(shape, 3, __VA_ARGS__)                                                                                             \
    static const columns_fn shape[] = {shape##_1, shape##_2, shape##_3};
#endif

/* One column of activations at some block: codes, scales, and what the bias is multiplied with. */
struct packed_act {
    const char *q, *d, *sums, *s;
};

/* Both kernels: one tile times `cols` columns, into rows r0 .. of y[c], which starts at 0 where `first`. */

/* Formats of q8_0 rows: n / step fused multiply-adds for n <= 256 columns of weights. */
struct packed_steps {
    unsigned step;  /* columns: 32 or 16 */
    unsigned depth; /* code vectors that fit an int16 sum */
    int bias;       /* of the bytes, undone with int16 sums of 32 activations */
    bool minimum;   /* + m * s */
    bool flipped;   /* flipped activations, which have int32 sums to start with */
};
void PACKED_NAME(steps_tile)(const struct packed_tile *t, struct packed_steps law, float *const *y, size_t r0,
                             const struct packed_act *x, bool first, size_t n, size_t cols);

/* Formats of q8_K rows. */
struct packed_block {
    unsigned sub;   /* columns under one entry of scale: 16, 32 or 128; 256: the bytes carry the scales */
    unsigned depth; /* code vectors that fit an int16 sum */
    unsigned pairs; /* entries of pair */
    bool minimum;   /* pairs make the minimum; else they are added to the sum */
    bool flipped;
};
void PACKED_NAME(block_tile)(const struct packed_tile *t, struct packed_block law, float *const *y, size_t r0,
                             const struct packed_act *x, bool first, size_t cols);

/* ---- the products ---- */

struct job {
    float *const *y;
    const uint8_t *w;
    size_t k, head, bytes; /* of a group */
};

typedef void (*few_fn)(const struct job *j, const void *const *x, size_t groups);
typedef void (*many_fn)(const struct job *j, const void *const *x, size_t groups, size_t cols);

MC_INLINE void packed_matmul(enum quant_type type, const few_fn few[PACKED_DIRECT_COLS], many_fn many, float *const *y,
                             const void *w, const void *const *x, size_t k, size_t rows, size_t cols)
{
    for (size_t c0 = 0; c0 < cols; c0 += PACKED_COLS) {
        const size_t n = cols - c0 < PACKED_COLS ? cols - c0 : PACKED_COLS;
        const struct job j = {y + c0, w, k, kern_pack_head_bytes(type, k), kern_pack_group_bytes(type, k)};
        if (n <= PACKED_DIRECT_COLS)
            few[n - 1](&j, x + c0, rows / 16);
        else
            many(&j, x + c0, rows / 16, n);
    }
}

/* From few_columns and many_columns of a file. One function for each way: register allocation falls apart when they share one.
 */
#define PACKED_FEW(name, NAME, n)                                                                                              \
    static MC_NOINLINE void few_##name##_##n(const struct job *j, const void *const *x, size_t groups)                         \
    {                                                                                                                          \
        few_columns(QUANT_##NAME, n, j, x, groups);                                                                            \
    }
#define PACKED_MATMUL(name, NAME)                                                                                              \
    PACKED_FEW(name, NAME, 1)                                                                                                  \
    PACKED_FEW(name, NAME, 2)                                                                                                  \
    PACKED_FEW(name, NAME, 3)                                                                                                  \
    PACKED_FEW(name, NAME, 4)                                                                                                  \
    static MC_NOINLINE void many_##name(const struct job *j, const void *const *x, size_t groups, size_t cols)                 \
    {                                                                                                                          \
        many_columns(QUANT_##NAME, j, x, groups, cols);                                                                        \
    }                                                                                                                          \
    static void packed_##name(float *const *y, const void *w, const void *const *x, size_t k, size_t rows, size_t cols)        \
    {                                                                                                                          \
        static const few_fn few[] = {few_##name##_1, few_##name##_2, few_##name##_3, few_##name##_4};                          \
        packed_matmul(QUANT_##NAME, few, many_##name, y, w, x, k, rows, cols);                                                 \
    }
#define PACKED_SET(name, NAME) t->packed[QUANT_##NAME] = packed_##name;

#endif
