/* matmul_q8_0.c - weight formats that are multiplied with q8_0 rows: one float step for each 32 columns (rows16_q.h). */
#include "kernels/avx512/matmul.h"
#include "kernels/avx512/rows16_q.h"
#include "kernels/quant/grids.h"

#define LAW(name, bytes, blocks, per, bias, half, add) static const struct q_law name = {bytes, blocks, per, bias, half, add};

MC_INLINE void load_f16(struct q_run *h, const uint8_t *p, const struct strides *s)
{
    h->d[0] = h->d[1] = h->d[2] = h->d[3] = low_f16(lanes_u32(p, s));
    h->m = h->d[0];
}

MC_INLINE void load_f16_pair(struct q_run *h, const uint8_t *p, const struct strides *s)
{
    const __m512i dm = lanes_u32(p, s);
    h->d[0] = low_f16(dm);
    h->m = high_f16(dm);
}

/* Four dwords as 32 nibbles: columns 0..15 low, 16..31 high. */
MC_INLINE void nibbles(__m512i x[8], const __m512i q[4])
{
    MC_UNROLL for (unsigned t = 0; t < 4; t++) x[t] = low_nibbles(q[t]), x[t + 4] = high_nibbles(q[t]);
}

MC_INLINE void nibbles_at(__m512i x[8], const uint8_t *p, const struct strides *s)
{
    __m512i q[4];
    quads16(q, p, s);
    nibbles(x, q);
}

/* The same from byte `at` of a stream. */
MC_INLINE void nibbles_of_stream(__m512i x[8], const __m512i raw[18], unsigned at)
{
    __m512i q[4];
    MC_UNROLL for (unsigned t = 0; t < 4; t++) q[t] = stream_at(raw, at + 4 * t);
    nibbles(x, q);
}

/* Four blocks of a float16 and 16 bytes: q4_0, iq4_nl, q2_0. Step i has the scale of block i / per. */
MC_INLINE void load_18(struct q_run *h, const uint8_t *p, const struct strides *s, unsigned per)
{
    load_stream(h->raw, p, s, 72);
    for (unsigned i = 0; i < 4 * per; i++) {
        const unsigned at = 18 * (i / per);
        h->d[i] = at % 4 ? high_f16(h->raw[at / 4]) : low_f16(h->raw[at / 4]);
    }
    h->m = h->d[0];
}

/* ---- q8_0 ---- */

LAW(law_q8_0, 34, 2, 1, 128, false, false)
Q_COLUMNS(columns_128, law_q8_0)

MC_INLINE void q8_0_load(struct q_run *h, const uint8_t *p, const struct strides *s)
{
    load_stream(h->raw, p, s, 68);
    h->d[0] = h->m = low_f16(h->raw[0]);
    h->d[1] = high_f16(h->raw[8]);
}

MC_INLINE void q8_0_codes(__m512i x[8], const struct q_run *h, const uint8_t *p, const struct strides *s, unsigned i)
{
    (void)p, (void)s;
    MC_UNROLL for (unsigned v = 0; v < 8; v++) x[v] =
        _mm512_xor_si512(stream_at(h->raw, 34 * i + 2 + 4 * v), _mm512_set1_epi8((char)0x80));
}
Q_MATMUL(q8_0, law_q8_0, columns_128)

/* ---- q4_0, q4_1, q5_0, q5_1 ---- */

LAW(law_q4_0, 18, 4, 1, 8, false, false)
LAW(law_q4_1, 20, 1, 1, 0, false, true)
LAW(law_q5_0, 22, 1, 1, 16, false, false)
LAW(law_q5_1, 24, 1, 1, 0, false, true)
Q_COLUMNS(columns_8, law_q4_0)
Q_COLUMNS(columns_16, law_q5_0)
Q_COLUMNS(columns_add, law_q4_1)

MC_INLINE void q4_0_load(struct q_run *h, const uint8_t *p, const struct strides *s)
{
    load_18(h, p, s, 1);
}

MC_INLINE void q4_0_codes(__m512i x[8], const struct q_run *h, const uint8_t *p, const struct strides *s, unsigned i)
{
    (void)p, (void)s;
    nibbles_of_stream(x, h->raw, 18 * i + 2);
}
Q_MATMUL(q4_0, law_q4_0, columns_8)

