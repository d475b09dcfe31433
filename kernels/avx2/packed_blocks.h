/* packed_blocks.h - packed formats that are multiplied with q8_K rows: integer scales inside blocks of 256 columns, one float
 * step a block. See packed.h; the layout is in kernels/pack.h.
 *
 * What belongs to two neighbouring sub-blocks comes as a pair of 16-bit words in lane = row. As it is, vpmaddwd multiplies it
 * with the broadcast pair of activation sums, to undo the bias (I = A - bias * C) or to form a minimum. With one of its words
 * in both places vpmaddwd multiplies the int16 sums of that sub-block. Included by the files that instantiate formats; `type`
 * is a constant everywhere. */
#ifndef KERNELS_AVX2_PACKED_BLOCKS_H
#define KERNELS_AVX2_PACKED_BLOCKS_H

#include "kernels/avx2/packed.h"
#include "kernels/packed_forms.h"
#include "kernels/quant/grids.h"

/* Code vectors that fit an int16 sum: largest code * 2 * 127 * depth <= 32767. */
MC_INLINE unsigned depth_of(enum quant_type type)
{
    switch (type) {
    case QUANT_Q6_K:
        return 2;
    case QUANT_IQ2_XXS:
    case QUANT_IQ2_XS:
    case QUANT_IQ2_S:
    case QUANT_IQ3_XXS:
    case QUANT_IQ4_XS:
        return 1;
    case QUANT_Q4_K:
    case QUANT_IQ3_S:
    case QUANT_IQ1_S:
        return 8;
    default:
        return 4;
    }
}

/* Of the bytes as they are here; flips leave -1, the shift of iq1_s is in the pairs. */
MC_INLINE int bias_of(enum quant_type type)
{
    return type == QUANT_IQ1_S ? 1 : type == QUANT_IQ4_XS && !VNNI ? -1 : form_of(type).bias;
}

/* All 8 bits of the codes are in use (packed.h, flip_32). */
MC_INLINE bool is_flipped(enum quant_type type)
{
    return !VNNI && type == QUANT_IQ4_XS;
}
/* Magnitudes and signs apart. */
MC_INLINE bool is_signed(enum quant_type type)
{
    return !VNNI && (type == QUANT_IQ2_XXS || type == QUANT_IQ2_XS || type == QUANT_IQ2_S);
}
/* Codes of one plane of two bits. */
MC_INLINE bool is_quick(enum quant_type type)
{
    return form_of(type).code_bytes == 128;
}

/* ---- codes ---- */

/* What a format looks its codes up in. */
MC_INLINE __m256i code_table(enum quant_type type)
{
    switch (type) {
    case QUANT_IQ2_XXS:
    case QUANT_IQ2_XS:
    case QUANT_IQ2_S:
        return _mm256_broadcastsi128_si256(_mm_setr_epi8(PACKED_IQ2_CODES));
    case QUANT_IQ3_XXS:
        return _mm256_broadcastsi128_si256(_mm_setr_epi8(PACKED_IQ3_XXS_CODES));
    case QUANT_IQ4_XS:
        return _mm256_broadcastsi128_si256(
            _mm_xor_si128(_mm_loadu_si128((const void *)quant_iq4_values), _mm_set1_epi8((char)0x80)));
    default:
        return _mm256_setzero_si256();
    }
}

/* value + bias; iq3_s: (value + bias) / 2; iq1: value + 1 */
MC_INLINE __m256i code(enum quant_type type, const uint8_t *p, int v, __m256i table)
{
    switch (type) {
    case QUANT_Q3_K:
        return field_3(p, v);
    case QUANT_Q5_K:
        return field_5(p, v);
    case QUANT_Q6_K:
        return field_6(p, v);
    case QUANT_IQ2_XXS:
    case QUANT_IQ2_XS:
    case QUANT_IQ2_S:
        return _mm256_shuffle_epi8(table, field_3(p, v));
    case QUANT_IQ3_XXS:
    case QUANT_IQ4_XS:
        return _mm256_shuffle_epi8(table, field(p, v, 4, 0));
    case QUANT_Q4_K:
    case QUANT_IQ3_S:
        return field(p, v, 4, 0);
    default:
        return field(p, v, 2, 0);
    }
}

