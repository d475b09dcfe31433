/* packed_steps.c - packed formats that are multiplied with q8_0 rows: one float step for each 32 columns (nvfp4: 16). See
 * packed.h; the layout is in kernels/pack.h. */
#include "kernels/avx2/packed.h"
#include "kernels/packed_forms.h"
#include "kernels/quant/grids.h"

/* ---- the formats ---- */

MC_INLINE struct packed_steps law_of(enum quant_type type)
{
    const struct step_form f = step_form_of(type);
    const bool flipped = !VNNI && (type == QUANT_Q8_0 || type == QUANT_IQ4_NL);
    const bool wide = f.code_bytes == 320 || type == QUANT_MXFP4 || type == QUANT_NVFP4; /* largest code above 15 */
    return (struct packed_steps){f.step, flipped ? 1 : wide ? 4 : 8, flipped ? 0 : f.bias, f.minimum, flipped};
}

MC_INLINE size_t step_bytes(enum quant_type type)
{
    return step_form_of(type).code_bytes;
}

MC_INLINE __m256i biased_table(const int8_t values[16], int bias)
{
    const __m128i v = _mm_add_epi8(_mm_loadu_si128((const void *)values), _mm_set1_epi8((char)bias));
    return _mm256_broadcastsi128_si256(v);
}

/* value + bias (eight bits: + 128) */
MC_INLINE __m256i code(enum quant_type type, const uint8_t *p, int v, __m256i table)
{
    switch (type) {
    case QUANT_Q8_0:
        return half_at(p + 64 * v);
    case QUANT_Q5_0:
    case QUANT_Q5_1:
        return field_5(p, v);
    case QUANT_IQ4_NL:
    case QUANT_MXFP4:
    case QUANT_NVFP4:
        return _mm256_shuffle_epi8(table, field(p, v, 4, 0));
    case QUANT_Q2_0:
        return field(p, v, 2, 0);
    case QUANT_Q1_0:
        return field(p, v, 1, 1); /* 2 * bit */
    default:
        return field(p, v, 4, 0);
    }
}

MC_INLINE __m256i table_of(enum quant_type type)
{
    if (type == QUANT_IQ4_NL) return biased_table(quant_iq4_values, 128);
    return type == QUANT_MXFP4 || type == QUANT_NVFP4 ? biased_table(quant_fp4_values, 12) : _mm256_setzero_si256();
}

MC_INLINE __m128i eight_bytes(const uint8_t *p)
{
    return _mm_loadl_epi64((const void *)p);
}

/* 2^(e - 128): for e >= 2 the bits (e - 1) << 23, for the subnormal e = 1 and 0 the bits e << 22 and 1 << 21. */
MC_INLINE __m256 e8m0_at(const uint8_t *p)
{
    const __m256i half = _mm256_slli_epi32(_mm256_cvtepu8_epi32(eight_bytes(p)), 22);
    const __m256i normal = _mm256_add_epi32(half, _mm256_sub_epi32(half, _mm256_set1_epi32(0x00800000)));
    const __m256i subnormal = _mm256_max_epi32(half, _mm256_set1_epi32(0x00200000));
    return _mm256_castsi256_ps(_mm256_max_epi32(normal, subnormal));
}

/* Half of an E4M3 value: read as the top of a float16, which has eight more in its exponent's bias. */
MC_INLINE __m256 e4m3_at(const uint8_t *p)
{
    const __m128i h = _mm_slli_epi16(_mm_cvtepu8_epi16(eight_bytes(p)), 7);
    return _mm256_mul_ps(_mm256_cvtph_ps(h), _mm256_set1_ps(128));
}

/* Scale of step s for half h of the rows. */
MC_INLINE __m256 scale(enum quant_type type, const uint8_t *head, size_t s, size_t h)
{
    const uint8_t *p = head + step_scale_at(type, s);
    if (type == QUANT_MXFP4) return e8m0_at(p + 8 * h);
    if (type == QUANT_NVFP4) return e4m3_at(p + 8 * h);
    return halves_at(p + 16 * h);
}