#define q4_1_load load_f16_pair
MC_INLINE void q4_1_codes(__m512i x[8], const struct q_run *h, const uint8_t *p, const struct strides *s, unsigned i)
{
    (void)h, (void)i;
    nibbles_at(x, p + 4, s);
}
Q_MATMUL(q4_1, law_q4_1, columns_add)

/* Bit i of the dword at p becomes bit 4 of code i. */
MC_INLINE void add_fifth_bits(__m512i x[8], const uint8_t *p, const struct strides *s)
{
    const __m512i high = lanes_u32(p, s), bit = _mm512_set1_epi8(16);
    MC_UNROLL for (unsigned v = 0; v < 8; v++) x[v] =
        or_and(x[v], _mm512_multishift_epi64_epi8(dword_offsets(4 * v + 60, 1), high), bit);
}

#define q5_0_load load_f16
MC_INLINE void q5_0_codes(__m512i x[8], const struct q_run *h, const uint8_t *p, const struct strides *s, unsigned i)
{
    (void)h, (void)i;
    nibbles_at(x, p + 6, s);
    add_fifth_bits(x, p + 2, s);
}
Q_MATMUL(q5_0, law_q5_0, columns_16)

#define q5_1_load load_f16_pair
MC_INLINE void q5_1_codes(__m512i x[8], const struct q_run *h, const uint8_t *p, const struct strides *s, unsigned i)
{
    (void)h, (void)i;
    nibbles_at(x, p + 8, s);
    add_fifth_bits(x, p + 4, s);
}
Q_MATMUL(q5_1, law_q5_1, columns_add)

/* ---- iq4_nl, mxfp4, nvfp4: nibbles through a table ---- */

LAW(law_iq4_nl, 18, 4, 1, 128, false, false)
LAW(law_mxfp4, 17, 4, 1, 12, false, false)
LAW(law_nvfp4, 36, 1, 2, 12, true, false)
Q_COLUMNS(columns_12, law_mxfp4)
Q_COLUMNS(columns_half, law_nvfp4)

MC_INLINE void look_up(__m512i x[8], const int8_t values[16], int bias)
{
    const __m128i v = _mm_add_epi8(_mm_loadu_si128((const void *)values), _mm_set1_epi8((char)bias));
    const __m512i table = _mm512_broadcast_i32x4(v);
    MC_UNROLL for (unsigned i = 0; i < 8; i++) x[i] = _mm512_shuffle_epi8(table, x[i]);
}

#define iq4_nl_load q4_0_load
MC_INLINE void iq4_nl_codes(__m512i x[8], const struct q_run *h, const uint8_t *p, const struct strides *s, unsigned i)
{
    q4_0_codes(x, h, p, s, i);
    look_up(x, quant_iq4_values, 128);
}
Q_MATMUL(iq4_nl, law_iq4_nl, columns_128)

/* 2^(e-128): exponent field e - 1; the two smallest are subnormal */
MC_INLINE __m512 e8m0_halves(__m512i e)
{
    const __m512i one = _mm512_set1_epi32(1), normal = _mm512_slli_epi32(_mm512_sub_epi32(e, one), 23);
    const __m512i small = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, _mm512_cmple_epu32_mask(e, one), small));
}

MC_INLINE void mxfp4_load(struct q_run *h, const uint8_t *p, const struct strides *s)
{
    load_stream(h->raw, p, s, 68);
    MC_UNROLL for (unsigned i = 0; i < 4; i++)
    {
        const unsigned at = 17 * i;
        h->d[i] = e8m0_halves(_mm512_and_si512(_mm512_srli_epi32(h->raw[at / 4], 8 * (at % 4)), _mm512_set1_epi32(255)));
    }
    h->m = h->d[0];
}

MC_INLINE void mxfp4_codes(__m512i x[8], const struct q_run *h, const uint8_t *p, const struct strides *s, unsigned i)
{
    (void)p, (void)s;
    nibbles_of_stream(x, h->raw, 17 * i + 1);
    look_up(x, quant_fp4_values, 12);
}
Q_MATMUL(mxfp4, law_mxfp4, columns_12)

/* Half of the unsigned E4M3 value: exponent and fraction fall into place in a float whose exponent is rebased by 119; what is
 * below the first exponent is a small integer. 0x7F reads as 0. (Subnormal floats would do both at once, slowly.) */
