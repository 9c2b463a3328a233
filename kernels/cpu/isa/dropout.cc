// Bias, dropout and residual in one pass, its backward, and column sums.
#include "kernels/cpu/isa/math.h"
#include "kernels/cpu/isa/philox.h"
#include "kernels/cpu/isa/register.h"

namespace triax::kernels::TRIAX_ISA {
namespace {

constexpr int64_t kChunk = 128;  // elements per batch of random words; a multiple of kWordsAtOnce

/// Calls f(first column, columns, words) along row r; words is null when the site is inactive.
template <class F>
TRIAX_INLINE void for_chunks(const DropoutArgs& d, int64_t r, int64_t cols, F&& f) {
  if (!d.active) {
    f(0, cols, static_cast<const uint32_t*>(nullptr));
    return;
  }
  alignas(64) uint32_t words[kChunk];
  const PhiloxWords base = dropout_counter(d.sample[r % d.batch], d.position[r], 0, 0);
  for (int64_t j = 0; j < cols; j += kChunk) {
    const int64_t n = min_of(kChunk, cols - j);
    philox_words(d.key, base, j / 4, n, words);
    f(j, n, static_cast<const uint32_t*>(words));
  }
}

template <class T>
void forward(const BiasDropoutArgs& a, int64_t begin, int64_t end) {
  using C = Compute<T>;
  const T* bias = static_cast<const T*>(a.bias);
  const C scale = static_cast<C>(a.dropout.keep_scale);
  for (int64_t r = begin; r < end; ++r) {
    const T* x = row_of<T>(a.x, r);
    T* y = row_of<T>(a.y, r);
    const T* residual = a.residual.data == nullptr ? nullptr : row_of<T>(a.residual, r);
    for_chunks(a.dropout, r, a.cols, [&](int64_t j, int64_t size, const uint32_t* words) {
      for_lanes<C>(size, [&](int64_t i, auto n) {
        auto v = load(x + j + i, n);
        if (bias != nullptr) v = v + load(bias + j + i, n);
        if (words != nullptr) v = v * keep_factor(words + i, a.dropout.threshold, scale, n);
        if (residual != nullptr) v = v + load(residual + j + i, n);
        store(v, y + j + i, n);
      });
    });
  }
}

template <class T>
void backward(const BiasDropoutArgs& a, int64_t begin, int64_t end, void* partial) {
  using C = Compute<T>;
  C* dbias = static_cast<C*>(partial);
  const C scale = static_cast<C>(a.dropout.keep_scale);
  if (dbias != nullptr) memset(dbias, 0, sizeof(C) * static_cast<size_t>(a.cols));
  for (int64_t r = begin; r < end; ++r) {
    const T* dy = row_of<T>(a.x, r);
    T* dx = row_of<T>(a.y, r);
    for_chunks(a.dropout, r, a.cols, [&](int64_t j, int64_t size, const uint32_t* words) {
      for_lanes<C>(size, [&](int64_t i, auto n) {
        auto v = load(dy + j + i, n);
        if (words != nullptr) v = v * keep_factor(words + i, a.dropout.threshold, scale, n);
        store(v, dx + j + i, n);
        if (dbias != nullptr) store(load(dbias + j + i, n) + v, dbias + j + i, n);
      });
    });
  }
}

template <class T>
void column_sum(View x, int64_t cols, int64_t begin, int64_t end, void* partial) {
  using C = Compute<T>;
  C* sum = static_cast<C*>(partial);
  memset(sum, 0, sizeof(C) * static_cast<size_t>(cols));
  for (int64_t r = begin; r < end; ++r) {
    const T* row = row_of<T>(x, r);
    for_lanes<C>(cols, [&](int64_t i, auto n) { store(load(sum + i, n) + load(row + i, n), sum + i, n); });
  }
}

struct Fill {
  template <class T>
  static void fill(TypeKernels& k) {
    k.bias_dropout_forward = forward<T>;
    k.bias_dropout_backward = backward<T>;
    k.column_sum = column_sum<T>;
  }
};

}  // namespace

void register_dropout(KernelTable& table) { for_each_type<Fill>(table); }

}  // namespace triax::kernels::TRIAX_ISA
