// Arithmetic on vectors and pairs of them: fused multiply-add, reductions over lanes in a fixed order, exp, sigmoid.
// The build does not contract products into sums by itself (-ffp-contract=off), so that an element's bits do not depend
// on the loop it stands in.
#pragma once

#include "kernels/cpu/isa/runs.h"

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
template <class X, class Y, class Z>
requires(IsPair<X>::value || IsPair<Y>::value || IsPair<Z>::value) TRIAX_INLINE auto mul_add(X x, Y y, Z z) {
  using P = decltype(pair_type(x, y) + z);
  return P{mul_add(first_of(x), first_of(y), first_of(z)), mul_add(second_of(x), second_of(y), second_of(z))};
}

/// The larger of the two; the second when either is NaN.
TRIAX_INLINE Vec<float> larger(Vec<float> a, Vec<float> b) {
#if defined(__AVX512F__)
  return _mm512_max_ps(a, b);
#elif defined(__AVX2__)
  return _mm256_max_ps(a, b);
#elif defined(__SSE2__)
  return _mm_max_ps(a, b);
#else
  return a > b ? a : b;
#endif
}
TRIAX_INLINE Vec<double> larger(Vec<double> a, Vec<double> b) {
#if defined(__AVX512F__)
  return _mm512_max_pd(a, b);
#else
  return a > b ? a : b;
#endif
}
/// The smaller of the two; the second when either is NaN.
TRIAX_INLINE Vec<float> smaller(Vec<float> a, Vec<float> b) {
#if defined(__AVX512F__)
  return _mm512_min_ps(a, b);
#elif defined(__AVX2__)
  return _mm256_min_ps(a, b);
#elif defined(__SSE2__)
  return _mm_min_ps(a, b);
#else
  return a < b ? a : b;
#endif
}
TRIAX_INLINE Vec<double> smaller(Vec<double> a, Vec<double> b) {
#if defined(__AVX512F__)
  return _mm512_min_pd(a, b);
#else
  return a < b ? a : b;
#endif
}
/// NaN stays NaN.
template <class C>
TRIAX_INLINE Vec<C> at_least(Vec<C> x, C low) {
  return larger(splat(low), x);
}
template <class C>
TRIAX_INLINE Pair<C> at_least(Pair<C> x, C low) {
  return {at_least<C>(x.a, low), at_least<C>(x.b, low)};
}
template <class C>
TRIAX_INLINE Vec<C> clamp_to(Vec<C> x, C low, C high) {
  return larger(splat(low), smaller(splat(high), x));
}
template <class C>
TRIAX_INLINE Pair<C> clamp_to(Pair<C> x, C low, C high) {
  return {clamp_to<C>(x.a, low, high), clamp_to<C>(x.b, low, high)};
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
template <class C>
TRIAX_INLINE Pair<C> sqrt_of(Pair<C> p) {
  return {sqrt_of(p.a), sqrt_of(p.b)};
}
TRIAX_INLINE float sqrt_of(float x) { return __builtin_sqrtf(x); }
TRIAX_INLINE double sqrt_of(double x) { return __builtin_sqrt(x); }
TRIAX_INLINE float log_of(float x) { return __builtin_logf(x); }
TRIAX_INLINE double log_of(double x) { return __builtin_log(x); }

// ---- Sums and maxima over a run: a Pair collects, single vectors go to its first half
// ---------------------------------
template <class C>
TRIAX_INLINE void collect(Pair<C>& sum, Pair<C> v) {
  sum.a += v.a;
  sum.b += v.b;
}
template <class C>
TRIAX_INLINE void collect(Pair<C>& sum, Vec<C> v) {
  sum.a += v;
}
/// sum += x * y.
template <class C>
TRIAX_INLINE void collect_product(Pair<C>& sum, Pair<C> x, Pair<C> y) {
  sum.a = mul_add(x.a, y.a, sum.a);
  sum.b = mul_add(x.b, y.b, sum.b);
}
template <class C>
TRIAX_INLINE void collect_product(Pair<C>& sum, Vec<C> x, Vec<C> y) {
  sum.a = mul_add(x, y, sum.a);
}
template <class C>
TRIAX_INLINE void collect_largest(Pair<C>& best, Pair<C> v) {
  best.a = larger(v.a, best.a);
  best.b = larger(v.b, best.b);
}
template <class C>
TRIAX_INLINE void collect_largest(Pair<C>& best, Vec<C> v) {
  best.a = larger(v, best.a);
}

/// Sum and maximum over the lanes, halving: the order is the same for every row.
template <class C>
TRIAX_INLINE C sum_of_lanes(Vec<C> v) {
#if defined(__AVX512F__)
  if constexpr (sizeof(C) == 4) {
    return _mm512_reduce_add_ps(v);
  } else {
    return _mm512_reduce_add_pd(v);
  }
#else
  C t[kLanes<C>];
  store(v, t);
  for (int width = kLanes<C> / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) t[i] += t[i + width];
  }
  return t[0];
#endif
}
template <class C>
TRIAX_INLINE C sum_of_lanes(Pair<C> p) {
  return sum_of_lanes<C>(p.a + p.b);
}
template <class C>
TRIAX_INLINE C largest_lane(Pair<C> p) {
  const Vec<C> v = larger(p.a, p.b);
#if defined(__AVX512F__)
  if constexpr (sizeof(C) == 4) {
    return _mm512_reduce_max_ps(v);
  } else {
    return _mm512_reduce_max_pd(v);
  }
#else
  C t[kLanes<C>];
  store(v, t);
  for (int width = kLanes<C> / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) t[i] = t[i] > t[i + width] ? t[i] : t[i + width];
  }
  return t[0];
