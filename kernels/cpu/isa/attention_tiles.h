// What the forward and the backward pass of attention share: packing of the rows of one head into contiguous tiles of
// the compute type, and the random words of a row of a tile.
#pragma once

#include "kernels/cpu/isa/micro_gemm.h"
#include "kernels/cpu/isa/philox.h"
#include "kernels/cpu/kernel_table.h"

namespace triax::kernels::TRIAX_ISA {

inline constexpr int64_t kBlock = kAttentionBlock;

/// Sizes in elements of the compute type.
template <class C>
struct AttentionShape {
  int64_t dim;     ///< d
  int64_t padded;  ///< d rounded up to whole vectors: row length of packed rows
  int64_t rows;    ///< s rounded up to whole tiles
  int64_t tiles;
  explicit AttentionShape(const AttentionArgs& a)
      : dim(a.dim), padded(round_up(a.dim, kLanes<C>)), rows(round_up(a.seq, kBlock)), tiles(rows / kBlock) {}
};

/// Cuts scratch memory into arrays that begin on cache lines.
class Carver {
 public:
  explicit Carver(void* data) : next_(static_cast<char*>(data)) {}
  template <class E>
  E* take(int64_t count) {
    E* array = reinterpret_cast<E*>(next_);
    next_ += size_of_array<E>(count);
    return array;
  }
  template <class E>
  static int64_t size_of_array(int64_t count) {
    return round_up(count * static_cast<int64_t>(sizeof(E)), 64);
  }

 private:
  char* next_;
};

/// Row `position` of sample i, columns of head j, of a [s * b, heads * d] matrix.
template <class T>
TRIAX_INLINE T* head_row(const View& view, const AttentionArgs& a, int64_t position, int64_t i, int64_t j) {
  return static_cast<T*>(view.data) + (position * a.batch + i) * view.stride + j * a.dim;
}

/// Rows of one head are far apart, which no hardware prefetcher follows: x2 on the packing of rows from L3.
inline constexpr int64_t kPrefetchRows = 8;
template <class T>
TRIAX_INLINE void prefetch_row(const T* row, int64_t cols) {
  for (int64_t c = 0; c < cols; c += 64 / static_cast<int64_t>(sizeof(T))) __builtin_prefetch(row + c);
}

/// to[r - begin][0..padded) = factor * row r, the padding zero.
template <class T, class C>
TRIAX_INLINE void pack_rows(const View& view, const AttentionArgs& a, int64_t i, int64_t j, int64_t begin, int64_t end,
                            C factor, C* to, int64_t padded) {
  for (int64_t r = begin; r < end; ++r, to += padded) {
    const T* from = head_row<T>(view, a, r, i, j);
    prefetch_row(head_row<T>(view, a, min_of(r + kPrefetchRows, a.seq - 1), i, j), a.dim);
    for_lanes<C>(a.dim, [&](int64_t c, auto n) { store_padded(load(from + c, n) * factor, to + c, n); });
  }
}

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

/// The transpose of up to kBlock packed rows: to[c * kBlock + r]; missing rows are zero.
template <class C>
TRIAX_INLINE void transpose_tile(const C* rows, int64_t count, int64_t dim, int64_t padded, C* to) {
  constexpr int kN = kLanes<C>;
  for (int64_t r = 0; r < kBlock; r += kN) {
    for (int64_t c = 0; c < dim; c += kN) {
      Vec<C> v[kN];
#pragma GCC unroll 16
      for (int i = 0; i < kN; ++i) v[i] = r + i < count ? load(rows + (r + i) * padded + c) : Vec<C>{};
      transpose_square<C>(v);
#pragma GCC unroll 16
      for (int i = 0; i < kN; ++i) {
        if (c + i < dim) store(v[i], to + (c + i) * kBlock + r);
      }
    }
  }
}

/// Positions of the keys of one sample, and whether a tile's are consecutive from a multiple of four (the usual case).
class KeyPositions {
 public:
  KeyPositions(const AttentionArgs& a, int64_t i, int64_t begin, int64_t count) : args_(&a), sample_(i), begin_(begin) {
    if (!a.dropout.active) return;
    first_ = at(0);
    consecutive_ = first_ % 4 == 0;
    for (int64_t t = 1; t < count && consecutive_; ++t) consecutive_ = at(t) == first_ + t;
  }
  int64_t at(int64_t t) const { return args_->dropout.position[(begin_ + t) * args_->batch + sample_]; }

  /// words[t] decides about key t of the tile, t < count; writes kBlock words at most.
  TRIAX_INLINE void words(const PhiloxWords& base, int64_t count, uint32_t* words) const {
    const DropoutKey key = args_->dropout.key;
    if (consecutive_) {
      philox_words(key, base, first_ / 4, count, words);
      return;
    }
    for (int64_t t = 0; t < count; ++t) {
      PhiloxWords counter = base;
      counter.word[0] = static_cast<uint32_t>(at(t) / 4);
      words[t] = dropout_philox(counter, key).word[at(t) % 4];
    }
  }

 private:
  const AttentionArgs* args_;
  int64_t sample_, begin_, first_ = 0;
  bool consecutive_ = true;
};

/// Counter of the row of query `row` (block 0) for local head j.
TRIAX_INLINE PhiloxWords query_counter(const AttentionArgs& a, int64_t row, int64_t i, int64_t j) {
  return dropout_counter(a.dropout.sample[i], a.dropout.position[row * a.batch + i], a.head_begin + j, 0);
}

}  // namespace triax::kernels::TRIAX_ISA
