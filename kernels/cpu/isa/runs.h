// Walks over runs of any length, two vectors at a time: the operations of the two stand side by side in the program, so
// that the latency of one hides behind the other (exp is a chain of a dozen). An element's bits do not depend on where
// in a run it stands, but the order of a sum over a run is that of Pair.
#pragma once

#include "kernels/cpu/isa/simd.h"

namespace triax::kernels::TRIAX_ISA {

/// Two vectors, acted on element by element.
template <class C>
struct Pair {
  Vec<C> a{}, b{};
};

template <class X>
struct IsPair {
  static constexpr bool value = false;
};
template <class C>
struct IsPair<Pair<C>> {
  static constexpr bool value = true;
  using type = C;
};

template <class C>
TRIAX_INLINE Vec<C> first_of(Pair<C> p) {
  return p.a;
}
template <class C>
TRIAX_INLINE Vec<C> second_of(Pair<C> p) {
  return p.b;
}
template <class X>
requires(!IsPair<X>::value) TRIAX_INLINE X first_of(X x) { return x; }
template <class X>
requires(!IsPair<X>::value) TRIAX_INLINE X second_of(X x) { return x; }

/// Arithmetic of pairs with pairs, vectors and single values.
#define TRIAX_PAIR_OPERATOR(op)                                                            \
  template <class X, class Y>                                                              \
  requires(IsPair<X>::value || IsPair<Y>::value) TRIAX_INLINE auto operator op(X x, Y y) { \
    using P = decltype(pair_type(x, y));                                                   \
    return P{first_of(x) op first_of(y), second_of(x) op second_of(y)};                    \
  }
template <class C, class Y>
Pair<C> pair_type(Pair<C>, Y);
template <class X, class C>
requires(!IsPair<X>::value) Pair<C> pair_type(X, Pair<C>);
TRIAX_PAIR_OPERATOR(+)
TRIAX_PAIR_OPERATOR(-)
TRIAX_PAIR_OPERATOR(*)
TRIAX_PAIR_OPERATOR(/)
#undef TRIAX_PAIR_OPERATOR
template <class C>
TRIAX_INLINE Pair<C> operator-(Pair<C> p) {
  return {-p.a, -p.b};
}

/// What a step covers: two vectors, one vector, or an int: that many elements.
struct Twice {};
struct Whole {};

/// Calls f(i, count) over [0, n); count is Twice, Whole, or the rest.
template <class C, class F>
TRIAX_INLINE void for_lanes(int64_t n, F&& f) {
  constexpr int64_t kWidth = kLanes<C>;
  int64_t i = 0;
  for (; i + 2 * kWidth <= n; i += 2 * kWidth) f(i, Twice{});
  if (i + kWidth <= n) {
    f(i, Whole{});
    i += kWidth;
  }
  if (i < n) f(i, static_cast<int>(n - i));
}

template <class T>
TRIAX_INLINE Pair<Compute<T>> load(const T* p, Twice) {
  return {load(p), load(p + kLanes<Compute<T>>)};
}
template <class T>
TRIAX_INLINE void store(Pair<Compute<T>> v, T* p, Twice) {
  store(v.a, p);
  store(v.b, p + kLanes<Compute<T>>);
}
#if defined(__AVX512BF16__)
TRIAX_INLINE void store(Pair<float> v, Bf16* p, Twice) {
  const __m512bh words = _mm512_cvtne2ps_pbh(v.b, v.a);
  memcpy(p, &words, sizeof(words));
}
#endif
template <class T>
TRIAX_INLINE Vec<Compute<T>> load(const T* p, Whole) {
  return load(p);
}
template <class T>
TRIAX_INLINE void store(Vec<Compute<T>> v, T* p, Whole) {
  store(v, p);
}
/// The missing lanes are zero.
template <class T>
TRIAX_INLINE Vec<Compute<T>> load(const T* p, int count) {
  T t[kLanes<Compute<T>>];
  memset(t, 0, sizeof(t));
  memcpy(t, p, static_cast<size_t>(count) * sizeof(T));
  return load(t);
}
template <class T>
TRIAX_INLINE void store(Vec<Compute<T>> v, T* p, int count) {
  T t[kLanes<Compute<T>>];
  store(v, t);
  memcpy(p, t, static_cast<size_t>(count) * sizeof(T));
}
/// As load and store with a count, for buffers padded to whole vectors.
template <class T>
TRIAX_INLINE Vec<Compute<T>> load_padded(const T* p, int) {
  return load(p);
}
template <class T, class N>
TRIAX_INLINE auto load_padded(const T* p, N n) {
  return load(p, n);
}
template <class V, class T>
TRIAX_INLINE void store_padded(V v, T* p, int) {
  store(v, p);
}
template <class V, class T, class N>
TRIAX_INLINE void store_padded(V v, T* p, N n) {
  store(v, p, n);
}

/// v with the lanes from `count` on replaced by `rest`.
template <class C, class V, class N>
TRIAX_INLINE V first_lanes(V v, N, C) {
  return v;
}
template <class C>
TRIAX_INLINE Vec<C> first_lanes(Vec<C> v, int count, C rest) {
  for (int i = 0; i < kLanes<C>; ++i) v[i] = i < count ? v[i] : rest;
  return v;
}

}  // namespace triax::kernels::TRIAX_ISA
