// LayerNorm y = (x - mean) rstd gamma + beta and RMSNorm y = x rstd gamma, rstd = 1 / sqrt(variance or mean square +
// eps). x, y: [T, h], row strides free; gamma, beta: [h]; mean, rstd: fp32 [T]. Sums in fp32; the variance from the
// centred row. Bytes: x is read and y written once (2 T h elements, the minimum): a block holds its row in registers,
// and gamma and beta for all of its rows. Rows that are too long for that or not aligned are read three times (once
// from memory, then from the caches).
#include "kernels/cuda/block.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/norm_shape.h"
#include "kernels/cuda/types.h"

namespace triax::kernels {
namespace {

template <class T>
struct NormArgs {
  Rows<const T> x;
  Rows<T> y;
  const T *gamma, *beta;  // beta null: RMSNorm
  float *mean, *rstd;
  int64_t rows, cols;
  float eps;
};

/// A block walks its rows; a thread holds K runs of V columns: run k begins at (k * threads + thread) * V.
template <class T, int V, int K>
__global__ void __launch_bounds__(K == 1 ? kNormShortRuns : kNormForwardThreads) norm_forward_rows(NormArgs<T> a) {
  __shared__ BlockScratch<float> scratch[2][2];
  __shared__ float mean_of[kNormStaged], rstd_of[kNormStaged];
  const auto h = static_cast<float>(a.cols);
  const int64_t begin = a.rows * blockIdx.x / gridDim.x, end = a.rows * (blockIdx.x + 1) / gridDim.x;
  RawRun<T, V> gamma[K], beta[K];
  TRIAX_UNROLL
  for (int k = 0; k < K; ++k) {
    const int64_t c = (static_cast<int64_t>(k) * blockDim.x + threadIdx.x) * V;
    if (c < a.cols) gamma[k].fetch(a.gamma + c);
    if (c < a.cols && a.beta != nullptr) beta[k].fetch(a.beta + c);
  }
  for (int64_t r = begin; r < end; ++r) {
    BlockScratch<float>(&sums)[2] = scratch[r % 2];
    RawRun<T, V> row[K];
    float x[V];
    float sum = 0;
    TRIAX_UNROLL
    for (int k = 0; k < K; ++k) {
      const int64_t c = (static_cast<int64_t>(k) * blockDim.x + threadIdx.x) * V;
      if (c < a.cols) {
        row[k].fetch(a.x.at(r, c));
        row[k].values(x);
        TRIAX_UNROLL
        for (int i = 0; i < V; ++i) sum += x[i];
      }
    }
    float mean = 0;
    if (a.beta != nullptr) mean = block_sum(sum, sums[0]) / h;
    float square = 0;
    TRIAX_UNROLL
    for (int k = 0; k < K; ++k) {
      if ((static_cast<int64_t>(k) * blockDim.x + threadIdx.x) * V < a.cols) {
        row[k].values(x);
        TRIAX_UNROLL
        for (int i = 0; i < V; ++i) square += (x[i] - mean) * (x[i] - mean);
      }
    }
    const float rstd = 1 / sqrtf(block_sum(square, sums[1]) / h + a.eps);
    TRIAX_UNROLL
    for (int k = 0; k < K; ++k) {
      const int64_t c = (static_cast<int64_t>(k) * blockDim.x + threadIdx.x) * V;
      if (c < a.cols) {
        float g[V], b[V];
        row[k].values(x);
        gamma[k].values(g);
        TRIAX_UNROLL
        for (int i = 0; i < V; ++i) b[i] = 0;
        if (a.beta != nullptr) beta[k].values(b);
        TRIAX_UNROLL
        for (int i = 0; i < V; ++i) x[i] = (x[i] - mean) * rstd * g[i] + b[i];
        store(a.y.at(r, c), x);
      }
    }
    const auto place = static_cast<int>((r - begin) % kNormStaged);
    if (threadIdx.x == 0) mean_of[place] = mean, rstd_of[place] = rstd;
    if (place + 1 < kNormStaged && r + 1 < end) continue;
    __syncthreads();
    for (int i = threadIdx.x; i <= place; i += blockDim.x) {
      global_write(a.rstd + r - place + i, rstd_of[i]);
      if (a.beta != nullptr) global_write(a.mean + r - place + i, mean_of[i]);
    }
    __syncthreads();
  }
}

/// Any length and alignment.
template <class T>
__global__ void __launch_bounds__(kBlock) norm_forward_loop(NormArgs<T> a) {
  __shared__ BlockScratch<float> first, second;
  const int64_t r = blockIdx.x;
  const auto h = static_cast<float>(a.cols);
  const T* const x = a.x.at(r, 0);
  float mean = 0;
  if (a.beta != nullptr) {
    float sum = 0;
    for (int64_t c = threadIdx.x; c < a.cols; c += kBlock) sum += to_float(global_read(x + c));
    mean = block_sum(sum, first) / h;
  }
  float square = 0;
  for (int64_t c = threadIdx.x; c < a.cols; c += kBlock) {
    const float v = to_float(global_read(x + c)) - mean;
    square += v * v;
  }
  const float rstd = 1 / sqrtf(block_sum(square, second) / h + a.eps);
  if (threadIdx.x == 0) {
    global_write(a.rstd + r, rstd);
    if (a.beta != nullptr) global_write(a.mean + r, mean);
  }
  for (int64_t c = threadIdx.x; c < a.cols; c += kBlock) {
    const float v = (to_float(global_read(x + c)) - mean) * rstd * to_float(global_read(a.gamma + c));
    global_write(a.y.at(r, c), from_float<T>(a.beta != nullptr ? v + to_float(global_read(a.beta + c)) : v));
  }
}

}  // namespace

void CudaDevice::norm_forward(const char* operation, Tensor x, Tensor gamma, Tensor beta, double eps, Tensor y,
                              Tensor mean, Tensor rstd) {
  const int64_t rows = x.rows(), cols = x.cols();
  need_matrix(operation, "y", y, x.dtype(), rows, cols);
  need_vector(operation, "gamma", gamma, x.dtype(), cols);
  need_vector(operation, "rstd", rstd, DType::Float32, rows);
  if (beta) {
    need_vector(operation, "beta", beta, x.dtype(), cols);
    need_vector(operation, "mean", mean, DType::Float32, rows);
  }
  if (x.numel() == 0) return;
  with_type(operation, x.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kWide = kVector<T>;
    const NormArgs<T> args{{static_cast<const T*>(x.data()), x.row_stride()},
                           rows_of<T>(y),
                           gamma.as<T>(),
                           static_cast<const T*>(beta.data()),
                           static_cast<float*>(mean.data()),
                           rstd.as<float>(),
                           rows,
                           cols,
                           static_cast<float>(eps)};
    const bool aligned = cols % kWide == 0 && aligned_for(x, kWide) && aligned_for(y, kWide) &&
                         aligned_for(gamma, kWide) && aligned_for(beta, kWide);
    const NormShape shape = norm_shape(cols, kWide, kNormForwardThreads);
    const auto grid = static_cast<unsigned>(norm_forward_blocks(rows));
    if (aligned && shape.runs == 1) {
      TRIAX_LAUNCH((norm_forward_rows<T, kWide, 1>), grid, shape.threads, 0, stream(), args);
    } else if (aligned && shape.runs == kNormRuns) {
      TRIAX_LAUNCH((norm_forward_rows<T, kWide, kNormRuns>), grid, shape.threads, 0, stream(), args);
    } else {
      TRIAX_LAUNCH((norm_forward_loop<T>), static_cast<unsigned>(rows), kBlock, 0, stream(), args);
    }
  });
}

void CudaDevice::layer_norm_forward(Tensor x, Tensor gamma, Tensor beta, double eps, Tensor y, Tensor mean,
                                    Tensor rstd) {
  ensure(static_cast<bool>(beta), "layer_norm_forward: beta is empty");
  norm_forward("layer_norm_forward", x, gamma, beta, eps, y, mean, rstd);
}

void CudaDevice::rms_norm_forward(Tensor x, Tensor gamma, double eps, Tensor y, Tensor rstd) {
  norm_forward("rms_norm_forward", x, gamma, Tensor(), eps, y, Tensor(), rstd);
}

}  // namespace triax::kernels
