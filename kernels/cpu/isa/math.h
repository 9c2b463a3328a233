// Arithmetic on vectors: fused multiply-add, reductions over lanes in a fixed order, exp. The build does not contract
// products into sums by itself (-ffp-contract=off), so that an element's bits do not depend on where it stands.
#pragma once

#include "kernels/cpu/isa/simd.h"

namespace triax::kernels::TRIAX_ISA {

/// a * b + c, rounded once where the instruction set has it.
TRIAX_INLINE Vec<float> mul_add(Vec<float> a, Vec<float> b, Vec<float> c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}
TRIAX_INLINE Vec<double> mul_add(Vec<double> a, Vec<double> b, Vec<double> c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_pd(a, b, c);
#elif defined(__FMA__)
  return _mm256_fmadd_pd(a, b, c);
#else
  return a * b + c;
#endif
}

TRIAX_INLINE Vec<float> sqrt_of(Vec<float> v) {
#if defined(__AVX512F__)
  return _mm512_sqrt_ps(v);
#elif defined(__AVX2__)
  return _mm256_sqrt_ps(v);
#elif defined(__SSE2__)
  return _mm_sqrt_ps(v);
#else
  for (int i = 0; i < kLanes<float>; ++i) v[i] = __builtin_sqrtf(v[i]);
  return v;
#endif
}
TRIAX_INLINE Vec<double> sqrt_of(Vec<double> v) {
#if defined(__AVX512F__)
  return _mm512_sqrt_pd(v);
#elif defined(__AVX2__)
  return _mm256_sqrt_pd(v);
#elif defined(__SSE2__)
  return _mm_sqrt_pd(v);
#else
  for (int i = 0; i < kLanes<double>; ++i) v[i] = __builtin_sqrt(v[i]);
  return v;
#endif
}
TRIAX_INLINE float sqrt_of(float x) { return __builtin_sqrtf(x); }
TRIAX_INLINE double sqrt_of(double x) { return __builtin_sqrt(x); }
TRIAX_INLINE float log_of(float x) { return __builtin_logf(x); }
TRIAX_INLINE double log_of(double x) { return __builtin_log(x); }

/// Lane by lane; b where a is NaN, so a running maximum is the second argument's.
template <class C>
TRIAX_INLINE Vec<C> max_of_lanes(Vec<C> a, Vec<C> b) {
  return a > b ? a : b;
}

/// Sum and maximum over the lanes, halving: the order is the same for every row.
template <class C>
TRIAX_INLINE C sum_of_lanes(Vec<C> v) {
  C t[kLanes<C>];
  store(v, t);
  for (int width = kLanes<C> / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) t[i] += t[i + width];
  }
  return t[0];
}
template <class C>
TRIAX_INLINE C largest_lane(Vec<C> v) {
  C t[kLanes<C>];
  store(v, t);
  for (int width = kLanes<C> / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) t[i] = t[i] > t[i + width] ? t[i] : t[i + width];
  }
  return t[0];
}
#if defined(__AVX512F__)
template <>
TRIAX_INLINE float sum_of_lanes<float>(Vec<float> v) {
  return _mm512_reduce_add_ps(v);
}
template <>
TRIAX_INLINE double sum_of_lanes<double>(Vec<double> v) {
  return _mm512_reduce_add_pd(v);
}
template <>
TRIAX_INLINE float largest_lane<float>(Vec<float> v) {
  return _mm512_reduce_max_ps(v);
}
template <>
TRIAX_INLINE double largest_lane<double>(Vec<double> v) {
  return _mm512_reduce_max_pd(v);
}
#endif

/// e^x within 1 ulp: x = n ln 2 + r, |r| <= ln 2 / 2, Taylor series of degree 7 (its remainder is below 2^-27), then
/// times 2^n in two steps so that subnormal results and overflow come out right. NaN stays NaN.
TRIAX_INLINE Vec<float> exp_of(Vec<float> x) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const Vec<float> low = splat(-104.0f);
  const Vec<float> high = splat(89.0f);
  x = x < low ? low : x;
  x = x > high ? high : x;
  const Vec<float> z = mul_add(x, splat(1.44269504088896341f), splat(kMagic));
  const Vec<float> n = z - kMagic;
  Vec<float> r = mul_add(n, splat(-0.693359375f), x);  // the product is exact: 9 bits of mantissa
  r = mul_add(n, splat(2.12194440e-4f), r);
  Vec<float> p = splat(1.0f / 5040);
  p = mul_add(p, r, splat(1.0f / 720));
  p = mul_add(p, r, splat(1.0f / 120));
  p = mul_add(p, r, splat(1.0f / 24));
  p = mul_add(p, r, splat(1.0f / 6));
  p = mul_add(p, r, splat(0.5f));
  p = mul_add(p, r * r, r) + 1.0f;
#if defined(__AVX512F__)
  return _mm512_scalef_ps(p, n);
#else
  using I = Lanes<float>::I;
  const I exponent = bit_cast_to<I>(z) - bit_cast_to<I>(splat(kMagic));
  const I half = exponent >> 1;
  const I scale1 = (half + 127) << 23;
  const I scale2 = (exponent - half + 127) << 23;
  return p * bit_cast_to<Vec<float> >(scale1) * bit_cast_to<Vec<float> >(scale2);
#endif
}
/// The C library's, below 1 ulp.
TRIAX_INLINE Vec<double> exp_of(Vec<double> x) {
  for (int i = 0; i < kLanes<double>; ++i) x[i] = __builtin_exp(x[i]);
  return x;
}

/// 1 / (1 + e^-x).
template <class V>
TRIAX_INLINE V sigmoid_of(V x) {
  return 1 / (1 + exp_of(-x));
}

}  // namespace triax::kernels::TRIAX_ISA
