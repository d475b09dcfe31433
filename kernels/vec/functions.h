/* functions.h - exp, sigmoid and silu: one sequence of float operations for every lane, tail and instruction set (rule R4).
 *
 * exp: x = n ln2 + r with |r| <= ln2/2, e^x = 2^n e^r. ln2 is split so that n * LN2_HIGH and x - n * LN2_HIGH are exact. e^r is
 * 1 + (r + r^2 q(r)), q of degree 4, fitted so that the relative error of e^r is least (2^-28.2, our own fit; the coefficients
 * are rounded to float). 2^n is applied in two factors, both normal numbers: the first product is exact, the second rounds
 * once, also into subnormals and infinity. Largest error over all floats: 1.02 ulp (0.75 in subnormals); silu 2.3 ulp. */
#ifndef KERNELS_VEC_FUNCTIONS_H
#define KERNELS_VEC_FUNCTIONS_H

#define EXP_MAX  89.0f     /* e^89 rounds to infinity */
#define EXP_MIN  (-104.0f) /* e^-104 rounds to 0 */
#define LOG2_E   0x1.715476p+0f
#define LN2_HIGH 0x1.63p-1f
#define LN2_LOW  (-0x1.bd0106p-13f)

/* -inf -> 0, large -> inf, NaN -> NaN. */
MC_INLINE vf v_exp(vf x)
{
    const vf round = v_set1(0x1.8p23f);                    /* adding it leaves the nearest integer in the low bits */
    x = v_max(v_set1(EXP_MIN), v_min(v_set1(EXP_MAX), x)); /* a NaN passes: it is the second operand */
    const vf n = v_sub(v_fma(x, v_set1(LOG2_E), round), round);
    const vf r = v_fma(n, v_set1(-LN2_LOW), v_fma(n, v_set1(-LN2_HIGH), x));
    vf q = v_set1(0x1.6a2352p-10f);
    q = v_fma(q, r, v_set1(0x1.123a6cp-7f));
    q = v_fma(q, r, v_set1(0x1.5558f4p-5f));
    q = v_fma(q, r, v_set1(0x1.555490p-3f));
    q = v_fma(q, r, v_set1(0x1.fffffcp-2f));
    const vf e = v_add(v_fma(q, v_mul(r, r), r), v_set1(1.0f));
    const vf half = v_sub(v_fma(n, v_set1(0.5f), round), round);
    return v_mul(v_mul(e, v_pow2(half)), v_pow2(v_sub(n, half)));
}

/* 1 / (1 + exp(-x)). Below -88.73 it is 0 (true value under 2.9e-39). */
MC_INLINE vf v_sigmoid(vf x)
{
    const vf one = v_set1(1.0f);
    return v_div(one, v_add(one, v_exp(v_sub(v_zero(), x))));
}

MC_INLINE vf v_silu(vf x)
{
    return v_mul(x, v_sigmoid(x));
}

#endif