/* ---- codes of magnitude and sign: 2 * 43 * 127 * 2 <= 32767, so two vectors fit, and no bias is left ---- */

enum { SIGNED_DEPTH = 2 };

MC_INLINE __m256i magnitude(const uint8_t *p, int v)
{
    const __m256i table = _mm256_set1_epi32(8 | 25 << 8 | 43 << 16); /* four entries, repeated */
    return _mm256_shuffle_epi8(table, masked(loose_field(p, v, 2, 0), 0x7F));
}

/* Bytes that are negative where the sign bit is set and never zero: bit 0 is set before it moves, except for v = 0. */
MC_INLINE __m256i sign(const uint8_t *p, int v)
{
    const __m256i y = half_at(p + 128), one = _mm256_set1_epi8(1);
    return v == 0 ? _mm256_or_si256(_mm256_slli_epi16(y, 7), one) : shift_right(_mm256_or_si256(y, one), v - 7);
}

/* ---- pairs of 64 columns ---- */

/* The same two bytes in both words of a lane, for vpshufb: the low word, the high word. */
MC_INLINE __m256i twice(__m256i words, unsigned e)
{
    const __m256i first = _mm256_setr_epi8(0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13, 0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8,
                                           9, 12, 13, 12, 13);
    const __m256i second = _mm256_setr_epi8(2, 3, 2, 3, 6, 7, 6, 7, 10, 11, 10, 11, 14, 15, 14, 15, 2, 3, 2, 3, 6, 7, 6, 7, 10,
                                            11, 10, 11, 14, 15, 14, 15);
    return _mm256_shuffle_epi8(words, e ? second : first);
}

/* Scale e of a pair, ready for the sums of its sub-block: twice, or as a dword. */
MC_INLINE __m256i scales_of(__m256i words, unsigned e)
{
    if (VNNI) return _mm256_srai_epi32(e ? words : _mm256_slli_epi32(words, 16), 16);
    return twice(words, e);
}

/* Pair t (0; with 16 columns to a scale also 1) of columns 64i .. 64i + 63 of 8 rows. */
MC_INLINE __m256i raw_pair(enum pairs form, unsigned sub, const uint8_t *p, unsigned i, unsigned t, unsigned h)
{
    const uint8_t *bytes = p + 32 * (32 / sub * i + t) + 16 * h;
    if (form == BYTES) return _mm256_cvtepu8_epi16(_mm_load_si128((const void *)bytes));
    if (form == SIGNED_BYTES) return _mm256_cvtepi8_epi16(_mm_load_si128((const void *)bytes));
    const __m256i nibbles = _mm256_srl_epi16(half_at(p + 64 * t + 32 * h), _mm_cvtsi32_si128((int)(4 * i)));
    return _mm256_and_si256(nibbles, _mm256_set1_epi16(15));
}

struct pair {
    __m256i scale; /* of the int16 sums */
    __m256i low;   /* of the sums of activations */
};

/* iq1_s: 8 * ls of a nibble; (8 - sigma) * ls */
MC_INLINE struct pair ternary_pair(__m256i nibbles)
{
    const __m128i scale = _mm_setr_epi8(8, 24, 40, 56, 72, 88, 104, 120, 8, 24, 40, 56, 72, 88, 104, 120);
    const __m128i shift = _mm_setr_epi8(7, 21, 35, 49, 63, 77, 91, 105, 9, 27, 45, 63, 81, 99, 117, (char)135);
    const __m256i index = _mm256_or_si256(nibbles, _mm256_set1_epi16((short)0x8000)); /* high byte: 0 */
    return (struct pair){_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(scale), index),
                         _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(shift), index)};
}

