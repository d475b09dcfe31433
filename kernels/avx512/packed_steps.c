/* packed_steps.c - packed formats that are multiplied with q8_0 rows: one float step for each 32 columns (nvfp4: 16). See
 * packed.h; the layout is in kernels/pack.h. */
#include "kernels/avx512/packed.h"
#include "kernels/packed_forms.h"
#include "kernels/quant/grids.h"

/* ---- the formats ---- */

MC_INLINE struct packed_steps law_of(enum quant_type type)
{
    const struct step_form f = step_form_of(type);
    return (struct packed_steps){f.step, f.bias, f.minimum};
}

MC_INLINE size_t step_bytes(enum quant_type type)
{
    return step_form_of(type).code_bytes;
}

MC_INLINE __m512i biased_table(const int8_t values[16], int bias)
{
    const __m128i v = _mm_add_epi8(_mm_loadu_si128((const void *)values), _mm_set1_epi8((char)bias));
    return _mm512_broadcast_i32x4(v);
}

/* value + bias */
MC_INLINE __m512i code(enum quant_type type, const uint8_t *p, int v, __m512i table)
{
    switch (type) {
    case QUANT_Q8_0:
        return field(p, v, 8, 0);
    case QUANT_Q5_0:
    case QUANT_Q5_1:
        return field_5(p, v);
    case QUANT_IQ4_NL:
    case QUANT_MXFP4:
    case QUANT_NVFP4:
        return _mm512_shuffle_epi8(table, field(p, v, 4, 0));
    case QUANT_Q2_0:
        return field(p, v, 2, 0);
    case QUANT_Q1_0:
        return field(p, v, 1, 1); /* 2 * bit */
    default:
        return field(p, v, 4, 0);
    }
}

MC_INLINE __m512i table_of(enum quant_type type)
{
    if (type == QUANT_IQ4_NL) return biased_table(quant_iq4_values, 128);
    return type == QUANT_MXFP4 || type == QUANT_NVFP4 ? biased_table(quant_fp4_values, 12) : _mm512_setzero_si512();
}

/* 2^(e - 128), subnormal for e < 2. */
MC_INLINE __m512 e8m0_at(const uint8_t *p)
{
    const __m512i e = _mm512_cvtepu8_epi32(_mm_load_si128((const void *)p));
    const __m512i d = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    const __mmask16 small = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
    return _mm512_castsi512_ps(_mm512_mask_sllv_epi32(d, small, _mm512_set1_epi32(0x00200000), e));
}

/* Half of an E4M3 value: read as the top of a float16, which has eight more in its exponent's bias. */
MC_INLINE __m512 e4m3_at(const uint8_t *p)
{
    const __m256i h = _mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_load_si128((const void *)p)), 7);
    return _mm512_mul_ps(_mm512_cvtph_ps(h), _mm512_set1_ps(128));
}

/* Scale of step s. */
MC_INLINE __m512 scale(enum quant_type type, const uint8_t *head, size_t s)
{
    const uint8_t *p = head + step_scale_at(type, s);
    return type == QUANT_MXFP4 ? e8m0_at(p) : type == QUANT_NVFP4 ? e4m3_at(p) : halves_at(p);
}

/* ---- few columns ---- */

/* -bias times the sum of each 16 of 64 activations. */
MC_INLINE void bias_sums_16(__m512i out[4], const void *q, int bias)
{
    const __m512i z = _mm512_setzero_si512();
    __m512i s = _mm512_dpbusd_epi32(z, _mm512_set1_epi8((char)bias), _mm512_loadu_si512(q));
    s = _mm512_add_epi32(s, _mm512_shuffle_epi32(s, _MM_PERM_CDAB));
    s = _mm512_sub_epi32(z, _mm512_add_epi32(s, _mm512_shuffle_epi32(s, _MM_PERM_BADC)));
    out[0] = _mm512_shuffle_i32x4(s, s, 0x00);
    out[1] = _mm512_shuffle_i32x4(s, s, 0x55);
    out[2] = _mm512_shuffle_i32x4(s, s, 0xAA);
    out[3] = _mm512_shuffle_i32x4(s, s, 0xFF);
}

