#pragma once
// Elementary functions on sixteen lanes, with relative errors of one to three units in the last
// place. The polynomials are minimax fits (iterated weighted least squares) on the ranges given
// here.

#include "backend/cpu/simd/vec_bits.h"

namespace bl::cpu::BL_ISA {

// 2^n for integers n in [−126, 127].
inline F32x16 power_of_two(I32x16 n) { return as_float(shift_left<23>(n + I32x16::splat(127))); }

// 2^x. Results are clamped to 2^−126 … 2^127; NaN gives some number.
inline F32x16 exp2(F32x16 x) {
  const F32x16 bounded = min(max(x, F32x16::splat(-126.0f)), F32x16::splat(127.0f));
  const I32x16 n = round_to_int(bounded);
  const F32x16 f = bounded - to_float(n);  // in [−0.5, 0.5]
  F32x16 p = F32x16::splat(1.547630002e-04f);
  p = fma(p, f, F32x16::splat(1.340026970e-03f));
  p = fma(p, f, F32x16::splat(9.618003890e-03f));
  p = fma(p, f, F32x16::splat(5.550327791e-02f));
  p = fma(p, f, F32x16::splat(2.402265135e-01f));
  p = fma(p, f, F32x16::splat(6.931472062e-01f));
  return fma(p, f, F32x16::splat(1.0f)) * power_of_two(n);
}

// e^x = 2^n · (1 + rest), |rest| < 0.42.
struct ExpParts {
  F32x16 power;  // 2^n
  F32x16 rest;   // e^r − 1, r = x − n · ln 2
};

inline ExpParts exp_parts(F32x16 x) {
  const F32x16 bounded = min(max(x, F32x16::splat(-87.0f)), F32x16::splat(88.0f));
  const I32x16 n = round_to_int(bounded * F32x16::splat(1.44269504f));
  const F32x16 whole = to_float(n);
  // ln 2 is split in two parts; the first has few bits, so that its product with n is exact.
  F32x16 r = fma(whole, F32x16::splat(-0.693359375f), bounded);
  r = fma(whole, F32x16::splat(2.12194440e-4f), r);
  F32x16 p = F32x16::splat(1.394643907e-03f);
  p = fma(p, r, F32x16::splat(8.366577299e-03f));
  p = fma(p, r, F32x16::splat(4.166628217e-02f));
  p = fma(p, r, F32x16::splat(1.666654304e-01f));
  p = fma(p, r, F32x16::splat(5.000000062e-01f));
  return {power_of_two(n), fma(p, r * r, r)};
}

// e^x. Results are clamped to e^−87 … e^88.
inline F32x16 exp(F32x16 x) {
  const ExpParts parts = exp_parts(x);
  return fma(parts.power, parts.rest, parts.power);
}

// e^x − 1, also accurate near zero.
inline F32x16 expm1(F32x16 x) {
  const ExpParts parts = exp_parts(x);
  return fma(parts.power, parts.rest, parts.power - F32x16::splat(1.0f));
}

inline F32x16 negate(F32x16 x) { return F32x16::splat(0.0f) - x; }

inline F32x16 sigmoid(F32x16 x) {
  const F32x16 one = F32x16::splat(1.0f);
  return one / (one + exp(negate(x)));
}

// tanh x = (e^2x − 1) / (e^2x + 1)
inline F32x16 tanh(F32x16 x) {
  const F32x16 bounded = min(max(x, F32x16::splat(-20.0f)), F32x16::splat(20.0f));
  const F32x16 t = expm1(bounded + bounded);
  return t / (t + F32x16::splat(2.0f));
}

// The normal distribution function, ½ · erfc(−x / √2). Uses erf for |x| < √2, otherwise erfc(z) =
// e^(−z²) · t · Q(t) with t = 1 / (1 + z/2) and Q fitted for z in [0.8, 9].
inline F32x16 normal_cdf(F32x16 x) {
  const F32x16 half = F32x16::splat(0.5f);
  const F32x16 one = F32x16::splat(1.0f);
  const F32x16 scaled = x * F32x16::splat(0.70710678f);
  const F32x16 square = scaled * scaled;
  F32x16 p = F32x16::splat(7.889122851e-05f);
  p = fma(p, square, F32x16::splat(-8.020842273e-04f));
  p = fma(p, square, F32x16::splat(5.189535451e-03f));
  p = fma(p, square, F32x16::splat(-2.685444465e-02f));
  p = fma(p, square, F32x16::splat(1.128360018e-01f));
  p = fma(p, square, F32x16::splat(-3.761262714e-01f));
  p = fma(p, square, F32x16::splat(1.128379166e+00f));
  const F32x16 inner = fma(half, p * scaled, half);

  const F32x16 z = min(max(scaled, negate(scaled)), F32x16::splat(9.0f));
  const F32x16 t = one / fma(half, z, one);
  F32x16 q = F32x16::splat(-5.692970897e-02f);
  q = fma(q, t, F32x16::splat(2.828764226e-01f));
  q = fma(q, t, F32x16::splat(-4.949171222e-01f));
  q = fma(q, t, F32x16::splat(2.943152044e-01f));
  q = fma(q, t, F32x16::splat(-4.038474883e-02f));
  q = fma(q, t, F32x16::splat(2.088823594e-01f));
  q = fma(q, t, F32x16::splat(2.415569923e-01f));
  q = fma(q, t, F32x16::splat(2.825762301e-01f));
  q = fma(q, t, F32x16::splat(2.820758820e-01f));
  const F32x16 tail = half * exp(negate(z * z)) * t * q;
  const F32x16 outer = select_less(x, F32x16::splat(0.0f), tail, one - tail);
  return select_less(z, one, inner, outer);
}

// Sine and cosine of angles up to 2^22.
struct SinCos {
  F32x16 sin, cos;
};

inline SinCos sin_cos(F32x16 x) {
  const I32x16 n = round_to_int(x * F32x16::splat(0.636619772f));
  const F32x16 whole = to_float(n);
  const F32x16 r = minus_quarter_turns(x, whole);
  const F32x16 z = r * r;
  F32x16 s = F32x16::splat(2.718311661e-06f);
  s = fma(s, z, F32x16::splat(-1.983933485e-04f));
  s = fma(s, z, F32x16::splat(8.333329386e-03f));
  s = fma(s, z, F32x16::splat(-1.666666664e-01f));
  const F32x16 sine = fma(s, z * r, r);
  F32x16 c = F32x16::splat(2.479952001e-05f);
  c = fma(c, z, F32x16::splat(-1.388888375e-03f));
  c = fma(c, z, F32x16::splat(4.166666662e-02f));
  const F32x16 cosine = fma(c, z * z, fma(z, F32x16::splat(-0.5f), F32x16::splat(1.0f)));
  // Odd quadrants swap the two. Quadrants 2 and 3 negate the sine, 1 and 2 the cosine.
  const F32x16 even = to_float(n & I32x16::splat(1));
  const F32x16 half = F32x16::splat(0.5f);
  const I32x16 one = I32x16::splat(1);
  const I32x16 two = I32x16::splat(2);
  return {select_less(even, half, sine, cosine) * to_float(one - (n & two)),
          select_less(even, half, cosine, sine) * to_float(one - ((n + one) & two))};
}

}  // namespace bl::cpu::BL_ISA
