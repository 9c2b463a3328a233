// Operands of the matrix product as packed blocks of words (micro_gemm.h): groups of kTileRows rows of op(A), panels of
// one register tile's width of op(B).
#pragma once

#include "kernels/cpu/isa/attention_tiles.h"

namespace triax::kernels::TRIAX_ISA {

/// Sizes of blocks for elements of type T.
template <class T>
struct GemmBlocks {
  using F = Format<T>;
  using C = typename F::C;
  using W = typename F::W;
  static constexpr int64_t kWidth = kTileVectors * kLanes<C>;                            ///< columns of a panel
  static constexpr int64_t kDepth = 2048 / static_cast<int64_t>(sizeof(typename F::E));  ///< k of a block
  static constexpr int64_t kWords = kDepth / F::kGroup;
  static constexpr int64_t kCols = 384;             ///< columns of a block of op(B): 768 KiB of any type
  static constexpr int64_t kRows = 16 * kTileRows;  ///< rows of a block of op(A)
  /// Words of a packed group of rows; packing may write two beyond its last.
  static constexpr int64_t group_size(int64_t words) { return words * kTileRows + 8; }
};

/// Word w of a run of n numbers that are `stride` apart; zero beyond the end.
template <class T>
TRIAX_INLINE typename Format<T>::W word_at(const T* run, int64_t stride, int64_t w, int64_t n) {
  if constexpr (Format<T>::kGroup == 1) {
    (void)n;
    return to_compute(run[w * stride]);
  } else {
    const uint32_t low = run[2 * w * stride].bits;
    const uint32_t high = 2 * w + 1 < n ? run[(2 * w + 1) * stride].bits : 0;
    return low | high << 16;
  }
}

/// Rows [row, row + count) of op(A), k in [depth, depth + k) -> one group [words][kTileRows]; missing rows are zero.
template <class T>
void pack_group(const GemmArgs& g, int64_t row, int64_t count, int64_t depth, int64_t k, typename Format<T>::W* to) {
  const int64_t words = words_of<T>(k);
  for (int64_t r = 0; r < kTileRows; ++r) {
    for (int64_t w = 0; w < words; ++w) {
      to[w * kTileRows + r] = {};
      if (r >= count) continue;
      const T* run = g.transpose_a ? row_of<T>(g.a, depth) + row + r : row_of<T>(g.a, row + r) + depth;
      to[w * kTileRows + r] = word_at<T>(run, g.transpose_a ? g.a.stride : 1, w, k);
    }
  }
}

/// One row of words of a group where A is [k, m]: kTileRows neighbours of one row, or of two rows interleaved. Reads 8
/// numbers of a row and writes 8 words at most; second may be null.
template <class T, class W>
TRIAX_INLINE void pack_across(const T* first, const T*, W* to) {
  for (int r = 0; r < kTileRows; ++r) to[r] = to_compute(first[r]);
}
#if defined(__AVX512BF16__)
template <>
TRIAX_INLINE void pack_across<Bf16, uint32_t>(const Bf16* first, const Bf16* second, uint32_t* to) {
  const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(first));
  const __m128i high = second == nullptr ? __m128i{} : _mm_loadu_si128(reinterpret_cast<const __m128i*>(second));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_unpacklo_epi16(low, high));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 4), _mm_unpackhi_epi16(low, high));
}
#endif

/// Rows [row, row + count) of op(A), k in [depth, depth + k) -> groups of group_size words.
template <class T>
void pack_rows_of_a(const GemmArgs& g, int64_t row, int64_t count, int64_t depth, int64_t k,
                    typename Format<T>::W* to) {
  const int64_t words = words_of<T>(k);
  const int64_t size = GemmBlocks<T>::group_size(words);
  constexpr int64_t kGroup = Format<T>::kGroup;
  // Reading across reaches two columns beyond a group: what would leave the matrix is packed one by one.
  const int64_t whole = g.transpose_a ? max_of(0, min_of(count, g.m - row - 2) / kTileRows) : 0;
  for (int64_t w = 0; w < words && whole > 0; ++w) {
    const T* first = row_of<T>(g.a, depth + w * kGroup) + row;
    const T* second = w * kGroup + kGroup <= k ? first + (kGroup - 1) * g.a.stride : nullptr;
    for (int64_t ahead = 0; ahead < kGroup; ++ahead) {
      prefetch_row(row_of<T>(g.a, min_of(depth + (w + kPrefetchRows) * kGroup + ahead, g.k - 1)) + row, count);
    }
    for (int64_t i = 0; i < whole; ++i) {
      pack_across<T, typename Format<T>::W>(first + i * kTileRows, second == nullptr ? nullptr : second + i * kTileRows,
                                            to + i * size + w * kTileRows);
    }
  }
  for (int64_t i = whole; i * kTileRows < count; ++i) {
    pack_group<T>(g, row + i * kTileRows, min_of(kTileRows, count - i * kTileRows), depth, k, to + i * size);
  }
}