/* One step of 32 columns, or a pair of 16, for all groups and columns. Asks for as many bytes of each group at `ahead`. */
MC_INLINE void direct_step(enum quant_type type, unsigned groups, unsigned cols, const struct job *j, const uint8_t *w,
                           const uint8_t *ahead, const char *const x[4], size_t b, __m512i table, __m512 acc[4][4])
{
    const struct packed_steps law = law_of(type);
    const __m512i minus_bias = _mm512_set1_epi32((uint16_t)-law.bias);
    const uint8_t *p = w + j->head + b * step_bytes(type);
    const unsigned steps = 32 / law.step;
    __m512i init[4][4], sum[4][4];
    MC_UNROLL for (unsigned c = 0; c < cols; c++)
    {
        if (law.step == 16)
            bias_sums_16(init[c], x[c] + 32 * b, law.bias);
        else
            init[c][0] = _mm512_dpwssd_epi32(_mm512_setzero_si512(), minus_bias, dword_at(x[c] + j->at.sum32 + 2 * b));
    }
    MC_UNROLL for (unsigned s = 0; s < steps; s++)
    {
        MC_UNROLL for (unsigned g = 0; g < groups; g++) MC_UNROLL for (unsigned c = 0; c < cols; c++) sum[g][c] = init[c][s];
        MC_UNROLL for (unsigned v = s * 8 / steps; v < (s + 1) * 8 / steps; v++) MC_UNROLL for (unsigned g = 0; g < groups; g++)
        {
            ask_share(ahead + g * j->bytes, step_bytes(type), v, 8);
            const __m512i u = code(type, p + g * j->bytes, (int)v, table);
            MC_UNROLL for (unsigned c = 0; c < cols; c++) sum[g][c] =
                _mm512_dpbusd_epi32(sum[g][c], u, dword_at(x[c] + 32 * b + 4 * v));
        }
        MC_UNROLL for (unsigned g = 0; g < groups; g++)
        {
            const uint8_t *head = w + g * j->bytes;
            const __m512 d = scale(type, head, b * steps + s);
            MC_UNROLL for (unsigned c = 0; c < cols; c++)
            {
                const __m512 da = float_at(x[c] + j->at.d + 4 * b);
                acc[g][c] = _mm512_fmadd_ps(_mm512_mul_ps(d, da), _mm512_cvtepi32_ps(sum[g][c]), acc[g][c]);
                if (law.minimum)
                    acc[g][c] = _mm512_fmadd_ps(halves_at(head + 64 * b + 32), float_at(x[c] + j->at.s + 4 * b), acc[g][c]);
            }
        }
    }
}

/* Columns c0 .. c0 + cols of `groups` groups from group g0 on. */
MC_INLINE void direct(enum quant_type type, unsigned groups, unsigned cols, const struct job *j, size_t g0)
{
    const uint8_t *w = j->w + g0 * j->bytes;
    const __m512i table = table_of(type);
    const char *x[4];
    __m512 acc[4][4];
    MC_UNROLL for (unsigned c = 0; c < cols; c++)
    {
        x[c] = j->x[c];
        MC_UNROLL for (unsigned g = 0; g < groups; g++) acc[g][c] = _mm512_setzero_ps();
    }
    ask_heads(groups, w + groups * j->bytes, j->bytes);
    for (size_t b = 0; b < j->k / 32; b++) {
        const uint8_t *ahead = ahead_of(groups, w + j->head, j->bytes - j->head, j->bytes, b * step_bytes(type));
        direct_step(type, groups, cols, j, w, ahead, x, b, table, acc);
    }
    MC_UNROLL for (unsigned c = 0; c < cols; c++) MC_UNROLL for (unsigned g = 0; g < groups; g++)
        _mm512_storeu_ps(j->y[c] + 16 * (g0 + g), acc[g][c]);
}

/* ---- many columns ---- */

/* n columns from i0 on, n <= 256. */
MC_INLINE void fill_tile(enum quant_type type, struct packed_tile *t, const uint8_t *group, size_t head, size_t i0, size_t n,
                         __m512i table)
{
    const struct packed_steps law = law_of(type);
    for (size_t b = 0; b < n / 32; b++) {
        const uint8_t *p = group + head + (i0 / 32 + b) * step_bytes(type);
        MC_UNROLL for (int v = 0; v < 8; v++) _mm512_store_si512(t->q[8 * b + (size_t)v], code(type, p, v, table));
        if (law.minimum) _mm512_store_ps(t->m[b], halves_at(group + 64 * (i0 / 32 + b) + 32));
    }
    for (size_t s = 0; s < n / law.step; s++) _mm512_store_ps(t->d[s], scale(type, group, i0 / law.step + s));
}

MC_INLINE void many_columns(enum quant_type type, const struct job *j, size_t n_groups, size_t cols)
{
    const __m512i table = table_of(type);
    struct packed_tile t[2];
    for (size_t g = 0; g < n_groups; g += 2) {
        const unsigned tiles = n_groups - g < 2 ? 1 : 2;
        for (size_t i = 0; i < j->k; i += 256) {
            const size_t n = j->k - i < 256 ? j->k - i : 256;
            for (unsigned h = 0; h < tiles; h++) {
                const uint8_t *group = j->w + (g + h) * j->bytes, *body = group + j->head + i / 32 * step_bytes(type);
                fill_tile(type, &t[h], group, j->head, i, n, table);
                ask_next(i + n < j->k ? body + n / 32 * step_bytes(type) : group + tiles * j->bytes + j->head,
                         n / 32 * step_bytes(type));
            }
            avx512_packed_steps_tile(t, tiles, law_of(type), j->y, 16 * g, j->x, j->k, i, n, cols);
        }
    }
}

#define PACKED_ACT QUANT_ACT_Q8_0
#include "kernels/avx512/packed_matmul.inc.h"

#define FORMATS(X)                                                                                                             \
    X(q4_0, Q4_0)                                                                                                              \
    X(q4_1, Q4_1)                                                                                                              \
    X(q5_0, Q5_0)                                                                                                              \
    X(q5_1, Q5_1)                                                                                                              \
    X(q8_0, Q8_0)                                                                                                              \
    X(iq4_nl, IQ4_NL)                                                                                                          \
    X(mxfp4, MXFP4)                                                                                                            \
    X(nvfp4, NVFP4)                                                                                                            \
    X(q2_0, Q2_0)                                                                                                              \
    X(q1_0, Q1_0)

FORMATS(PACKED_MATMUL)

void avx512_init_packed_steps(struct kern_table *t)
{
    FORMATS(PACKED_SET)
}
