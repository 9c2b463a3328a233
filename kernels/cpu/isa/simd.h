// Vectors of the instruction set this file is compiled for, as GCC/Clang vector types, and loads and stores that
// convert from and to storage types. Everything lives in the namespace TRIAX_ISA, so the copies never meet.
// No std:: inline functions here or in the .cc files: the linker could keep the copy with the widest instructions.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define TRIAX_INLINE inline __attribute__((always_inline))

namespace triax::kernels::TRIAX_ISA {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif

/// Storage of the 16-bit types.
struct Bf16 {
  uint16_t bits;
};
struct Fp16 {
  uint16_t bits;
};

template <class C>
struct Lanes;
template <>
struct Lanes<float> {
  typedef float V __attribute__((vector_size(kVectorBytes)));
  typedef int32_t I __attribute__((vector_size(kVectorBytes)));
  typedef uint32_t U __attribute__((vector_size(kVectorBytes)));
  typedef uint16_t Half __attribute__((vector_size(kVectorBytes / 2)));
};
template <>
struct Lanes<double> {
  typedef double V __attribute__((vector_size(kVectorBytes)));
  typedef int64_t I __attribute__((vector_size(kVectorBytes)));
  typedef uint64_t U __attribute__((vector_size(kVectorBytes)));
};
template <class C>
using Vec = typename Lanes<C>::V;
template <class C>
inline constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(C));

/// Arithmetic type of a storage type.
template <class T>
struct ComputeOf {
  using type = float;
};
template <>
struct ComputeOf<double> {
  using type = double;
};
template <class T>
using Compute = typename ComputeOf<T>::type;

template <class To, class From>
TRIAX_INLINE To bit_cast_to(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}

template <class C>
TRIAX_INLINE Vec<C> splat(C value) {
  return value - Vec<C>{};  // value + 0 would have to turn -0 into 0
}

/// The lanes of a and b taken in turn, from lane `kFirst` of both on: a0 b0 a1 b1 ...
template <int kFirst, class V, int... kLane>
TRIAX_INLINE V interleave(V a, V b, std::integer_sequence<int, kLane...>) {
  constexpr int kN = sizeof...(kLane);
  return __builtin_shufflevector(a, b, (kFirst + kLane / 2 + (kLane % 2) * kN)...);
}
template <class V>
inline constexpr int kLanesOf = static_cast<int>(sizeof(V) / sizeof(V{}[0]));
template <class V>
TRIAX_INLINE V interleave_low(V a, V b) {
  return interleave<0>(a, b, std::make_integer_sequence<int, kLanesOf<V>>{});
}
template <class V>
TRIAX_INLINE V interleave_high(V a, V b) {
  return interleave<kLanesOf<V> / 2>(a, b, std::make_integer_sequence<int, kLanesOf<V>>{});
}

