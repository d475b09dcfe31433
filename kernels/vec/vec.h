/* vec.h - what a vec_<isa>.h offers, and what follows from it for every instruction set.
 *
 * The float kernels are written once, over `vf`: one register of VL floats (16, or 8 for AVX2). Lanes never influence each
 * other, so kernels that work element by element give the same bits for any VL. The sums of rule R2 have 16 lanes whatever VL
 * is: they are kept as VEC_PARTS registers, part p holding the partial sums p*VL .. p*VL + VL-1.
 * Every vec_<isa>.h defines, all MC_INLINE:
 *
 *   v_zero() v_set1(x) v_load(p) v_store(p, v)    any alignment of 4 bytes
 *   v_load_part(p, n) v_store_part(p, v, n)       n <= VL lanes; the others read as +0 and are neither read nor written
 *   v_load_f16(p) v_load_bf16(p) (+ _part)        exact, any alignment
 *   v_store_f16(p, v) v_store_f16_part(p, v, n)   nearest, ties to even
 *   v_load_i8(p)                                  exact
 *   v_store_i8(p, v)                              nearest integer, ties to even; |v| <= 127
 *   v_add v_sub v_mul v_div (a, b)                rounded once
 *   v_fma(a, b, c)                                a * b + c, rounded once
 *   v_min(a, b), v_max(a, b)                      a < b ? a : b, a > b ? a : b: b when equal or unordered, as minps does
 *   v_if_less(a, b, x, y)                         a < b ? x : y
 *   v_abs(v)
 *   v_pow2(n)                                     2^n for an integral n of -126 .. 127
 *   v_swap(v, d)                                  lane i takes lane i ^ d; d a constant power of two < VL
 *   v_sum16(parts)                                the tree of R2 over one set of 16 partial sums
 *   v_sum16_block(sums, stride)                   VL such trees at once: lane i = tree of sums[p*stride + i], p < VEC_PARTS
 *   TILE_ROWS, TILE_COLS                          a tile of so many products leaves registers for its operands
 *   ONE_COL_ROWS, TWO_COL_ROWS                    rows of a tile with one or two columns (TWO_COL_ROWS 0: no such tile);
 *                                                 16 rows, 8 KiB apart, would fight for one cache set
 *
 * NaNs stay NaNs; their sign and payload are the only bits that may differ between instruction sets. */
#ifndef KERNELS_VEC_VEC_H
#define KERNELS_VEC_VEC_H

#include <stddef.h>

enum { VEC_PARTS = 16 / VL };

/* Storage of a row that is read as floats. Always a constant, so the branches vanish. */
enum vec_kind { VEC_F32, VEC_F16, VEC_BF16 };

MC_INLINE size_t vec_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

MC_INLINE vf v_load_n(const float *p, size_t n)
{
    return n == VL ? v_load(p) : v_load_part(p, n);
}

MC_INLINE void v_store_n(float *p, vf v, size_t n)
{
    if (n == VL)
        v_store(p, v);
    else
        v_store_part(p, v, n);
}

/* Elements i .. i+VL-1 of a row. */
MC_INLINE vf v_load_kind(enum vec_kind kind, const void *row, size_t i)
{
    switch (kind) {
    case VEC_F16:
        return v_load_f16((const char *)row + 2 * i);
    case VEC_BF16:
        return v_load_bf16((const char *)row + 2 * i);
    default:
        return v_load((const float *)row + i);
    }
}

MC_INLINE vf v_load_kind_part(enum vec_kind kind, const void *row, size_t i, size_t n)
{
    switch (kind) {
    case VEC_F16:
        return v_load_f16_part((const char *)row + 2 * i, n);
    case VEC_BF16:
        return v_load_bf16_part((const char *)row + 2 * i, n);
    default:
        return v_load_part((const float *)row + i, n);
    }
}

MC_INLINE float v_max_all(vf v)
{
    float t[VL], m;
    v_store(t, v);
    m = t[0];
    for (int i = 1; i < VL; i++) m = t[i] > m ? t[i] : m;
    return m;
}

#endif
