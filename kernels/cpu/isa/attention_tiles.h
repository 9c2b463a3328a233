// What the forward and the backward pass of attention share: how the rows of one head become operands of tile products.
#pragma once

#include "kernels/cpu/isa/micro_gemm.h"
#include "kernels/cpu/kernel_table.h"

namespace triax::kernels::TRIAX_ISA {

inline constexpr int64_t kBlock = kAttentionBlock;

/// Operands of storage type T: E is the element type of packed rows, W the word of a tile product.
template <class T>
struct Format {
  using C = Compute<T>;
  using E = C;
  using W = C;
  static constexpr int64_t kGroup = 1;
};
#if defined(__AVX512BF16__)
/// bf16 stays bf16: twice the speed of fp32, and probabilities rounded to bf16 as GPUs do.
template <>
struct Format<Bf16> {
  using C = float;
  using E = Bf16;
  using W = uint32_t;
  static constexpr int64_t kGroup = 2;
};
#endif

/// Sizes of one head.
template <class T>
struct HeadShape {
  using F = Format<T>;
  using C = typename F::C;
  int64_t dim;     ///< d
  int64_t padded;  ///< d in whole vectors of C: columns of accumulators and of grouped rows
  int64_t row;     ///< d in whole vectors of words, in elements: length of a packed row
  int64_t depth;   ///< words of a packed row that hold data
  int64_t rows;    ///< s in whole tiles
  explicit HeadShape(const AttentionArgs& a)
      : dim(a.dim),
        padded(round_up(a.dim, kLanes<C>)),
        row(round_up(a.dim, kLanes<C> * F::kGroup)),
        depth((a.dim + F::kGroup - 1) / F::kGroup),
        rows(round_up(a.seq, kBlock)) {}
};

/// Cuts scratch memory into arrays that begin on cache lines; with no memory it only counts.
class Carver {
 public:
  explicit Carver(void* data) : data_(static_cast<char*>(data)) {}
  template <class X>
  void take(X*& array, int64_t count) {
    array = data_ == nullptr ? nullptr : reinterpret_cast<X*>(data_ + used_);
    used_ += round_up(count * static_cast<int64_t>(sizeof(X)), 64);
  }
  int64_t used() const { return used_; }

 private:
  char* data_;
  int64_t used_ = 0;
};

/// Row `position` of sample i, columns of head j, of a [s * b, heads * d] matrix.
template <class T>
TRIAX_INLINE T* head_row(const View& view, const AttentionArgs& a, int64_t position, int64_t i, int64_t j) {
  return static_cast<T*>(view.data) + (position * a.batch + i) * view.stride + j * a.dim;
}

/// Rows of one head are far apart, which no hardware prefetcher follows.
inline constexpr int64_t kPrefetchRows = 8;
template <class T>
TRIAX_INLINE void prefetch_row(const T* row, int64_t cols) {
  for (int64_t c = 0; c < cols; c += 64 / static_cast<int64_t>(sizeof(T))) __builtin_prefetch(row + c);
}

/// Copies rows [begin, begin + count) of a head to packed rows of shape.row elements, the padding zero.
template <class T>
TRIAX_INLINE void pack_rows(const View& view, const AttentionArgs& a, const HeadShape<T>& shape, int64_t i, int64_t j,
                            int64_t begin, int64_t count, typename Format<T>::E* to) {
  using C = Compute<T>;
  for (int64_t r = begin; r < begin + count; ++r, to += shape.row) {
    const T* from = head_row<T>(view, a, r, i, j);
    prefetch_row(head_row<T>(view, a, min_of(r + kPrefetchRows, a.seq - 1), i, j), a.dim);
    for_lanes<C>(a.dim, [&](int64_t c, auto n) { store_padded(load(from + c, n), to + c, n); });
    for (int64_t c = shape.padded; c < shape.row; c += kLanes<C>) store(Vec<C>{}, to + c);
  }
}

/// Packed rows -> B operand whose k runs along the rows: words [count / kGroup][shape.padded].
template <class T>
TRIAX_INLINE void group_rows(const HeadShape<T>& shape, const typename Format<T>::E* rows, int64_t count,
                             typename Format<T>::W* to) {
  static_assert(Format<T>::kGroup == 1);
  if (to == rows) return;
  memcpy(to, rows, sizeof(*to) * static_cast<size_t>(count * shape.row));  // row == padded
}
#if defined(__AVX512BF16__)
template <>
TRIAX_INLINE void group_rows<Bf16>(const HeadShape<Bf16>& shape, const Bf16* rows, int64_t count, uint32_t* to) {
  typedef uint16_t V __attribute__((vector_size(64)));
  for (int64_t r = 0; r < count; r += 2, to += shape.padded) {
    for (int64_t c = 0; c < shape.row; c += 32) {
      V first, second{};
      memcpy(&first, rows + r * shape.row + c, sizeof(V));
      if (r + 1 < count) memcpy(&second, rows + (r + 1) * shape.row + c, sizeof(V));
      const V low = interleave_low(first, second);
      const V high = interleave_high(first, second);
      memcpy(to + c, &low, sizeof(V));
      if (c + 16 < shape.padded) memcpy(to + c + 16, &high, sizeof(V));
    }
  }
}
#endif

/// Transposes kLanes x kLanes elements held in vectors: each round interleaves the first half of the vectors with the
/// second, lane by lane.
template <class C>
TRIAX_INLINE void transpose_square(Vec<C> (&v)[kLanes<C>]) {
  constexpr int kN = kLanes<C>;
#pragma GCC unroll 4
  for (int round = 1; round < kN; round *= 2) {
    Vec<C> t[kN];
#pragma GCC unroll 8
    for (int i = 0; i < kN / 2; ++i) {
      t[2 * i] = interleave_low(v[i], v[i + kN / 2]);
      t[2 * i + 1] = interleave_high(v[i], v[i + kN / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kN; ++i) v[i] = t[i];
  }
}

/// Packed rows of one tile -> B operand whose k runs along the columns: words [shape.depth][kBlock]; missing rows zero.
/// A word has the size of C and is only moved.
template <class T>
TRIAX_INLINE void transpose_tile(const HeadShape<T>& shape, const typename Format<T>::E* packed, int64_t count,
                                 typename Format<T>::W* out) {
  using C = Compute<T>;
  constexpr int kN = kLanes<C>;
  const C* rows = reinterpret_cast<const C*>(packed);
  C* to = reinterpret_cast<C*>(out);
  const int64_t stride = shape.row / Format<T>::kGroup;
  for (int64_t r = 0; r < kBlock; r += kN) {
    for (int64_t c = 0; c < shape.depth; c += kN) {
      Vec<C> v[kN];
#pragma GCC unroll 16
      for (int i = 0; i < kN; ++i) v[i] = r + i < count ? load(rows + (r + i) * stride + c) : Vec<C>{};
      transpose_square<C>(v);
#pragma GCC unroll 16
      for (int i = 0; i < kN; ++i) {
        if (c + i < shape.depth) store(v[i], to + (c + i) * kBlock + r);
      }
    }
  }
}

/// Words that n numbers along k take.
template <class T>
TRIAX_INLINE int64_t words_of(int64_t n) {
  return (n + Format<T>::kGroup - 1) / Format<T>::kGroup;
}
/// The same memory as words.
template <class W, class E>
TRIAX_INLINE const W* as_words(const E* elements) {
  return reinterpret_cast<const W*>(elements);
}

}  // namespace triax::kernels::TRIAX_ISA