/// Row(s) of B, [k, n], -> one row of words of a panel.
template <class T, class W>
TRIAX_INLINE void pack_row_of_b(const T* first, const T*, W* to) {
  using C = Compute<T>;
  for (int64_t c = 0; c < GemmBlocks<T>::kWidth; c += kLanes<C>) store(load(first + c), to + c);
}
#if defined(__AVX512BF16__)
template <>
TRIAX_INLINE void pack_row_of_b<Bf16, uint32_t>(const Bf16* first, const Bf16* second, uint32_t* to) {
  typedef uint16_t V __attribute__((vector_size(64)));
  for (int64_t c = 0; c < GemmBlocks<Bf16>::kWidth; c += 32) {
    V a, b{};
    memcpy(&a, first + c, sizeof(V));
    if (second != nullptr) memcpy(&b, second + c, sizeof(V));
    const V low = interleave_low(a, b);
    const V high = interleave_high(a, b);
    memcpy(to + c, &low, sizeof(V));
    memcpy(to + c + 16, &high, sizeof(V));
  }
}
#endif

/// Columns [col, col + cols) of op(B) = B, [k, n], k in [depth, depth + k) -> panels [words][kWidth]; missing columns
/// are zero. Row by row, as the memory lies.
template <class T>
void pack_straight(const GemmArgs& g, int64_t col, int64_t cols, int64_t depth, int64_t k, typename Format<T>::W* to) {
  using W = typename Format<T>::W;
  constexpr int64_t kWidth = GemmBlocks<T>::kWidth;
  constexpr int64_t kGroup = Format<T>::kGroup;
  const int64_t words = words_of<T>(k);
  T edge[2][kWidth];
  memset(edge, 0, sizeof(edge));
  for (int64_t w = 0; w < words; ++w) {
    const T* first = row_of<T>(g.b, depth + w * kGroup) + col;
    const T* second = kGroup == 2 && 2 * w + 1 < k ? first + g.b.stride : nullptr;
    for (int64_t ahead = 0; ahead < kGroup; ++ahead) {
      prefetch_row(row_of<T>(g.b, min_of(depth + (w + kPrefetchRows) * kGroup + ahead, g.k - 1)) + col, cols);
    }
    int64_t j = 0;
    for (; j + kWidth <= cols; j += kWidth) {
      pack_row_of_b<T, W>(first + j, second == nullptr ? nullptr : second + j, to + j * words + w * kWidth);
    }
    if (j == cols) continue;
    memcpy(edge[0], first + j, sizeof(T) * static_cast<size_t>(cols - j));
    if (second != nullptr) memcpy(edge[1], second + j, sizeof(T) * static_cast<size_t>(cols - j));
    pack_row_of_b<T, W>(edge[0], second == nullptr ? nullptr : edge[1], to + j * words + w * kWidth);
  }
}

/// One panel [col, col + count) of op(B) = B^T, [n, k].
template <class T>
void pack_transposed(const GemmArgs& g, int64_t col, int64_t count, int64_t depth, int64_t k,
                     typename Format<T>::W* to) {
  using C = Compute<T>;
  constexpr int64_t kWidth = GemmBlocks<T>::kWidth;
  constexpr int64_t kGroup = Format<T>::kGroup;
  constexpr int kN = kLanes<C>;
  const int64_t words = words_of<T>(k);
  for (int64_t c = 0; c < kWidth; c += kN) {
    for (int64_t w = 0; w < words; w += kN) {
      Vec<C> v[kN];
      for (int i = 0; i < kN; ++i) {
        v[i] = Vec<C>{};
        if (c + i >= count) continue;
        const T* run = row_of<T>(g.b, col + c + i) + depth + w * kGroup;
        const int64_t rest = k - w * kGroup;
        if constexpr (kGroup == 1) {
          v[i] = rest >= kN ? load(run) : load(run, static_cast<int>(rest));
        } else {  // words are only moved
          memcpy(&v[i], run, sizeof(T) * static_cast<size_t>(min_of(rest, kN * kGroup)));
        }
      }
      transpose_square<C>(v);
      for (int i = 0; i < kN && w + i < words; ++i) store(v[i], reinterpret_cast<C*>(to) + (w + i) * kWidth + c);
    }
  }
}

template <class T>
void pack_cols_of_b(const GemmArgs& g, int64_t col, int64_t cols, int64_t depth, int64_t k, typename Format<T>::W* to) {
  constexpr int64_t kWidth = GemmBlocks<T>::kWidth;
  if (!g.transpose_b) {
    pack_straight<T>(g, col, cols, depth, k, to);
    return;
  }
  for (int64_t j = 0; j < cols; j += kWidth) {
    pack_transposed<T>(g, col + j, min_of(kWidth, cols - j), depth, k, to + j * words_of<T>(k));
  }
}

}  // namespace triax::kernels::TRIAX_ISA
