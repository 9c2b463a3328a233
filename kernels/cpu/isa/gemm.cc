// C (+)= op(A) op(B) + bias on packed blocks (Goto & van de Geijn 2008, "Anatomy of high-performance matrix
// multiplication"): a block of op(B) lies in the second-level cache, groups of rows of op(A) walk over its panels. An
// element of C is the sum, in order, of the sums of kDepth products each in order of k: its bits depend neither on the
// tile it falls in nor on how M and N are split.
#include "kernels/cpu/isa/gemm_pack.h"
#include "kernels/cpu/isa/register.h"

namespace triax::kernels::TRIAX_ISA {
namespace {

template <class T>
struct Scratch {
  using B = GemmBlocks<T>;
  typename B::W *a, *b;
  typename B::C* sums;  // [rows][kCols]: of the blocks of k so far, where C itself is narrower
  int64_t bytes;
  Scratch(const GemmArgs& g, int64_t rows, void* memory) {
    Carver carve(memory);
    carve.take(a, B::kRows / kTileRows * B::group_size(B::kWords));
    carve.take(b, B::kCols * B::kWords);
    carve.take(sums, g.wide_c || g.k <= B::kDepth ? 0 : rows * B::kCols);
    bytes = carve.used();
  }
};

/// What becomes of the products of a block of k: y = (before + products) + bias, into `wide` or `narrow`.
template <class T>
struct Target {
  using C = typename Format<T>::C;
  const C* before;  ///< may be null
  C* wide;          ///< null: narrow
  int64_t ld;       ///< of before and wide
  T* narrow;
  int64_t narrow_ld;
  bool accumulate;  ///< adds what is in narrow
  const T* bias;    ///< may be null
};

/// Columns of vectors [v * lanes, ...) of one row of a tile; n: a whole vector, or how many elements of it.
template <class T, class N>
TRIAX_INLINE void finish(const Target<T>& t, int64_t r, int64_t c, Vec<typename Format<T>::C> sum, N n) {
  if (t.before != nullptr) sum = sum + load(t.before + r * t.ld + c, n);
  if (t.bias != nullptr) sum = sum + load(t.bias + c, n);
  if (t.wide != nullptr) {
    store(sum, t.wide + r * t.ld + c, n);
    return;
  }
  T* to = t.narrow + r * t.narrow_ld + c;
  if (t.accumulate) sum = sum + load(to, n);
  store(sum, to, n);
}

/// One register tile: rows of `a` [words][kTileRows] times a panel [words][kWidth].
template <class T>
void tile(const typename Format<T>::W* a, const typename Format<T>::W* b, int64_t words, const Target<T>& t,
          int64_t rows, int64_t cols) {
  using C = typename Format<T>::C;
  using Words = WordVector<typename Format<T>::W>;
  constexpr int kWidth = kLanes<C>;
  Vec<C> sum[kTileRows][kTileVectors]{};
  for (int64_t w = 0; w < words; ++w, a += kTileRows, b += kTileVectors * kWidth) {
    typename Words::V bv[kTileVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kTileVectors; ++v) bv[v] = Words::load_from(b + v * kWidth);
#pragma GCC unroll 8
    for (int r = 0; r < kTileRows; ++r) {
      const typename Words::V av = Words::broadcast(a + r);
#pragma GCC unroll 8
      for (int v = 0; v < kTileVectors; ++v) sum[r][v] = Words::multiply_add(av, bv[v], sum[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kTileRows; ++r) {
    if (r >= rows) continue;
#pragma GCC unroll 8
    for (int v = 0; v < kTileVectors; ++v) {
      const int64_t left = cols - v * kWidth;
      if (left >= kWidth) {
        finish<T>(t, r, v * kWidth, sum[r][v], Whole{});
      } else if (left > 0) {
        finish<T>(t, r, v * kWidth, sum[r][v], static_cast<int>(left));
      }
    }
  }
}

/// Asks for the rows of C that a tile will write while its products are made.
template <class X>
TRIAX_INLINE void prefetch_tile(const X* c, int64_t ld, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < cols; j += 64 / static_cast<int64_t>(sizeof(X))) __builtin_prefetch(c + r * ld + j, 1);
  }
}

/// The block [row, row + rows) x [col, col + cols) of C takes the products of k in [depth, depth + k).
template <class T>
void block(const GemmArgs& g, const Scratch<T>& s, int64_t row, int64_t rows, int64_t sums_row, int64_t col,
           int64_t cols, int64_t depth, int64_t k) {
  using B = GemmBlocks<T>;
  using C = typename B::C;
  const int64_t words = words_of<T>(k);
  const bool first = depth == 0;
  const bool last = depth + k == g.k;
  for (int64_t i = 0; i < rows; i += kTileRows) {
    const int64_t m = min_of(kTileRows, rows - i);
    for (int64_t j = 0; j < cols; j += B::kWidth) {
      const int64_t n = min_of(B::kWidth, cols - j);
      Target<T> t{};
      t.bias = last && g.bias != nullptr ? static_cast<const T*>(g.bias) + col + j : nullptr;
      if (g.wide_c) {
        t.wide = static_cast<C*>(g.c.data) + (row + i) * g.c.stride + col + j;
        t.before = first && !g.accumulate ? nullptr : t.wide;
        t.ld = g.c.stride;
        prefetch_tile(t.wide, t.ld, m, n);
      } else {
        C* sums = s.sums + (sums_row + i) * B::kCols + j;
        t.before = first ? nullptr : sums;
        t.wide = last ? nullptr : sums;
        t.ld = B::kCols;
        t.narrow = row_of<T>(g.c, row + i) + col + j;
        t.narrow_ld = g.c.stride;
        t.accumulate = g.accumulate;
        if (last) prefetch_tile(t.narrow, t.narrow_ld, m, n);
      }
      tile<T>(s.a + i / kTileRows * B::group_size(words), s.b + j * words, words, t, m, n);
    }
  }
}

template <class T>
void multiply(const GemmArgs& g, int64_t m_begin, int64_t m_end, int64_t n_begin, int64_t n_end, void* memory) {
  using B = GemmBlocks<T>;
  const Scratch<T> s(g, m_end - m_begin, memory);
  // Blocks of columns of about one width: A is packed anew for each.
  const int64_t blocks = (n_end - n_begin + B::kCols - 1) / B::kCols;
  const int64_t width = blocks == 0 ? 1 : round_up((n_end - n_begin + blocks - 1) / blocks, B::kWidth);
  for (int64_t col = n_begin; col < n_end; col += width) {
    const int64_t cols = min_of(width, n_end - col);
    for (int64_t depth = 0; depth < g.k; depth += B::kDepth) {
      const int64_t k = min_of(B::kDepth, g.k - depth);
      pack_cols_of_b<T>(g, col, cols, depth, k, s.b);
      for (int64_t row = m_begin; row < m_end; row += B::kRows) {
        const int64_t rows = min_of(B::kRows, m_end - row);
        pack_rows_of_a<T>(g, row, rows, depth, k, s.a);
        block<T>(g, s, row, rows, row - m_begin, col, cols, depth, k);
      }
    }
  }
}

template <class T>
int64_t bytes_for(const GemmArgs& g, int64_t rows) {
  return Scratch<T>(g, rows, nullptr).bytes;
}

struct Fill {
  template <class T>
  static void fill(TypeKernels& k) {
    k.gemm = multiply<T>;
    k.gemm_bytes = bytes_for<T>;
  }
};

}  // namespace

void register_gemm(KernelTable& table) { for_each_type<Fill>(table); }

}  // namespace triax::kernels::TRIAX_ISA