MC_INLINE struct pair pair_of(enum quant_type type, const uint8_t *p, unsigned i, unsigned t, unsigned h)
{
    const struct form f = form_of(type);
    __m256i w = raw_pair(f.scales, f.sub, p, i, t, h);
    if (f.scales == TERNARY) return ternary_pair(w);
    if (f.scales == ODD_NIBBLES) w = _mm256_or_si256(_mm256_add_epi16(w, w), _mm256_set1_epi16(1));
    if (type == QUANT_IQ3_S) return (struct pair){_mm256_add_epi16(w, w), w};
    if (f.minima == NO_PAIRS) return (struct pair){w, w};
    return (struct pair){w, raw_pair(f.minima, f.sub, p + minima_at(f), i, t, h)};
}

/* ---- activations ---- */

/* n columns of weights from i0 on, in column c of activations; `room` for flipped ones. */
MC_INLINE struct packed_act act_at(enum quant_type type, bool tile, const void *row, size_t k, size_t i0, size_t n, size_t c,
                                   struct packed_room *room)
{
    const unsigned sub = form_of(type).sub;
    const char *const p = row, *const d = p + KERN_PAD(k), *const sum32 = d + KERN_PAD(k / 256 * 4);
    const char *const sum16 = sum32 + KERN_PAD(k / 32 * 2), *const sum8 = sum16 + KERN_PAD(k / 16 * 2);
    const char *const sums = type == QUANT_IQ1_M && !tile ? sum8 + i0 / 4 : sub == 16 ? sum16 + i0 / 8 : sum32 + i0 / 16;
    uint8_t *const flipped = room->bytes + 2 * n * c;
    int32_t *const missing = room->sums + n / 32 * c;
    if (!is_flipped(type)) return (struct packed_act){p + i0, d + i0 / 64, sums, NULL};
    flip(flipped, missing, p + i0, n / 32);
    for (size_t b = 0; b < n / 32; b += 8) { /* to int16, in place */
        const __m128i s = _mm_packs_epi32(_mm_load_si128((void *)(missing + b)), _mm_load_si128((void *)(missing + b + 4)));
        _mm_store_si128((void *)(missing + b / 2), s);
    }
    return (struct packed_act){(const char *)flipped, d + i0 / 64, (const char *)missing, NULL};
}

/* Bytes of sums of activations for 256 columns. */
MC_INLINE size_t sums_bytes(enum quant_type type)
{
    return type == QUANT_IQ1_M ? 64 : form_of(type).sub == 16 ? 32 : 16;
}

/* ---- few columns ---- */

struct sums {
    __m256i a[2][4]; /* scaled sums */
    __m256i c[2][4]; /* bias, shift or minimum */
};

/* int16 sums (VNNI: int32) of n of the 16 code vectors of 64 columns, from number `at` on, which are in the same 32 columns, of
 * halves h0 .. h1 - 1 of the rows. */
MC_INLINE void sum_vectors(enum quant_type type, unsigned cols, const uint8_t *codes, const char *const x[4], unsigned at,
                           unsigned n, unsigned h0, unsigned h1, __m256i table, __m256i sum[2][4])
{
    const unsigned per = is_flipped(type) ? 8 : 4;
    __m256i quarters[2][4];
    MC_UNROLL for (unsigned i = at; i < at + n; i++)
    {
        const uint8_t *p = codes + i / 8 * form_of(type).code_bytes;
        const int v = (int)(i % 8);
        __m256i u[2], s[2];
        MC_UNROLL for (unsigned h = h0; h < h1; h++)
        {
            u[h] = is_signed(type)  ? magnitude(p + 32 * h, v)
                   : is_quick(type) ? field_2_quick(p + 32 * h, v)
                                    : code(type, p + 32 * h, v, table);
            MC_OPAQUE_VECTOR(u[h]); /* made once and here */
            s[h] = is_signed(type) ? sign(p + 32 * h, v) : u[h];
        }
        MC_UNROLL for (unsigned c = 0; c < cols; c++) MC_UNROLL for (unsigned h = h0; h < h1; h++)
        {
            const char *a = x[c] + per * i;
            if (VNNI) {
                __m256i *const to = is_quick(type) && v % 2 ? &quarters[h][c] : &sum[h][c];
                *to = add_bytes(i == at || (is_quick(type) && i == at + 1) ? _mm256_setzero_si256() : *to, u[h], dword_at(a));
                continue;
            }
            const __m256i product = is_signed(type) ? _mm256_maddubs_epi16(u[h], _mm256_sign_epi8(dword_at(a), s[h]))
                                                    : products(is_flipped(type), u[h], a);
            if (is_quick(type) && v % 2)
                quarters[h][c] = i == at + 1 ? product : add_16(quarters[h][c], product);
            else
                sum[h][c] = i == at ? product : add_16(sum[h][c], product);
        }
    }
    if (!is_quick(type)) return;
    MC_UNROLL for (unsigned c = 0; c < cols; c++) MC_UNROLL for (unsigned h = h0; h < h1; h++) sum[h][c] =
        VNNI ? _mm256_add_epi32(sum[h][c], _mm256_srai_epi32(quarters[h][c], 2))
             : add_16(sum[h][c], _mm256_srai_epi16(quarters[h][c], 2));
}

