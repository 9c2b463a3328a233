// Forward: y = residual + dropout(x + bias). Backward: dx = dropout mask applied to dy, dbias += column sums of dx.
// x, y, residual, dy, dx: [T, h], row strides free; bias, dbias: [h]; y may be x or residual, dx may be dy.
// Bytes: forward x, residual, y (3 T h elements), backward dy, dx (2 T h), the minimum; dbias adds 8 h splits bytes.
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/dropout_site.h"

namespace triax::kernels {
namespace {

/// Applies the mask of a row, columns c .. c + N - 1 (c is a multiple of 4 when N is): one Philox call for four
/// elements.
template <int N>
__device__ __forceinline__ void mask_row(const DropoutSite& site, DropoutKey key, TokenPlace row, int64_t c,
                                         float (&v)[N]) {
  TRIAX_UNROLL
  for (int i = 0; i < N; i += 4) {
    const PhiloxWords w = dropout_philox(dropout_counter(row.sample, row.position, 0, (c + i) / 4), key);
    if constexpr (N == 1) {
      const uint32_t mine = c % 4 < 2 ? (c % 4 == 0 ? w.word[0] : w.word[1]) : (c % 4 == 2 ? w.word[2] : w.word[3]);
      v[0] = mine >= site.threshold ? v[0] * site.keep_scale : 0.0f;
    } else {
      TRIAX_UNROLL
      for (int j = 0; j < 4; ++j) v[i + j] = w.word[j] >= site.threshold ? v[i + j] * site.keep_scale : 0.0f;
    }
  }
}

/// What a thread keeps for all of its rows.
template <int V>
struct ColumnState {
  DropoutKey key;
  float bias[V];
};

/// Writes y, and gives nothing to be summed: column_sums so that the bias and a row's place are read once in a block.
template <class T>
struct BiasDropoutAdd {
  using Row = TokenPlace;
  Rows<const T> x, residual;
  const T* bias;
  DropoutSite site;
  Rows<T> y;
  template <int V>
  __device__ ColumnState<V> prepare(int64_t c, int64_t cols) const {
    ColumnState<V> state{};
    if (site.active) state.key = site.key();
    if (bias != nullptr && c + V <= cols) load(bias + c, state.bias);
    return state;
  }
  __device__ Row row(int64_t r) const { return site.active ? site.place(r) : Row{}; }
  template <int N, int V>
  __device__ void at(const ColumnState<V>& state, Row row, int64_t r, int64_t c, float (&v)[N]) const {
    load(x.at(r, c), v);
    if (bias != nullptr) {
      TRIAX_UNROLL
      for (int i = 0; i < N; ++i) v[i] += N == V ? state.bias[i] : to_float(global_read(bias + c + i));
    }
    if (site.active) mask_row(site, state.key, row, c, v);
    if (residual.data != nullptr) {
      float more[N];
      load(residual.at(r, c), more);
      TRIAX_UNROLL
      for (int i = 0; i < N; ++i) v[i] += more[i];
    }
    store(y.at(r, c), v);
  }
};

template <class T>
struct BiasDropoutGrad {
  using Row = TokenPlace;
  Rows<const T> dy;
  DropoutSite site;
  Rows<T> dx;
  template <int V>
  __device__ DropoutKey prepare(int64_t, int64_t) const {
    return site.active ? site.key() : DropoutKey{};
  }
  __device__ Row row(int64_t r) const { return site.active ? site.place(r) : Row{}; }
  template <int N>
  __device__ void at(DropoutKey key, Row row, int64_t r, int64_t c, float (&v)[N]) const {
    load(dy.at(r, c), v);
    if (site.active) mask_row(site, key, row, c, v);
    store(dx.at(r, c), v);
  }
};

template <class T>
Rows<const T> input_rows(const Tensor& t) {
  return {static_cast<const T*>(t.data()), t ? t.row_stride() : 0};
}

}  // namespace

void CudaDevice::bias_dropout_add_forward(Tensor x, Tensor bias, Tensor residual, const Dropout& dropout,
                                          const TokenIndex& index, Tensor y) {
  const char* const name = "bias_dropout_add_forward";
  const int64_t rows = x.rows(), cols = x.cols();
  need_matrix(name, "y", y, x.dtype(), rows, cols);
  if (bias) need_vector(name, "bias", bias, x.dtype(), cols);
  if (residual) need_matrix(name, "residual", residual, x.dtype(), rows, cols);
  if (x.numel() == 0) return;
  const DropoutSite site = dropout_site(name, dropout, index, rows);
  with_type(name, x.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kWide = kVector<T>;
    const BiasDropoutAdd<T> body{input_rows<T>(x), input_rows<T>(residual), static_cast<const T*>(bias.data()), site,
                                 rows_of<T>(y)};
    const bool wide =
        aligned_for(x, kWide) && aligned_for(bias, kWide) && aligned_for(residual, kWide) && aligned_for(y, kWide);
    wide ? launch_column_sums<kWide>(rows, cols, body, nullptr, stream())
         : launch_column_sums<1>(rows, cols, body, nullptr, stream());
  });
}

void CudaDevice::bias_dropout_backward(Tensor dy, const Dropout& dropout, const TokenIndex& index, Tensor dx,
                                       Tensor dbias) {
  const char* const name = "bias_dropout_backward";
  const int64_t rows = dy.rows(), cols = dy.cols();
  need_matrix(name, "dx", dx, dy.dtype(), rows, cols);
  if (dbias) need_vector(name, "dbias", dbias, dbias.dtype(), cols);
  if (dy.numel() == 0) return;
  const DropoutSite site = dropout_site(name, dropout, index, rows);
  const int64_t splits = row_splits(rows);
  const Buffer sums = dbias ? scratch(DType::Float32, splits * cols) : Buffer();
  float* const partial = static_cast<float*>(sums.data());
  with_type(name, dy.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kWide = kVector<T>;
    const BiasDropoutGrad<T> body{input_rows<T>(dy), site, rows_of<T>(dx)};
    aligned_for(dy, kWide) && aligned_for(dx, kWide) ? launch_column_sums<kWide>(rows, cols, body, partial, stream())
                                                     : launch_column_sums<1>(rows, cols, body, partial, stream());
  });
  if (dbias) add_partials(sums.view(DType::Float32, {splits, cols}), dbias);
}

}  // namespace triax::kernels