/* ---- activations ---- */

/* n columns of weights from i0 on, in column c of activations; `room` for flipped ones. */
MC_INLINE struct packed_act act_at(struct packed_steps law, const void *row, size_t k, size_t i0, size_t n, size_t c,
                                   struct packed_room *room)
{
    const char *const p = row, *const d = p + KERN_PAD(k), *const sums = d + KERN_PAD(k / 32 * 4);
    uint8_t *const flipped = room->bytes + 2 * n * c;
    int32_t *const missing = room->sums + (n + 127) / 128 * 4 * c;
    if (!law.flipped) return (struct packed_act){p + i0, d + i0 / 8, sums + i0 / 16, sums + KERN_PAD(k / 32 * 2) + i0 / 8};
    flip(flipped, missing, p + i0, n / 32);
    return (struct packed_act){(const char *)flipped, d + i0 / 8, (const char *)missing, NULL};
}

/* ---- few columns ---- */

/* int16 sums (VNNI: int32) of n code vectors from v0 on; x: the activations of the 32 columns. */
MC_INLINE void sum_vectors(enum quant_type type, unsigned cols, const uint8_t *p, const char *const x[4], unsigned v0,
                           unsigned n, __m256i table, __m256i sum[2][4])
{
    const bool quick = type == QUANT_Q2_0;
    const unsigned per = law_of(type).flipped ? 8 : 4;
    __m256i quarters[2][4];
    MC_UNROLL for (unsigned v = 0; v < n; v++)
    {
        __m256i u[2];
        MC_UNROLL for (unsigned h = 0; h < 2; h++)
        {
            u[h] = quick ? field_2_quick(p + 32 * h, (int)(v0 + v)) : code(type, p + 32 * h, (int)(v0 + v), table);
            MC_OPAQUE_VECTOR(u[h]); /* made once and here */
        }
        MC_UNROLL for (unsigned c = 0; c < cols; c++) MC_UNROLL for (unsigned h = 0; h < 2; h++)
        {
            const char *a = x[c] + per * (v0 + v);
            if (VNNI) {
                __m256i *const to = quick && v % 2 ? &quarters[h][c] : &sum[h][c];
                *to = add_bytes(v == 0 || (quick && v == 1) ? _mm256_setzero_si256() : *to, u[h], dword_at(a));
                continue;
            }
            const __m256i product = products(law_of(type).flipped, u[h], a);
            if (quick && v % 2)
                quarters[h][c] = v == 1 ? product : add_16(quarters[h][c], product);
            else
                sum[h][c] = v == 0 ? product : add_16(sum[h][c], product);
        }
    }
    if (!quick) return;
    MC_UNROLL for (unsigned c = 0; c < cols; c++) MC_UNROLL for (unsigned h = 0; h < 2; h++) sum[h][c] =
        VNNI ? _mm256_add_epi32(sum[h][c], _mm256_srai_epi32(quarters[h][c], 2))
             : add_16(sum[h][c], _mm256_srai_epi16(quarters[h][c], 2));
}

/* What step s of block b starts its sum with, in every lane. */
MC_INLINE __m256i first_sum(struct packed_steps law, const struct packed_act *x, size_t b, unsigned s)
{
    if (law.flipped) return dword_at(x->sums + 4 * b);
    if (law.step == 16) return bias_sum_16(x->q + 32 * b + 16 * s, law.bias);
    return _mm256_madd_epi16(_mm256_set1_epi32((uint16_t)-law.bias), dword_at(x->sums + 2 * b));
}