/* iq1_m: int16 sums of sub-block n, eight times the sum of its products and its two shifts included. With codes up to 2 a word
 * is at most 8 * (8 * 2 * 127 + 8 * 127) + 8 * 127 = 25400. */
MC_INLINE __m256i with_shift(__m256i sum, const uint8_t *shifts, const char *sum8, unsigned n)
{
    const __m256i one = _mm256_set1_epi16(1), pair = dword_at(sum8 + 4 * n);
    const __m256i sigma = _mm256_or_si256(_mm256_sll_epi16(half_at(shifts), _mm_cvtsi32_si128((int)(15 - n))), one);
    return _mm256_add_epi16(_mm256_slli_epi16(_mm256_sub_epi16(sum, pair), 3), _mm256_sign_epi16(pair, sigma));
}

/* Columns 64i .. 64i + 63 of a block: two or four sub-blocks, taken in pairs. x, sums: the activations of these columns. Of
 * halves h0 .. h1 - 1 of the rows. */
MC_INLINE void direct_64(enum quant_type type, unsigned cols, const uint8_t *p, const char *const x[4],
                         const char *const sums[4], unsigned i, unsigned h0, unsigned h1, __m256i table, struct sums *s)
{
    const struct form f = form_of(type);
    const unsigned n_pairs = f.sub == 16 ? 2 : 1, half = 16 / n_pairs / 2; /* code vectors of a sub-block */
    const unsigned fit = VNNI ? half : is_signed(type) ? SIGNED_DEPTH : depth_of(type);
    const uint8_t *codes = p + codes_at(type) + 2 * i * f.code_bytes;
    MC_UNROLL for (unsigned t = 0; t < n_pairs; t++)
    {
        struct pair pair[2];
        MC_UNROLL for (unsigned h = h0; h < h1; h++) pair[h] = pair_of(type, p, i, t, h);
        MC_UNROLL for (unsigned e = 0; e < 2; e++)
        {
            if (h1 - h0 == 1) MC_OPAQUE_POINTER(s); /* scaled sums wait in memory: the registers are for those at hand */
            __m256i scale[2];
            MC_UNROLL for (unsigned h = h0; h < h1; h++) scale[h] = scales_of(pair[h].scale, e);
            MC_UNROLL for (unsigned v = 0; v < half; v += fit)
            {
                __m256i sum[2][4];
                sum_vectors(type, cols, codes, x, (2 * t + e) * half + v, fit, h0, h1, table, sum);
                MC_UNROLL for (unsigned c = 0; c < cols; c++) MC_UNROLL for (unsigned h = h0; h < h1; h++)
                {
                    if (type == QUANT_IQ1_M)
                        sum[h][c] = with_shift(sum[h][c], p + minima_at(f) + 32 * h, sums[c], 4 * i + 2 * t + e);
                    s->a[h][c] = VNNI ? _mm256_add_epi32(s->a[h][c], _mm256_mullo_epi32(sum[h][c], scale[h]))
                                      : add_words(s->a[h][c], sum[h][c], scale[h]);
                }
            }
        }
        if (f.minima == NO_PAIRS && (bias_of(type) == 0 || is_signed(type))) continue;
        MC_UNROLL for (unsigned c = 0; c < cols; c++)
        {
            const __m256i a = dword_at(sums[c] + 4 * (n_pairs * i + t));
            MC_UNROLL for (unsigned h = h0; h < h1; h++) s->c[h][c] = add_words(s->c[h][c], pair[h].low, a);
        }
    }
}