// ---- Single values ------------------------------------------------------------------------------------------------
TRIAX_INLINE double to_compute(double x) { return x; }
TRIAX_INLINE float to_compute(float x) { return x; }
TRIAX_INLINE float to_compute(Bf16 x) { return bit_cast_to<float>(static_cast<uint32_t>(x.bits) << 16); }
TRIAX_INLINE float to_compute(Fp16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  const uint32_t magnitude = x.bits & 0x7fffu;
  // Normal numbers: move the mantissa and re-bias; the rest: scale a float made of the mantissa, which is exact.
  const uint32_t normal = (magnitude << 13) + (112u << 23);
  const uint32_t tiny = bit_cast_to<uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
  const uint32_t special = (magnitude << 13) | 0x7f800000u;
  const uint32_t u = magnitude < 0x400u ? tiny : (magnitude >= 0x7c00u ? special : normal);
  return bit_cast_to<float>(u | sign);
}
TRIAX_INLINE void from_compute(double x, double* p) { *p = x; }
TRIAX_INLINE void from_compute(float x, float* p) { *p = x; }
TRIAX_INLINE void from_compute(float x, Bf16* p) {
  const uint32_t u = bit_cast_to<uint32_t>(x);
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  p->bits = static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : rounded);
}
TRIAX_INLINE void from_compute(float x, Fp16* p) {
  const uint32_t u = bit_cast_to<uint32_t>(x);
  const uint32_t sign = (u >> 16) & 0x8000u;
  const uint32_t magnitude = u & 0x7fffffffu;
  const uint32_t special = 0x7c00u | (magnitude > 0x7f800000u ? 0x200u : 0u);
  // Adding 0.5 makes the FPU round at the last bit of a subnormal half.
  const uint32_t tiny = bit_cast_to<uint32_t>(bit_cast_to<float>(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const uint32_t finite = magnitude < 0x38800000u ? tiny : normal;
  p->bits = static_cast<uint16_t>(sign | (magnitude >= 0x477ff000u ? special : finite));
}

// ---- Whole vectors ------------------------------------------------------------------------------------------------
TRIAX_INLINE Vec<float> load(const float* p) {
  Vec<float> v;
  memcpy(&v, p, sizeof(v));
  return v;
}
TRIAX_INLINE Vec<double> load(const double* p) {
  Vec<double> v;
  memcpy(&v, p, sizeof(v));
  return v;
}
/// bf16: by hand where GCC 12's own conversion of short vectors is slow.
TRIAX_INLINE Vec<float> load(const Bf16* p) {
#if defined(__AVX512F__)
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
#elif defined(__AVX2__)
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
#elif defined(__SSE2__)
  const __m128i words = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), words));
#else
  Lanes<float>::Half h;
  memcpy(&h, p, sizeof(h));
  return bit_cast_to<Vec<float>>(__builtin_convertvector(h, Lanes<float>::U) << 16);
#endif
}
TRIAX_INLINE Vec<float> load(const Fp16* p) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(__F16C__)
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
  float f[kLanes<float>];
  for (int i = 0; i < kLanes<float>; ++i) f[i] = to_compute(p[i]);
  return load(f);
#endif
}
TRIAX_INLINE void store(Vec<float> v, float* p) { memcpy(p, &v, sizeof(v)); }
TRIAX_INLINE void store(Vec<double> v, double* p) { memcpy(p, &v, sizeof(v)); }
TRIAX_INLINE void store(Vec<float> v, Bf16* p) {
#if defined(__AVX512BF16__)  // subnormal values become zero, all others are rounded as below
  const __m256bh h = _mm512_cvtneps_pbh(v);
  memcpy(p, &h, sizeof(h));
#else
  using U = Lanes<float>::U;
  const U u = bit_cast_to<U>(v);
  const U rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const U nan = (u >> 16) | 0x40u;
  const U bits = (v == v) ? rounded : nan;
#if defined(__AVX512F__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(bits)));
#elif defined(__AVX2__)
  const __m256i packed = _mm256_packus_epi32(reinterpret_cast<__m256i>(bits), reinterpret_cast<__m256i>(bits));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08)));
#elif defined(__SSE2__)
  const __m128i low = _mm_srai_epi32(_mm_slli_epi32(reinterpret_cast<__m128i>(bits), 16), 16);  // for signed packing
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi32(low, low));
#else
  const Lanes<float>::Half h = __builtin_convertvector(bits, Lanes<float>::Half);
  memcpy(p, &h, sizeof(h));
#endif
#endif
}
TRIAX_INLINE void store(Vec<float> v, Fp16* p) {
#if defined(__AVX512F__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__F16C__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
  for (int i = 0; i < kLanes<float>; ++i) from_compute(v[i], p + i);
#endif
}

/// Row r of a view.
template <class T, class V>
TRIAX_INLINE T* row_of(const V& view, int64_t r) {
  return static_cast<T*>(view.data) + r * view.stride;
}
TRIAX_INLINE int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }
TRIAX_INLINE int64_t max_of(int64_t a, int64_t b) { return a > b ? a : b; }
TRIAX_INLINE int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

}  // namespace triax::kernels::TRIAX_ISA
