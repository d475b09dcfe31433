/* packed_blocks.h - packed formats that are multiplied with q8_K rows: integer scales inside blocks of 256 columns, one float
 * step a block. See packed.h; the layout is in kernels/pack.h.
 *
 * Everything of two neighbouring sub-blocks comes as pairs of 16-bit words in lane = row: the scales, which vpdpwssd multiplies
 * with the broadcast pair of activation sums to undo the bias (I = A - bias * C) or to form a minimum, and, where the sums of a
 * sub-block fit 16 bits, the sums themselves. Included by the files that instantiate formats; `type` is a constant everywhere.
 */
#ifndef KERNELS_AVX512_PACKED_BLOCKS_H
#define KERNELS_AVX512_PACKED_BLOCKS_H

#include "kernels/avx512/packed.h"
#include "kernels/packed_forms.h"
#include "kernels/quant/grids.h"

/* Sums of a sub-block fit 16 bits. */
MC_INLINE bool is_narrow(enum quant_type type)
{
    return type == QUANT_Q2_K || type == QUANT_Q3_K || type == QUANT_IQ1_S || type == QUANT_IQ1_M;
}
/* Ternary with a shift of 1/8: I is eight times the sum. */
MC_INLINE bool has_shifts(enum quant_type type)
{
    return type == QUANT_IQ1_S || type == QUANT_IQ1_M;
}

/* ---- codes ---- */

/* What a format looks its codes up in. */
MC_INLINE __m512i code_table(enum quant_type type)
{
    MC_ALIGNED(64) uint8_t t[64];
    switch (type) {
    case QUANT_IQ2_XXS:
    case QUANT_IQ2_XS:
    case QUANT_IQ2_S: {
        const __m128i m = _mm_setr_epi8(PACKED_IQ2_CODES);
        return _mm512_broadcast_i32x4(m);
    }
    case QUANT_IQ3_XXS: {
        const __m128i m = _mm_setr_epi8(PACKED_IQ3_XXS_CODES);
        return _mm512_broadcast_i32x4(m);
    }
    case QUANT_IQ4_XS:
        for (unsigned i = 0; i < 64; i++) t[i] = (uint8_t)(quant_iq4_values[i % 16] + 128);
        return line_at(t);
    default:
        return _mm512_setzero_si512();
    }
}

/* Three bits at the bottom of each byte, other bits above them. */
MC_INLINE __m512i loose_3(const uint8_t *p, int v)
{
    const __m512i low = loose_field(p, v, 2, 0), high = loose_field(p + 128, v, 1, 2);
    return _mm512_ternarylogic_epi32(_mm512_set1_epi8(3), low, high, 0xCA);
}

/* value + bias; iq1: value + 1 */
MC_INLINE __m512i code(enum quant_type type, const uint8_t *p, int v, __m512i table)
{
    switch (type) {
    case QUANT_Q3_K:
        return masked(loose_3(p, v), 7);
    case QUANT_Q4_K:
        return field(p, v, 4, 0);
    case QUANT_Q5_K:
        return field_5(p, v);
    case QUANT_Q6_K:
        return field_6(p, v);
    case QUANT_IQ2_XXS:
    case QUANT_IQ2_XS:
    case QUANT_IQ2_S:
        return _mm512_permutexvar_epi8(loose_3(p, v), table); /* 8 entries, repeated */
    case QUANT_IQ3_S:
        return field(p, v, 4, 1); /* 2 * code */
    case QUANT_IQ3_XXS:
    case QUANT_IQ4_XS:
        return _mm512_permutexvar_epi8(loose_field(p, v, 4, 0), table); /* 16 entries, repeated */
    case QUANT_IQ1_M:
        return field(p, v, 2, 3); /* eight times */
    default:
        return field(p, v, 2, 0);
    }
}

/* ---- pairs of 64 columns ---- */

struct pair_tables {
    __m512i scale; /* of a nibble in the low bits of a word; 32 entries, because the index takes the next bit along */
    __m512i shift; /* iq1_s: ls * (sigma - 8) of a nibble; iq1_m: sigma - 8 of a bit */
};