/* The same without scales. */
MC_INLINE void direct_64_plain(enum quant_type type, unsigned cols, const uint8_t *p, const char *const x[4],
                               const char *const sums[4], unsigned i, unsigned h0, unsigned h1, __m256i table, struct sums *s)
{
    const struct form f = form_of(type);
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sum[2][4];
    if (h1 - h0 == 1) MC_OPAQUE_POINTER(s);
    sum_vectors(type, cols, p + 2 * i * f.code_bytes, x, 0, 16, h0, h1, table, sum);
    MC_UNROLL for (unsigned c = 0; c < cols; c++)
    {
        const __m256i bias = _mm256_madd_epi16(ones, dword_at(sums[c] + 4 * i));
        MC_UNROLL for (unsigned h = h0; h < h1; h++)
        {
            const __m256i dwords = VNNI ? sum[h][c] : _mm256_madd_epi16(sum[h][c], ones);
            s->a[h][c] = add_32(s->a[h][c], _mm256_sub_epi32(dwords, bias));
        }
    }
}

/* The integers of a block into the float chain. */
MC_INLINE __m256 finish(enum quant_type type, __m256 acc, const uint8_t *head, __m256 da, __m256i a, __m256i c)
{
    const struct form f = form_of(type);
    __m256 d = halves_at(head);
    if (f.factor != 1) d = _mm256_mul_ps(d, _mm256_set1_ps(f.factor));
    if (f.minima != NO_PAIRS) {
        acc = _mm256_fmadd_ps(_mm256_mul_ps(d, da), _mm256_cvtepi32_ps(a), acc);
        return _mm256_fnmadd_ps(_mm256_mul_ps(halves_at(head + 32), da), _mm256_cvtepi32_ps(c), acc);
    }
    if (f.scales != NO_PAIRS && bias_of(type) && !is_signed(type))
        a = _mm256_sub_epi32(a, _mm256_mullo_epi32(c, _mm256_set1_epi32(bias_of(type))));
    return _mm256_fmadd_ps(_mm256_mul_ps(d, da), _mm256_cvtepi32_ps(a), acc);
}

/* Block b of the columns at hand of one group; acc[c]: 16 rows. Asks for as much from `ahead` on, a share with each 64 columns.
 */
MC_INLINE void direct_block(enum quant_type type, unsigned cols, const uint8_t *head, const uint8_t *p, const char *ahead,
                            const struct packed_act x[4], size_t b, __m256i table, float acc[4][16])
{
    const unsigned per = is_flipped(type) ? 2 : 1;
    const unsigned halves = VNNI && cols > 1 ? 1 : 2; /* at once */
    const char *q[4], *sums[4];
    struct sums s;
    MC_UNROLL for (unsigned c = 0; c < cols; c++)
    {
        q[c] = x[c].q + 256 * per * b, sums[c] = x[c].sums + sums_bytes(type) * b;
        MC_UNROLL for (unsigned h = 0; h < 2; h++) s.a[h][c] = s.c[h][c] = _mm256_setzero_si256();
    }
    for (unsigned i = 0; i < 4; i++) {
        ask(ahead + i * (body_bytes(type) / 4), body_bytes(type) / 4);
        MC_UNROLL for (unsigned h = 0; h < 2; h += halves)
        {
            if (form_of(type).scales == NO_PAIRS)
                direct_64_plain(type, cols, p, q, sums, i, h, h + halves, table, &s);
            else
                direct_64(type, cols, p, q, sums, i, h, h + halves, table, &s);
        }
        MC_UNROLL for (unsigned c = 0; c < cols; c++) q[c] += 64 * per;
    }
    MC_UNROLL for (unsigned c = 0; c < cols; c++) MC_UNROLL for (unsigned h = 0; h < 2; h++)
    {
        const __m256 old = _mm256_load_ps(acc[c] + 8 * h), da = float_at(x[c].d + 4 * b);
        _mm256_store_ps(acc[c] + 8 * h, finish(type, old, head + 16 * h, da, s.a[h][c], s.c[h][c]));
    }
}