/* Block b of 32 columns of one group; acc[c]: 16 rows. */
MC_INLINE void direct_block(enum quant_type type, unsigned cols, const uint8_t *group, const uint8_t *p, size_t b0,
                            const struct packed_act x[4], size_t b, __m256i table, float acc[4][16])
{
    const struct packed_steps law = law_of(type);
    const unsigned steps = 32 / law.step, vectors = 8 / steps, depth = VNNI ? vectors : law.depth;
    const __m256i ones = _mm256_set1_epi16(1);
    const char *q[4];
    MC_UNROLL for (unsigned c = 0; c < cols; c++)
    {
        q[c] = x[c].q + (law.flipped ? FLIPPED_BYTES : 32) * b;
        MC_OPAQUE_POINTER(q[c]); /* else GCC loads the dwords before the loop over groups, into general registers */
    }
    MC_UNROLL for (unsigned s = 0; s < steps; s++)
    {
        __m256i total[2][4], sum[2][4];
        MC_UNROLL for (unsigned c = 0; c < cols; c++) total[0][c] = total[1][c] =
            law.minimum ? _mm256_setzero_si256() : first_sum(law, &x[c], b, s);
        MC_UNROLL for (unsigned v = 0; v < vectors; v += depth)
        {
            sum_vectors(type, cols, p, q, s * vectors + v, depth, table, sum);
            MC_UNROLL for (unsigned c = 0; c < cols; c++) MC_UNROLL for (unsigned h = 0; h < 2; h++)
            {
                const __m256i dwords = VNNI ? sum[h][c] : _mm256_madd_epi16(sum[h][c], ones);
                total[h][c] = law.minimum && v == 0 ? dwords : add_32(total[h][c], dwords);
            }
        }
        MC_UNROLL for (unsigned h = 0; h < 2; h++)
        {
            const __m256 d = scale(type, group, (b0 + b) * steps + s, h);
            MC_UNROLL for (unsigned c = 0; c < cols; c++)
            {
                const __m256 dd = _mm256_mul_ps(d, float_at(x[c].d + 4 * b));
                __m256 f = _mm256_fmadd_ps(dd, _mm256_cvtepi32_ps(total[h][c]), _mm256_load_ps(acc[c] + 8 * h));
                if (law.minimum)
                    f = _mm256_fmadd_ps(halves_at(group + 64 * (b0 + b) + 32 + 16 * h), float_at(x[c].s + 4 * b), f);
                _mm256_store_ps(acc[c] + 8 * h, f);
            }
        }
    }
}

/* Columns [i0, i0 + n) of weights of `groups` groups from group g0 on. */
MC_INLINE void direct(enum quant_type type, unsigned cols, const struct job *j, size_t g0, size_t groups,
                      const struct packed_act x[4], size_t i0, size_t n)
{
    MC_ALIGNED(32) float acc[PACKED_GROUPS][4][16];
    const uint8_t *const w = j->w + g0 * j->bytes;
    const __m256i table = table_of(type);
    for (size_t g = 0; g < groups; g++)
        for (size_t c = 0; c < cols; c++)
            if (i0)
                memcpy(acc[g][c], j->y[c] + 16 * (g0 + g), sizeof acc[g][c]);
            else
                memset(acc[g][c], 0, sizeof acc[g][c]);
    for (size_t b = 0; b < n / 32; b++)
        for (size_t g = 0; g < groups; g++) {
            const uint8_t *group = w + g * j->bytes, *body = group + j->head;
            const size_t at = (i0 / 32 + b) * step_bytes(type);
            ask(ahead_of(body, j->bytes - j->head, groups * j->bytes, at), step_bytes(type));
            direct_block(type, cols, group, body + at, i0 / 32, x, b, table, acc[g]);
        }
    for (size_t g = 0; g < groups; g++)
        for (size_t c = 0; c < cols; c++) memcpy(j->y[c] + 16 * (g0 + g), acc[g][c], sizeof acc[g][c]);
}

