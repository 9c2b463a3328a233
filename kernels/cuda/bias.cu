// dbias[n] += sum over rows of dy[T, n]; dbias is fp32, or of a 16-bit type.
// Bytes: dy is read once (T n elements, the minimum); the partial sums add 8 n splits, splits <= T / 32 and <= 128.
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/types.h"

namespace triax::kernels {
namespace {

template <class T>
struct PlainRows {
  Rows<T> dy;
  using Row = NoRowData;
  template <int V>
  __device__ int prepare(int64_t, int64_t) const {
    return 0;
  }
  template <int N>
  __device__ void at(int, Row, int64_t r, int64_t c, float (&v)[N]) const {
    load(dy.at(r, c), v);
  }
};

template <class T>
__global__ void __launch_bounds__(kBlock)
    add_partials_kernel(const float* partial, int64_t splits, int64_t cols, T* into) {
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  if (c >= cols) return;
  // In fp64: the few hundred partial sums shall not cost what the sums over rows within them do not.
  double sum = to_float(global_read(into + c));
  for (int64_t s = 0; s < splits; ++s) sum += global_read(partial + s * cols + c);
  global_write(into + c, from_float<T>(static_cast<float>(sum)));
}

}  // namespace

void CudaDevice::add_partials(Tensor partial, Tensor into) {
  with_type("add_partials", into.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    TRIAX_LAUNCH((add_partials_kernel<T>), grid_of(into.numel(), kBlock), kBlock, 0, stream(), partial.as<float>(),
                 partial.rows(), partial.cols(), into.as<T>());
  });
}

void CudaDevice::bias_backward(Tensor dy, Tensor dbias) {
  need_vector("bias_backward", "dbias", dbias, dbias.dtype(), dy.cols());
  if (dy.numel() == 0) return;
  const int64_t splits = row_splits(dy.rows());
  const Buffer sums = scratch(DType::Float32, splits * dy.cols());
  const Tensor partial = sums.view(DType::Float32, {splits, dy.cols()});
  with_type("bias_backward", dy.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    const PlainRows<T> body{rows_of<T>(dy)};
    aligned_for(dy, kVector<T>)
        ? launch_column_sums<kVector<T>>(dy.rows(), dy.cols(), body, partial.as<float>(), stream())
        : launch_column_sums<1>(dy.rows(), dy.cols(), body, partial.as<float>(), stream());
  });
  add_partials(partial, dbias);
}

}  // namespace triax::kernels