MC_INLINE struct pair_tables pair_tables_of(enum quant_type type)
{
    const __m512i i = _mm512_and_si512(_mm512_set_epi16(31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14,
                                                        13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                                       _mm512_set1_epi16(15));
    const __m512i one = _mm512_set1_epi16(1), nine = _mm512_set1_epi16(9), seven = _mm512_set1_epi16(7);
    const __m512i field = type == QUANT_IQ1_S ? _mm512_and_si512(i, seven) : i;
    const __m512i odd = _mm512_add_epi16(_mm512_slli_epi16(field, 1), one);
    const __mmask32 sign = _mm512_test_epi16_mask(i, _mm512_set1_epi16(type == QUANT_IQ1_S ? 8 : 1));
    const __m512i minus = _mm512_sub_epi16(_mm512_setzero_si512(), _mm512_mask_mov_epi16(seven, sign, nine));
    return (struct pair_tables){odd, type == QUANT_IQ1_S ? _mm512_mullo_epi16(odd, minus) : minus};
}

/* Pair t (0; with 16 columns to a scale also 1) of columns 64i .. 64i + 63, as it is in memory. */
MC_INLINE __m512i raw_pair(enum pairs form, unsigned sub, const uint8_t *p, unsigned i, unsigned t)
{
    const uint8_t *bytes = p + 32 * (32 / sub * i + t);
    if (form == BYTES) return _mm512_cvtepu8_epi16(_mm256_load_si256((const void *)bytes));
    if (form == SIGNED_BYTES) return _mm512_cvtepi8_epi16(_mm256_load_si256((const void *)bytes));
    return _mm512_srl_epi16(line_at(p + 64 * t), _mm_cvtsi32_si128((int)(4 * i)));
}

MC_INLINE __m512i pair_of(enum pairs form, __m512i raw, __m512i table)
{
    if (form == NIBBLES) return _mm512_and_si512(raw, _mm512_set1_epi16(15));
    return form == ODD_NIBBLES || form == TERNARY ? _mm512_permutexvar_epi16(raw, table) : raw;
}

/* The two words of each lane as dwords. */
MC_INLINE __m512i low_words(__m512i w)
{
    return _mm512_srai_epi32(_mm512_slli_epi32(w, 16), 16);
}
MC_INLINE __m512i high_words(__m512i w)
{
    return _mm512_srai_epi32(w, 16);
}
MC_INLINE __m512i join_words(__m512i low, __m512i high)
{
    return _mm512_mask_blend_epi16(0xAAAAAAAA, low, _mm512_slli_epi32(high, 16));
}

/* ---- few columns ---- */

struct sums {
    __m512i a[4][4]; /* scaled sums */
    __m512i c[4][4]; /* bias, shift or minimum */
};

/* iq1_m: what the shifts of groups 2n and 2n + 1 of 8 columns add to eight times the sum. */
MC_INLINE __m512i shift_pair(const uint8_t *shifts, unsigned n, const struct pair_tables *tables)
{
    return _mm512_permutexvar_epi16(_mm512_srl_epi16(line_at(shifts), _mm_cvtsi32_si128((int)n)), tables->shift);
}
MC_INLINE __m512i shift_sum(const uint8_t *shifts, const char *sum8, unsigned n, const struct pair_tables *tables)
{
    return _mm512_dpwssd_epi32(_mm512_setzero_si512(), shift_pair(shifts, n, tables), dword_at(sum8 + 4 * n));
}

/* Columns 64i .. 64i + 63 of block b: two or four sub-blocks, taken in pairs. Asks for as many bytes of each group at `ahead`.
 */
MC_INLINE void direct_64(enum quant_type type, unsigned groups, unsigned cols, const struct job *j, const uint8_t *p,
                         const uint8_t *ahead, const char *const x[4], size_t b, unsigned i, const struct pair_tables *tables,
                         __m512i table, struct sums *s)
{
    const struct form f = form_of(type);
    const size_t at_sum = f.sub == 16 ? j->at.sum16 : j->at.sum32;
    const unsigned n_pairs = f.sub == 16 ? 2 : 1, half = 16 / n_pairs / 2; /* code vectors of a sub-block */
    const uint8_t *codes = p + codes_at(type) + 2 * i * f.code_bytes;
    MC_UNROLL for (unsigned t = 0; t < n_pairs; t++)
    {
        __m512i sum[2][4][4];
        MC_UNROLL for (unsigned at = 2 * t * half; at < 2 * (t + 1) * half; at++) /* of 16 code vectors */
        {
            const unsigned h = at / half % 2;
            MC_UNROLL for (unsigned g = 0; g < groups; g++)
            {
                ask_share(ahead + g * j->bytes, body_bytes(type) / 4, at, 16);
                const __m512i u = code(type, codes + g * j->bytes + at / 8 * f.code_bytes, (int)(at % 8), table);
                MC_UNROLL for (unsigned c = 0; c < cols; c++)
                {
                    const __m512i first =
                        f.sub == 256 ? s->a[g][c]
                        : type == QUANT_IQ1_M
                            ? shift_sum(p + g * j->bytes + minima_at(f), x[c] + j->at.sum8 + 64 * b, 4 * i + 2 * t + h, tables)
                            : _mm512_setzero_si512();
                    const __m512i old = at % half ? sum[h][g][c] : first;
                    sum[h][g][c] = _mm512_dpbusd_epi32(old, u, dword_at(x[c] + 256 * b + 64 * i + 4 * at));
                    if (f.sub == 256) s->a[g][c] = sum[h][g][c];
                }
            }
        }
        if (f.scales == NO_PAIRS) continue;
        MC_UNROLL for (unsigned g = 0; g < groups; g++)
        {
            const __m512i raw = raw_pair(f.scales, f.sub, p + g * j->bytes, i, t);
            const __m512i w = pair_of(f.scales, raw, tables->scale);
            MC_UNROLL for (unsigned c = 0; c < cols; c++)
            {
                if (is_narrow(type))
                    s->a[g][c] = _mm512_dpwssd_epi32(s->a[g][c], join_words(sum[0][g][c], sum[1][g][c]), w);
                else
                    s->a[g][c] = _mm512_add_epi32(_mm512_add_epi32(s->a[g][c], _mm512_mullo_epi32(sum[0][g][c], low_words(w))),
                                                  _mm512_mullo_epi32(sum[1][g][c], high_words(w)));
            }
            if ((f.minima == NO_PAIRS && f.bias == 0 && !has_shifts(type)) || type == QUANT_IQ1_M) continue;
            __m512i m = w;
            if (f.minima != NO_PAIRS)
                m = pair_of(f.minima, raw_pair(f.minima, f.sub, p + g * j->bytes + minima_at(f), i, t), tables->scale);
            if (has_shifts(type)) m = _mm512_permutexvar_epi16(raw, tables->shift);
            MC_UNROLL for (unsigned c = 0; c < cols; c++) s->c[g][c] =
                _mm512_dpwssd_epi32(s->c[g][c], m, dword_at(x[c] + at_sum + 2 * (256 / f.sub) * b + 4 * (n_pairs * i + t)));
        }
    }
}

/* The integers of a block into the float chain. */
MC_INLINE __m512 finish(enum quant_type type, __m512 acc, const uint8_t *head, __m512 da, __m512i a, __m512i c)
{
    const struct form f = form_of(type);
    __m512 d = halves_at(head);
    if (f.factor != 1) d = _mm512_mul_ps(d, _mm512_set1_ps(f.factor));
    if (f.minima != NO_PAIRS) {
        acc = _mm512_fmadd_ps(_mm512_mul_ps(d, da), _mm512_cvtepi32_ps(a), acc);
        return _mm512_fnmadd_ps(_mm512_mul_ps(halves_at(head + 32), da), _mm512_cvtepi32_ps(c), acc);
    }
    if (f.bias) a = _mm512_sub_epi32(a, _mm512_mullo_epi32(c, _mm512_set1_epi32(f.bias)));
    if (has_shifts(type) && f.sub == 32) a = _mm512_add_epi32(_mm512_slli_epi32(a, 3), c);
    return _mm512_fmadd_ps(_mm512_mul_ps(d, da), _mm512_cvtepi32_ps(a), acc);
}

MC_INLINE void direct(enum quant_type type, unsigned groups, unsigned cols, const struct job *j, size_t g0)
{
    const struct form f = form_of(type);
    const struct pair_tables tables = pair_tables_of(type);
    const __m512i table = code_table(type), ones = _mm512_set1_epi16(1);
    const uint8_t *w = j->w + g0 * j->bytes;
    const char *x[4];
    __m512 acc[4][4];
    MC_UNROLL for (unsigned c = 0; c < cols; c++)
    {
        x[c] = j->x[c];
        MC_UNROLL for (unsigned g = 0; g < groups; g++) acc[g][c] = _mm512_setzero_ps();
    }
    ask_heads(groups, w + groups * j->bytes, j->bytes);
    for (size_t b = 0; b < j->k / 256; b++) {
        struct sums s;
        MC_UNROLL for (unsigned g = 0; g < groups; g++) MC_UNROLL for (unsigned c = 0; c < cols; c++) s.a[g][c] = s.c[g][c] =
            _mm512_setzero_si512();
        for (unsigned i = 0; i < 4; i++) {
            const uint8_t *ahead =
                ahead_of(groups, w + j->head, j->bytes - j->head, j->bytes, b * body_bytes(type) + i * (body_bytes(type) / 4));
            direct_64(type, groups, cols, j, w + j->head + b * body_bytes(type), ahead, x, b, i, &tables, table, &s);
            if (f.sub == 256)
                MC_UNROLL for (unsigned c = 0; c < cols; c++) s.c[0][c] =
                    _mm512_dpwssd_epi32(s.c[0][c], ones, dword_at(x[c] + j->at.sum32 + 16 * b + 4 * i));
        }
        MC_UNROLL for (unsigned g = 0; g < groups; g++) MC_UNROLL for (unsigned c = 0; c < cols; c++) acc[g][c] =
            finish(type, acc[g][c], w + g * j->bytes + b * head_bytes(f), float_at(x[c] + j->at.d + 4 * b), s.a[g][c],
                   s.c[f.sub == 256 ? 0 : g][c]);
    }
    MC_UNROLL for (unsigned c = 0; c < cols; c++) MC_UNROLL for (unsigned g = 0; g < groups; g++)
        _mm512_storeu_ps(j->y[c] + 16 * (g0 + g), acc[g][c]);
}

/* ---- many columns ---- */

/* Where scale * code fits a byte the tile holds the product (iq1: eight times that). */
MC_INLINE bool scaled_bytes(enum quant_type type)
{
    return type == QUANT_Q2_K || type == QUANT_IQ1_S || type == QUANT_IQ1_M;
}

MC_INLINE struct packed_block block_law(enum quant_type type)
{
    const struct form f = form_of(type);
    const unsigned sub = scaled_bytes(type) ? 256 : f.sub, width = type == QUANT_IQ1_M ? 8 : f.sub == 256 ? 32 : f.sub;
    return (struct packed_block){sub, 256 / width / 2, width, f.minima != NO_PAIRS};
}

/* Codes and scales of pair t of columns 64i .. 64i + 63. */
MC_INLINE void fill_pair(enum quant_type type, struct packed_tile *tile, const uint8_t *p, unsigned i, unsigned t,
                         const struct pair_tables *tables, __m512i table)
{
    const struct form f = form_of(type);
    const unsigned n_pairs = f.sub == 16 ? 2 : 1, half = 16 / n_pairs / 2, pair = n_pairs * i + t;
    const uint8_t *codes = p + codes_at(type) + 2 * i * f.code_bytes;
    const __m512i raw = raw_pair(f.scales, f.sub, p, i, t), w = pair_of(f.scales, raw, tables->scale);
    __m512i m = _mm512_mullo_epi16(w, _mm512_set1_epi16((short)-f.bias));
    __m512i factor[2]; /* both words of a lane: the scale */
    factor[0] = join_words(w, w);
    factor[1] = _mm512_mask_blend_epi16(0xAAAAAAAA, _mm512_srli_epi32(w, 16), w);
    MC_UNROLL for (unsigned at = 2 * t * half; at < 2 * (t + 1) * half; at++)
    {
        __m512i u = code(type, codes + at / 8 * f.code_bytes, (int)(at % 8), table);
        if (type == QUANT_IQ1_S) u = _mm512_slli_epi16(u, 3);
        if (scaled_bytes(type)) u = _mm512_mullo_epi16(u, factor[at / half % 2]);
        _mm512_store_si512(tile->q[16 * i + at], u);
    }
    if (f.minima != NO_PAIRS) m = pair_of(f.minima, raw_pair(f.minima, f.sub, p + minima_at(f), i, t), tables->scale);
    if (type == QUANT_IQ1_S) m = _mm512_permutexvar_epi16(raw, tables->shift);
    if (type != QUANT_IQ1_M) _mm512_store_si512(tile->pair[pair], m);
    for (unsigned h = 0; type == QUANT_IQ1_M && h < 2; h++) {
        const __m512i shifts = shift_pair(p + minima_at(f), 2 * pair + h, tables);
        _mm512_store_si512(tile->pair[2 * pair + h], _mm512_mullo_epi16(shifts, factor[h]));
    }
    if (scaled_bytes(type)) return;
    _mm512_store_si512(tile->scale[2 * pair], low_words(w));
    _mm512_store_si512(tile->scale[2 * pair + 1], high_words(w));
}

MC_INLINE void fill_tile(enum quant_type type, struct packed_tile *tile, const uint8_t *p, const uint8_t *head)
{
    const struct form f = form_of(type);
    const struct pair_tables tables = pair_tables_of(type);
    const __m512i table = code_table(type);
    for (unsigned i = 0; i < 4; i++) {
        if (f.scales == NO_PAIRS) {
            MC_UNROLL for (unsigned at = 0; at < 16; at++) _mm512_store_si512(
                tile->q[16 * i + at], code(type, p + codes_at(type) + (2 * i + at / 8) * f.code_bytes, (int)(at % 8), table));
            _mm512_store_si512(tile->pair[i], _mm512_set1_epi16((short)-f.bias));
        } else {
            fill_pair(type, tile, p, i, 0, &tables, table);
            if (f.sub == 16) fill_pair(type, tile, p, i, 1, &tables, table);
        }
    }
    _mm512_store_ps(tile->d[0], _mm512_mul_ps(halves_at(head), _mm512_set1_ps(f.factor)));
    if (f.minima != NO_PAIRS) _mm512_store_ps(tile->m[0], halves_at(head + 32));
}

MC_INLINE void many_columns(enum quant_type type, const struct job *j, size_t n_groups, size_t cols)
{
    const struct form f = form_of(type);
    struct packed_tile t[2];
    for (size_t g = 0; g < n_groups; g += 2) {
        const unsigned tiles = n_groups - g < 2 ? 1 : 2;
        for (size_t b = 0; b < j->k / 256; b++) {
            for (unsigned h = 0; h < tiles; h++) {
                const uint8_t *group = j->w + (g + h) * j->bytes, *body = group + j->head + b * body_bytes(type);
                fill_tile(type, &t[h], body, group + b * head_bytes(f));
                ask_next(b + 1 < j->k / 256 ? body + body_bytes(type) : group + tiles * j->bytes + j->head, body_bytes(type));
            }
            avx512_packed_block_tile(t, tiles, block_law(type), j->y, 16 * g, j->x, j->k, 256 * b, cols);
        }
    }
}

#define PACKED_ACT QUANT_ACT_Q8_K
#include "kernels/avx512/packed_matmul.inc.h"

#endif