MC_INLINE __m512 ue4m3_halves(__m512i e)
{
    const __m512i low7 = _mm512_and_si512(e, _mm512_set1_epi32(127));
    const __m512i bits = _mm512_add_epi32(_mm512_slli_epi32(low7, 20), _mm512_set1_epi32(119 << 23));
    const __m512 small = _mm512_mul_ps(_mm512_cvtepi32_ps(low7), _mm512_set1_ps(0x1p-10f));
    const __mmask16 number = _mm512_cmpneq_epi32_mask(e, _mm512_set1_epi32(127));
    const __mmask16 tiny = _mm512_cmplt_epi32_mask(low7, _mm512_set1_epi32(8));
    return _mm512_maskz_mov_ps(number, _mm512_mask_mov_ps(_mm512_castsi512_ps(bits), tiny, small));
}

MC_INLINE void nvfp4_load(struct q_run *h, const uint8_t *p, const struct strides *s)
{
    const __m512i all = lanes_u32(p, s);
    MC_UNROLL for (unsigned t = 0; t < 4; t++) h->d[t] =
        ue4m3_halves(_mm512_and_si512(_mm512_srli_epi32(all, 8 * t), _mm512_set1_epi32(255)));
    h->m = h->d[0];
}

/* 8 bytes make 16 columns: low nibbles first */
MC_INLINE void nvfp4_codes(__m512i x[8], const struct q_run *h, const uint8_t *p, const struct strides *s, unsigned i)
{
    __m512i q[4];
    (void)h;
    quads16(q, p + 4 + 16 * i, s);
    MC_UNROLL for (unsigned t = 0; t < 4; t++)
    {
        x[t / 2 * 4 + t % 2] = low_nibbles(q[t]);
        x[t / 2 * 4 + t % 2 + 2] = high_nibbles(q[t]);
    }
    look_up(x, quant_fp4_values, 12);
}
Q_MATMUL(nvfp4, law_nvfp4, columns_half)

/* ---- q2_0, q1_0: consecutive columns in one byte ---- */

LAW(law_q2_0, 18, 4, 2, 1, false, false)
LAW(law_q1_0, 18, 1, 4, 1, false, false)
Q_COLUMNS(columns_1, law_q2_0)

MC_INLINE void q2_0_load(struct q_run *h, const uint8_t *p, const struct strides *s)
{
    load_18(h, p, s, 2);
}

MC_INLINE void q2_0_codes(__m512i x[8], const struct q_run *h, const uint8_t *p, const struct strides *s, unsigned i)
{
    (void)p, (void)s;
    MC_UNROLL for (unsigned t = 0; t < 2; t++)
    {
        const __m512i q = stream_at(h->raw, i / 2 * 18 + 2 + i % 2 * 8 + 4 * t);
        MC_UNROLL for (unsigned v = 0; v < 4; v++) x[4 * t + v] =
            _mm512_and_si512(_mm512_multishift_epi64_epi8(dword_offsets(8 * v, 2), q), _mm512_set1_epi8(3));
    }
}
Q_MATMUL(q2_0, law_q2_0, columns_1)

/* codes 0 and 2, bias 1 */
#define q1_0_load load_f16
MC_INLINE void q1_0_codes(__m512i x[8], const struct q_run *h, const uint8_t *p, const struct strides *s, unsigned i)
{
    __m512i q[4];
    (void)h;
    quads16(q, p + 2, s);
    MC_UNROLL for (unsigned v = 0; v < 8; v++) x[v] =
        _mm512_and_si512(_mm512_multishift_epi64_epi8(dword_offsets(4 * v + 63, 1), q[i]), _mm512_set1_epi8(2));
}
Q_MATMUL(q1_0, law_q1_0, columns_1)

void avx512_init_matmul_q8_0(struct kern_table *t)
{
    t->matmul[QUANT_Q8_0] = matmul_q8_0;
    t->matmul[QUANT_Q4_0] = matmul_q4_0;
    t->matmul[QUANT_Q4_1] = matmul_q4_1;
    t->matmul[QUANT_Q5_0] = matmul_q5_0;
    t->matmul[QUANT_Q5_1] = matmul_q5_1;
    t->matmul[QUANT_IQ4_NL] = matmul_iq4_nl;
    t->matmul[QUANT_MXFP4] = matmul_mxfp4;
    t->matmul[QUANT_NVFP4] = matmul_nvfp4;
    t->matmul[QUANT_Q2_0] = matmul_q2_0;
    t->matmul[QUANT_Q1_0] = matmul_q1_0;
}