/* Columns [i0, i0 + n) of weights of `groups` groups from group g0 on. */
MC_INLINE void direct(enum quant_type type, unsigned cols, const struct job *j, size_t g0, size_t groups,
                      const struct packed_act x[4], size_t i0, size_t n)
{
    MC_ALIGNED(32) float acc[PACKED_GROUPS][4][16];
    const uint8_t *const w = j->w + g0 * j->bytes;
    const __m256i table = code_table(type);
    for (size_t g = 0; g < groups; g++)
        for (size_t c = 0; c < cols; c++)
            if (i0)
                memcpy(acc[g][c], j->y[c] + 16 * (g0 + g), sizeof acc[g][c]);
            else
                memset(acc[g][c], 0, sizeof acc[g][c]);
    for (size_t b = 0; b < n / 256; b++)
        for (size_t g = 0; g < groups; g++) {
            const uint8_t *group = w + g * j->bytes, *body = group + j->head;
            const size_t at = (i0 / 256 + b) * body_bytes(type);
            const char *ahead = ahead_of(body, j->bytes - j->head, groups * j->bytes, at);
            direct_block(type, cols, group + (i0 / 256 + b) * head_bytes(form_of(type)), body + at, ahead, x, b, table, acc[g]);
        }
    for (size_t g = 0; g < groups; g++)
        for (size_t c = 0; c < cols; c++) memcpy(j->y[c] + 16 * (g0 + g), acc[g][c], sizeof acc[g][c]);
}

MC_INLINE void few_columns(enum quant_type type, unsigned cols, const struct job *j, const void *const *rows, size_t n_groups)
{
    const size_t most = is_flipped(type) ? PACKED_FLIPPED / cols / 256 * 256 : j->k; /* weights between two preparations */
    struct packed_room room;
    for (size_t i = 0; i < j->k; i += most) {
        const size_t n = j->k - i < most ? j->k - i : most;
        struct packed_act x[4];
        for (size_t c = 0; c < cols; c++) x[c] = act_at(type, false, rows[c], j->k, i, n, c, &room);
        for (size_t g = 0; g < n_groups; g += PACKED_GROUPS)
            direct(type, cols, j, g, n_groups - g < PACKED_GROUPS ? n_groups - g : PACKED_GROUPS, x, i, n);
    }
}

/* ---- many columns ---- */

/* VNNI: the tile holds scale * code, which fits a byte. */
MC_INLINE bool scaled_bytes(enum quant_type type)
{
    return VNNI && (type == QUANT_Q2_K || type == QUANT_IQ1_S);
}

MC_INLINE struct packed_block block_law(enum quant_type type)
{
    const struct form f = form_of(type);
    const unsigned pairs = f.sub == 16 ? 8 : 4;
    if (f.sub == 256) return (struct packed_block){VNNI ? 256 : 128, 32, pairs, false, false};
    return (struct packed_block){scaled_bytes(type) ? 256 : f.sub, depth_of(type), pairs, f.minima != NO_PAIRS,
                                 is_flipped(type)};
}

/* Bytes of the tile for columns 32i .. 32i + 31 of 8 rows: `code`, or for iq1_m eight times the value, shifted
 * by its sign, + 9: 0 .. 18. */
