// Small matrix products on packed tiles, for attention: C (+)= A B with B and C in rows of whole vectors. Each element
// of C is summed in order of k, so it does not depend on the tile it falls in.
#pragma once

#include "kernels/cpu/isa/math.h"

namespace triax::kernels::TRIAX_ISA {

/// Which part of the product of a tile on the diagonal is needed.
enum class Part {
  All,
  LowerC,  ///< only columns j <= i of C
  LowerA,  ///< A(i, k) is zero for k > i
  UpperA,  ///< A(i, k) is zero for k < i
};

/// Largest register tile: rows x vectors.
inline constexpr int kTileRows = 6;
inline constexpr int kTileVectors = kVectorBytes == 64 ? 4 : 2;

template <class C>
struct TileProduct {
  int64_t m, n, k;  ///< n is a multiple of kLanes<C>
  const C* a;       ///< A(i, k) = a[i * a_row + k * a_col]
  int64_t a_row, a_col;
  const C* b;  ///< B(k, j) = b[k * ldb + j]
  int64_t ldb;
  C* c;  ///< C(i, j) = c[i * ldc + j]
  int64_t ldc;
};

template <class C, int kRows, int kVectors, bool kAccumulate>
TRIAX_INLINE void register_tile(const TileProduct<C>& t, int64_t i, int64_t j, int64_t k_begin, int64_t k_end) {
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
  const C* a = t.a + i * t.a_row + k_begin * t.a_col;
  const C* b = t.b + k_begin * t.ldb + j;
  for (int64_t k = k_begin; k < k_end; ++k, a += t.a_col, b += t.ldb) {
    Vec<C> bv[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) bv[v] = load(b + v * kWidth);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vec<C> av = splat(a[r * t.a_row]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[r][v] = mul_add(av, bv[v], sum[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) store(sum[r][v], c + r * t.ldc + v * kWidth);
  }
}

/// Rows [i, i + kRows) of C.
template <class C, int kRows, bool kAccumulate>
TRIAX_INLINE void row_group(const TileProduct<C>& t, Part part, int64_t i) {
  constexpr int kWidth = kLanes<C>;
  const int64_t n = part == Part::LowerC ? min_of(t.n, round_up(i + kRows, kWidth)) : t.n;
  const int64_t k_begin = part == Part::UpperA ? min_of(i, t.k) : 0;
  const int64_t k_end = part == Part::LowerA ? min_of(i + kRows, t.k) : t.k;
  int64_t j = 0;
  for (; j + kTileVectors * kWidth <= n; j += kTileVectors * kWidth) {
    register_tile<C, kRows, kTileVectors, kAccumulate>(t, i, j, k_begin, k_end);
  }
  if constexpr (kTileVectors == 4) {
    const int64_t rest = (n - j) / kWidth;
    if (rest == 3) register_tile<C, kRows, 3, kAccumulate>(t, i, j, k_begin, k_end);
    if (rest == 2) register_tile<C, kRows, 2, kAccumulate>(t, i, j, k_begin, k_end);
    if (rest == 1) register_tile<C, kRows, 1, kAccumulate>(t, i, j, k_begin, k_end);
  } else {
    if (j < n) register_tile<C, kRows, 1, kAccumulate>(t, i, j, k_begin, k_end);
  }
}

template <class C, bool kAccumulate>
void multiply_tile(const TileProduct<C>& t, Part part) {
  int64_t i = 0;
  for (; i + kTileRows <= t.m; i += kTileRows) row_group<C, kTileRows, kAccumulate>(t, part, i);
  switch (t.m - i) {
    case 5:
      row_group<C, 5, kAccumulate>(t, part, i);
      break;
    case 4:
      row_group<C, 4, kAccumulate>(t, part, i);
      break;
    case 3:
      row_group<C, 3, kAccumulate>(t, part, i);
      break;
    case 2:
      row_group<C, 2, kAccumulate>(t, part, i);
      break;
    case 1:
      row_group<C, 1, kAccumulate>(t, part, i);
      break;
    default:
      break;
  }
}

}  // namespace triax::kernels::TRIAX_ISA
