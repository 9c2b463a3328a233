// Small matrix products on packed tiles, for attention: C (+)= A B with B and C in rows of whole vectors. The operands
// are words: numbers of the compute type, or pairs of bf16 that are neighbours along k. Each element of C is summed in
// order of k, so it does not depend on the tile it falls in.
#pragma once

#include "kernels/cpu/isa/math.h"

namespace triax::kernels::TRIAX_ISA {

/// Which part of the product of a tile on the diagonal is needed. k counts numbers, not words.
enum class Part {
  All,
  LowerC,  ///< only columns j <= i of C
  LowerA,  ///< A(i, k) is zero for k > i
  UpperA,  ///< A(i, k) is zero for k < i
};

/// Largest register tile: rows x vectors.
inline constexpr int kTileRows = 6;
inline constexpr int kTileVectors = kVectorBytes == 64 ? 4 : 2;

template <class C, class W>
struct TileProduct {
  int64_t m, n, k;  ///< n is a multiple of kLanes<C>; k counts words
  const W* a;       ///< A(i, k) = a[i * a_row + k * a_col]
  int64_t a_row, a_col;
  const W* b;  ///< B(k, j) = b[k * ldb + j]
  int64_t ldb;
  C* c;  ///< C(i, j) = c[i * ldc + j]
  int64_t ldc;
};

/// A vector of words, and what a product with them is. kGroup: numbers in a word.
template <class W>
struct WordVector {
  static constexpr int kGroup = 1;
  using V = Vec<W>;
  static TRIAX_INLINE V load_from(const W* p) { return load(p); }
  static TRIAX_INLINE V broadcast(const W* p) { return splat(*p); }
  static TRIAX_INLINE Vec<W> multiply_add(V a, V b, Vec<W> sum) { return mul_add(a, b, sum); }
};
#if defined(__AVX512BF16__)
template <>
struct WordVector<uint32_t> {
  static constexpr int kGroup = 2;
  using V = __m512i;
  static TRIAX_INLINE V load_from(const uint32_t* p) { return _mm512_loadu_si512(p); }
  static TRIAX_INLINE V broadcast(const uint32_t* p) {
    uint32_t word;
    memcpy(&word, p, sizeof(word));
    return _mm512_set1_epi32(static_cast<int>(word));
  }
  static TRIAX_INLINE Vec<float> multiply_add(V a, V b, Vec<float> sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
};
#endif

template <class C, class W, int kRows, int kVectors, bool kAccumulate>
TRIAX_INLINE void register_tile(const TileProduct<C, W>& t, int64_t i, int64_t j, int64_t k_begin, int64_t k_end) {
  using Words = WordVector<W>;
  constexpr int kWidth = kLanes<C>;
  Vec<C> sum[kRows][kVectors];
  C* c = t.c + i * t.ldc + j;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = kAccumulate ? load(c + r * t.ldc + v * kWidth) : Vec<C>{};
    }
  }
  const W* a = t.a + i * t.a_row + k_begin * t.a_col;
  const W* b = t.b + k_begin * t.ldb + j;
  for (int64_t k = k_begin; k < k_end; ++k, a += t.a_col, b += t.ldb) {
    typename Words::V bv[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) bv[v] = Words::load_from(b + v * kWidth);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const typename Words::V av = Words::broadcast(a + r * t.a_row);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[r][v] = Words::multiply_add(av, bv[v], sum[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) store(sum[r][v], c + r * t.ldc + v * kWidth);
  }
}

/// Rows [i, i + kRows) of C.
template <class C, class W, int kRows, bool kAccumulate>
TRIAX_INLINE void row_group(const TileProduct<C, W>& t, Part part, int64_t i) {
  constexpr int kWidth = kLanes<C>;
  constexpr int kGroup = WordVector<W>::kGroup;
  const int64_t n = part == Part::LowerC ? min_of(t.n, round_up(i + kRows, kWidth)) : t.n;
  const int64_t k_begin = part == Part::UpperA ? min_of(i / kGroup, t.k) : 0;
  const int64_t k_end = part == Part::LowerA ? min_of((i + kRows + kGroup - 1) / kGroup, t.k) : t.k;
  int64_t j = 0;
  for (; j + kTileVectors * kWidth <= n; j += kTileVectors * kWidth) {
    register_tile<C, W, kRows, kTileVectors, kAccumulate>(t, i, j, k_begin, k_end);
  }
  if constexpr (kTileVectors == 4) {
    const int64_t rest = (n - j) / kWidth;
    if (rest == 3) register_tile<C, W, kRows, 3, kAccumulate>(t, i, j, k_begin, k_end);
    if (rest == 2) register_tile<C, W, kRows, 2, kAccumulate>(t, i, j, k_begin, k_end);
    if (rest == 1) register_tile<C, W, kRows, 1, kAccumulate>(t, i, j, k_begin, k_end);
  } else {
    if (j < n) register_tile<C, W, kRows, 1, kAccumulate>(t, i, j, k_begin, k_end);
  }
}

template <bool kAccumulate, class C, class W>
void multiply_tile(const TileProduct<C, W>& t, Part part) {
  int64_t i = 0;
  for (; i + kTileRows <= t.m; i += kTileRows) row_group<C, W, kTileRows, kAccumulate>(t, part, i);
  switch (t.m - i) {
    case 5:
      row_group<C, W, 5, kAccumulate>(t, part, i);
      break;
    case 4:
      row_group<C, W, 4, kAccumulate>(t, part, i);
      break;
    case 3:
      row_group<C, W, 3, kAccumulate>(t, part, i);
      break;
    case 2:
      row_group<C, W, 2, kAccumulate>(t, part, i);
      break;
    case 1:
      row_group<C, W, 1, kAccumulate>(t, part, i);
      break;
    default:
      break;
  }
}

}  // namespace triax::kernels::TRIAX_ISA