#endif
}

// ---- exp ----------------------------------------------------------------------------------------------------------
/// p * 2^n; `shifted` is n + 1.5 * 2^23, whose low bits are n. In two steps, so that subnormal results and overflow
/// come out right.
TRIAX_INLINE Vec<float> scale_by_power(Vec<float> p, Vec<float> n, Vec<float> shifted) {
#if defined(__AVX512F__)
  (void)shifted;
  return _mm512_scalef_ps(p, n);
#else
  (void)n;
  using I = Lanes<float>::I;
  const I exponent = bit_cast_to<I>(shifted) - bit_cast_to<I>(splat(12582912.0f));
  const I half = exponent >> 1;
  const I scale1 = (half + 127) << 23;
  const I scale2 = (exponent - half + 127) << 23;
  return p * bit_cast_to<Vec<float> >(scale1) * bit_cast_to<Vec<float> >(scale2);
#endif
}
TRIAX_INLINE Pair<float> scale_by_power(Pair<float> p, Pair<float> n, Pair<float> shifted) {
  return {scale_by_power(p.a, n.a, shifted.a), scale_by_power(p.b, n.b, shifted.b)};
}

/// e^x within 1 ulp for floats: x = n ln 2 + r, |r| <= ln 2 / 2, a minimax polynomial of degree 6 (relative error
/// below 2^-28), times 2^n. NaN stays NaN.
template <class V>
TRIAX_INLINE V exp_single(V x) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  x = clamp_to<float>(x, -104.0f, 89.0f);
  const V shifted = mul_add(x, splat(1.44269504088896341f), splat(kMagic));
  const V n = shifted - kMagic;
  V r = mul_add(n, splat(-0.693359375f), x);  // the product is exact: 9 bits of mantissa
  r = mul_add(n, splat(2.12194440e-4f), r);
  V p = mul_add(r, splat(0.0013814539f), splat(0.008368745f));
  p = mul_add(p, r, splat(0.04166839f));
  p = mul_add(p, r, splat(0.16666521f));
  p = mul_add(p, r, splat(0.49999994f));
  p = mul_add(p, r, splat(1.0f));
  p = mul_add(p, r, splat(1.0f));
  return scale_by_power(p, n, shifted);
}
TRIAX_INLINE Vec<float> exp_of(Vec<float> x) { return exp_single(x); }
TRIAX_INLINE Pair<float> exp_of(Pair<float> x) { return exp_single(x); }
/// The C library's, below 1 ulp.
TRIAX_INLINE Vec<double> exp_of(Vec<double> x) {
  for (int i = 0; i < kLanes<double>; ++i) x[i] = __builtin_exp(x[i]);
  return x;
}
TRIAX_INLINE Pair<double> exp_of(Pair<double> x) { return {exp_of(x.a), exp_of(x.b)}; }

/// 1 / (1 + e^-x). Its smallest value for floats is that of x = -87.
TRIAX_INLINE Vec<double> sigmoid_of(Vec<double> x) { return 1.0 / (1.0 + exp_of(-x)); }
TRIAX_INLINE Pair<double> sigmoid_of(Pair<double> x) { return {sigmoid_of(x.a), sigmoid_of(x.b)}; }
/// 1 / x for 1 <= x < 2^126: an estimate of 14 bits and one Newton step, within 2 ulp; division has a third of the
/// speed.
TRIAX_INLINE Vec<float> inverse_of(Vec<float> x) {
#if defined(__AVX512F__)
  const Vec<float> estimate = _mm512_rcp14_ps(x);
  return mul_add(estimate, _mm512_fnmadd_ps(x, estimate, splat(1.0f)), estimate);
#else
  return 1.0f / x;
#endif
}
TRIAX_INLINE Pair<float> inverse_of(Pair<float> x) { return {inverse_of(x.a), inverse_of(x.b)}; }
TRIAX_INLINE Vec<float> sigmoid_of(Vec<float> x) { return inverse_of(1.0f + exp_of(-at_least<float>(x, -87.0f))); }
TRIAX_INLINE Pair<float> sigmoid_of(Pair<float> x) { return inverse_of(1.0f + exp_of(-at_least<float>(x, -87.0f))); }

}  // namespace triax::kernels::TRIAX_ISA
