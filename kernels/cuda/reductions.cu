// out[1] (fp64) += sum of squares of x[n], and += number of its elements that are infinite or NaN. In fp64 and in an
// order that depends on n alone: a block sums a chunk of fixed length, one block adds the chunks in order. Bytes: x is
// read once (the minimum), 8 bytes per chunk of 32768 elements are written and read.
#include "kernels/cuda/block.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/types.h"

namespace triax::kernels {
namespace {

constexpr int64_t kSummed = 32768;

struct Square {
  static __device__ double of(float v) { return static_cast<double>(v) * static_cast<double>(v); }
};
struct Nonfinite {
  static __device__ double of(float v) { return fabsf(v) <= 3.4028234663852886e38f ? 0.0 : 1.0; }
};

template <class Term, class T, int V>
__global__ void __launch_bounds__(kBlock) sum_chunk(const T* x, int64_t n, double* of_chunk) {
  __shared__ BlockScratch<double> scratch;
  const int64_t begin = blockIdx.x * kSummed, end = begin + kSummed < n ? begin + kSummed : n;
  double sum = 0;
  for (int64_t i = begin + static_cast<int64_t>(threadIdx.x) * V; i < end; i += kBlock * V) {
    if (i + V <= end) {
      float v[V];
      load(x + i, v);
      TRIAX_UNROLL
      for (int j = 0; j < V; ++j) sum += Term::of(v[j]);
    } else {
      for (int64_t j = i; j < end; ++j) sum += Term::of(to_float(global_read(x + j)));
    }
  }
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) global_write(of_chunk + blockIdx.x, sum);
}

__global__ void __launch_bounds__(kBlock) sum_of_chunks(const double* of_chunk, int64_t chunks, double* out) {
  __shared__ BlockScratch<double> scratch;
  double sum = 0;
  for (int64_t i = threadIdx.x; i < chunks; i += kBlock) sum += global_read(of_chunk + i);
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) global_write(out, global_read(out) + sum);
}

template <class Term>
void launch_sum(const char* operation, const Tensor& x, double* of_chunk, double* out, cudaStream_t stream) {
  const int64_t n = x.numel(), chunks = (n + kSummed - 1) / kSummed;
  with_type(operation, x.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    const auto launch = [&](auto width) {
      TRIAX_LAUNCH((sum_chunk<Term, T, decltype(width)::value>), static_cast<unsigned>(chunks), kBlock, 0, stream,
                   static_cast<const T*>(x.data()), n, of_chunk);
    };
    aligned_for(x.flat(), kVector<T>) ? launch(std::integral_constant<int, kVector<T>>())
                                      : launch(std::integral_constant<int, 1>());
  });
  TRIAX_LAUNCH(sum_of_chunks, 1u, kBlock, 0, stream, of_chunk, chunks, out);
}

}  // namespace

void CudaDevice::sum_of_squares(Tensor x, Tensor out) {
  need_vector("sum_of_squares", "x", x, x.dtype(), x.numel());
  need_vector("sum_of_squares", "out", out, DType::Float64, 1);
  if (x.numel() == 0) return;
  const Buffer chunks = scratch(DType::Float64, (x.numel() + kSummed - 1) / kSummed);
  launch_sum<Square>("sum_of_squares", x, static_cast<double*>(chunks.data()), out.as<double>(), stream());
}

void CudaDevice::count_nonfinite(Tensor x, Tensor out) {
  need_vector("count_nonfinite", "x", x, x.dtype(), x.numel());
  need_vector("count_nonfinite", "out", out, DType::Float64, 1);
  if (x.numel() == 0) return;
  const Buffer chunks = scratch(DType::Float64, (x.numel() + kSummed - 1) / kSummed);
  launch_sum<Nonfinite>("count_nonfinite", x, static_cast<double*>(chunks.data()), out.as<double>(), stream());
}

}  // namespace triax::kernels