MC_INLINE void fill_codes(enum quant_type type, struct packed_tile *tile, const uint8_t *p, unsigned i, unsigned h,
                          __m256i table)
{
    const struct form f = form_of(type);
    const uint8_t *codes = p + codes_at(type) + i * f.code_bytes + 32 * h;
    struct pair w;
    if (scaled_bytes(type)) w = pair_of(type, p, i / 2, f.sub == 16 ? i % 2 : 0, h);
    MC_UNROLL for (unsigned v = 0; v < 8; v++)
    {
        __m256i u = type == QUANT_IQ1_M ? field(codes, (int)v, 2, 3) : code(type, codes, (int)v, table);
        if (type == QUANT_IQ1_M) { /* group g = 4i + v / 2 of 8 columns: bit 16 * (g % 2) + g / 2, set: minus */
            const __m128i count = _mm_cvtsi32_si128((int)(31 - 16 * (v / 2 % 2) - 2 * i - v / 4));
            const __m256i minus = _mm256_srai_epi32(_mm256_sll_epi32(half_at(p + minima_at(f) + 32 * h), count), 31);
            u = _mm256_or_si256(u, _mm256_andnot_si256(minus, _mm256_set1_epi8(2)));
        }
        if (scaled_bytes(type)) u = _mm256_mullo_epi16(u, twice(w.scale, f.sub == 16 ? v / 4 : i % 2));
        _mm256_store_si256((void *)(tile->q[8 * i + v] + 32 * h), u);
    }
}

/* Scales and pairs of columns 64i .. 64i + 63 of 8 rows. */
MC_INLINE void fill_pairs(enum quant_type type, struct packed_tile *tile, const uint8_t *p, unsigned i, unsigned h)
{
    const struct form f = form_of(type);
    const unsigned n_pairs = f.sub == 16 ? 2 : 1;
    const int bias = type == QUANT_IQ1_M ? 9 : bias_of(type);
    if (f.scales == NO_PAIRS) {
        _mm256_store_si256((void *)(tile->pair[i] + 16 * h), _mm256_set1_epi16((short)-bias));
        _mm256_store_si256((void *)(tile->scale[i] + 16 * h), _mm256_set1_epi16(1));
        return;
    }
    MC_UNROLL for (unsigned t = 0; t < n_pairs; t++)
    {
        const struct pair w = pair_of(type, p, i, t, h);
        const unsigned at = n_pairs * i + t;
        const __m256i low = f.minima != NO_PAIRS ? w.low : _mm256_mullo_epi16(w.low, _mm256_set1_epi16((short)-bias));
        _mm256_store_si256((void *)(tile->pair[at] + 16 * h), low);
        MC_UNROLL for (unsigned e = 0; e < 2; e++)
            _mm256_store_si256((void *)(tile->scale[2 * at + e] + 16 * h), scales_of(w.scale, e));
    }
}

MC_INLINE void fill_tile(enum quant_type type, struct packed_tile *tile, const uint8_t *p, const uint8_t *head)
{
    const struct form f = form_of(type);
    const __m256i table = code_table(type);
    for (unsigned h = 0; h < 2; h++) {
        for (unsigned i = 0; i < 8; i++) fill_codes(type, tile, p, i, h, table);
        for (unsigned i = 0; i < 4; i++) fill_pairs(type, tile, p, i, h);
        _mm256_store_ps(tile->d[0] + 8 * h, _mm256_mul_ps(halves_at(head + 16 * h), _mm256_set1_ps(f.factor)));
        if (f.minima != NO_PAIRS) _mm256_store_ps(tile->m[0] + 8 * h, halves_at(head + 32 + 16 * h));
    }
}

/* Columns of weights outside, so that activations are prepared once and their pieces stay in L1. */
MC_INLINE void many_columns(enum quant_type type, const struct job *j, const void *const *rows, size_t n_groups, size_t cols)
{
    struct packed_room room;
    struct packed_act x[PACKED_COLS];
    struct packed_tile t;
    for (size_t b = 0; b < j->k / 256; b++) {
        for (size_t c = 0; c < cols; c++) x[c] = act_at(type, true, rows[c], j->k, 256 * b, 256, c, &room);
        ask_columns(rows, cols, 256 * (b + 1));
        for (size_t g = 0; g < n_groups; g++) {
            const uint8_t *group = j->w + g * j->bytes, *body = group + j->head + b * body_bytes(type);
            fill_tile(type, &t, body, group + b * head_bytes(form_of(type)));
            for (size_t at = 0; at < body_bytes(type); at += 64) _mm_prefetch((const char *)body + j->bytes + at, _MM_HINT_T0);
            PACKED_NAME(block_tile)(&t, block_law(type), j->y, 16 * g, x, b == 0, cols);
        }
    }
}

#endif