MC_INLINE void few_columns(enum quant_type type, unsigned cols, const struct job *j, const void *const *rows, size_t n_groups)
{
    const struct packed_steps law = law_of(type);
    const size_t most = law.flipped ? PACKED_FLIPPED / cols / 256 * 256 : j->k; /* weights between two preparations */
    struct packed_room room;
    for (size_t i = 0; i < j->k; i += most) {
        const size_t n = j->k - i < most ? j->k - i : most;
        struct packed_act x[4];
        for (size_t c = 0; c < cols; c++) x[c] = act_at(law, rows[c], j->k, i, n, c, &room);
        for (size_t g = 0; g < n_groups; g += PACKED_GROUPS)
            direct(type, cols, j, g, n_groups - g < PACKED_GROUPS ? n_groups - g : PACKED_GROUPS, x, i, n);
    }
}

/* ---- many columns ---- */

/* n columns from i0 on, n <= 256. */
MC_INLINE void fill_tile(enum quant_type type, struct packed_tile *t, const uint8_t *group, size_t head, size_t i0, size_t n,
                         __m256i table)
{
    const struct packed_steps law = law_of(type);
    for (size_t b = 0; b < n / 32; b++)
        for (size_t h = 0; h < 2; h++) {
            const uint8_t *p = group + head + (i0 / 32 + b) * step_bytes(type) + 32 * h;
            MC_UNROLL for (size_t v = 0; v < 8; v++)
                _mm256_store_si256((void *)(t->q[8 * b + v] + 32 * h), code(type, p, (int)v, table));
            if (law.minimum) _mm256_store_ps(t->m[b] + 8 * h, halves_at(group + 64 * (i0 / 32 + b) + 32 + 16 * h));
        }
    for (size_t s = 0; s < n / law.step; s++)
        for (size_t h = 0; h < 2; h++) _mm256_store_ps(t->d[s] + 8 * h, scale(type, group, i0 / law.step + s, h));
}

/* Columns of weights outside, so that activations are prepared once and their pieces stay in L1. */
MC_INLINE void many_columns(enum quant_type type, const struct job *j, const void *const *rows, size_t n_groups, size_t cols)
{
    const struct packed_steps law = law_of(type);
    const __m256i table = table_of(type);
    struct packed_room room;
    struct packed_act x[PACKED_COLS];
    struct packed_tile t;
    for (size_t i = 0; i < j->k; i += 256) {
        const size_t n = j->k - i < 256 ? j->k - i : 256;
        for (size_t c = 0; c < cols; c++) x[c] = act_at(law, rows[c], j->k, i, n, c, &room);
        ask_columns(rows, cols, i + 256);
        for (size_t g = 0; g < n_groups; g++) {
            const uint8_t *group = j->w + g * j->bytes;
            const char *next = (const char *)group + j->bytes + j->head + i / 32 * step_bytes(type);
            fill_tile(type, &t, group, j->head, i, n, table);
            for (size_t at = 0; at < n / 32 * step_bytes(type); at += 64) _mm_prefetch(next + at, _MM_HINT_T0);
            PACKED_NAME(steps_tile)(&t, law, j->y, 16 * g, x, i == 0, n, cols);
        }
    }
}

#define FORMATS(X)                                                                                                             \
    X(q4_0, Q4_0)                                                                                                              \
    X(q4_1, Q4_1)                                                                                                              \
    X(q5_0, Q5_0)                                                                                                              \
    X(q5_1, Q5_1)                                                                                                              \
    X(q8_0, Q8_0)                                                                                                              \
    X(iq4_nl, IQ4_NL)                                                                                                          \
    X(mxfp4, MXFP4)                                                                                                            \
    PLAIN_ONLY(X(nvfp4, NVFP4))                                                                                                \
    X(q2_0, Q2_0)                                                                                                              \
    X(q1_0, Q1_0)

FORMATS(PACKED_MATMUL)

void PACKED_NAME(init_packed_steps)(struct kern_table *t)
{
    FORMATS(PACKED_SET)
}
