// Gradients of LayerNorm and RMSNorm with xhat = (x - mean) rstd, g = dy gamma:
//   dx (+)= rstd (g - mean(g) - xhat mean(g xhat)), without mean(g) for RMSNorm (mean is null then);
//   dgamma += sum over rows of dy xhat, dbeta += sum over rows of dy, added in a fixed order.
// dy, x, dx: [T, h], row strides free; gamma: [h]; mean, rstd: fp32 [T]; dgamma, dbeta: [h], either may be empty.
// Bytes: dy and x are read, dx written once (3 T h elements, the minimum; 4 when dx accumulates); the partial sums of
// the weights add 8 h bytes for each of at most 512 blocks. Long or unaligned rows: dx in three passes, dgamma and
// dbeta in one more.
#include "kernels/cuda/block.h"
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/norm_shape.h"
#include "kernels/cuda/types.h"

namespace triax::kernels {
namespace {

/// Blocks of the fused kernel: a function of the rows alone, so that the sums keep their order on every GPU.
constexpr int64_t kNormBlocks = 512;

template <class T>
struct NormGradArgs {
  Rows<const T> dy, x;
  Rows<T> dx;
  const T *gamma;
  const float *mean, *rstd;
  int64_t rows, cols;
  bool accumulate;
  float *dgamma, *dbeta;  // partial sums [blocks, h], or null
};

/// A block walks rows blockIdx.x, + gridDim.x, ...; a thread keeps its columns' sums over them.
template <class T, int V, int K>
__global__ void __launch_bounds__(kNormBackwardThreads) norm_backward_rows(NormGradArgs<T> a) {
  __shared__ BlockScratch<float> scratch[2][2];
  const auto h = static_cast<float>(a.cols);
  float dgamma[K][V], dbeta[K][V];
  TRIAX_UNROLL
  for (int k = 0; k < K; ++k) {
    TRIAX_UNROLL
    for (int i = 0; i < V; ++i) dgamma[k][i] = dbeta[k][i] = 0;
  }
  int turn = 0;
  for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x, turn ^= 1) {
    const float mean = a.mean != nullptr ? a.mean[r] : 0, rstd = a.rstd[r];
    float g[K][V], hat[K][V];
    float sum_g = 0, sum_ghat = 0;
    TRIAX_UNROLL
    for (int k = 0; k < K; ++k) {
      const int64_t c = (static_cast<int64_t>(k) * blockDim.x + threadIdx.x) * V;
      if (c < a.cols) {
        float gamma[V];
        load(a.dy.at(r, c), g[k]);
        load(a.x.at(r, c), hat[k]);
        load(a.gamma + c, gamma);
        TRIAX_UNROLL
        for (int i = 0; i < V; ++i) {
          hat[k][i] = (hat[k][i] - mean) * rstd;
          dgamma[k][i] += g[k][i] * hat[k][i];
          dbeta[k][i] += g[k][i];
          g[k][i] *= gamma[i];
          sum_g += g[k][i];
          sum_ghat += g[k][i] * hat[k][i];
        }
      }
    }
    const float mean_g = a.mean != nullptr ? block_sum(sum_g, scratch[turn][0]) / h : 0;
    const float mean_ghat = block_sum(sum_ghat, scratch[turn][1]) / h;
    TRIAX_UNROLL
    for (int k = 0; k < K; ++k) {
      const int64_t c = (static_cast<int64_t>(k) * blockDim.x + threadIdx.x) * V;
      if (c < a.cols) {
        float before[V];
        TRIAX_UNROLL
        for (int i = 0; i < V; ++i) before[i] = 0;
        if (a.accumulate) load(a.dx.at(r, c), before);
        TRIAX_UNROLL
        for (int i = 0; i < V; ++i) g[k][i] = before[i] + rstd * (g[k][i] - mean_g - hat[k][i] * mean_ghat);
        store(a.dx.at(r, c), g[k]);
      }
    }
  }
  TRIAX_UNROLL
  for (int k = 0; k < K; ++k) {
    const int64_t c = (static_cast<int64_t>(k) * blockDim.x + threadIdx.x) * V;
    if (c < a.cols) {
      if (a.dgamma != nullptr) store(a.dgamma + blockIdx.x * a.cols + c, dgamma[k]);
      if (a.dbeta != nullptr) store(a.dbeta + blockIdx.x * a.cols + c, dbeta[k]);
    }
  }
}

/// dx of one row per block, any length and alignment.
template <class T>
__global__ void __launch_bounds__(kBlock) norm_backward_loop(NormGradArgs<T> a) {
  __shared__ BlockScratch<float> first, second;
  const int64_t r = blockIdx.x;
  const auto h = static_cast<float>(a.cols);
  const float mean = a.mean != nullptr ? a.mean[r] : 0, rstd = a.rstd[r];
  const T *const dy = a.dy.at(r, 0), *const x = a.x.at(r, 0);
  float sum_g = 0, sum_ghat = 0;
  for (int64_t c = threadIdx.x; c < a.cols; c += kBlock) {
    const float g = to_float(dy[c]) * to_float(a.gamma[c]);
    sum_g += g;
    sum_ghat += g * (to_float(x[c]) - mean) * rstd;
  }
  const float mean_g = a.mean != nullptr ? block_sum(sum_g, first) / h : 0;
  const float mean_ghat = block_sum(sum_ghat, second) / h;
  for (int64_t c = threadIdx.x; c < a.cols; c += kBlock) {
    const float g = to_float(dy[c]) * to_float(a.gamma[c]), hat = (to_float(x[c]) - mean) * rstd;
    T *const dx = a.dx.at(r, c);
    const float before = a.accumulate ? to_float(*dx) : 0;
    *dx = from_float<T>(before + rstd * (g - mean_g - hat * mean_ghat));
  }
}

/// dy xhat, or dy when x is null.
template <class T>
struct WeightGradient {
  Rows<const T> dy, x;
  const float *mean, *rstd;
  __device__ int prepare() const { return 0; }
  template <int N>
  __device__ void at(int, int64_t r, int64_t c, float (&v)[N]) const {
    load(dy.at(r, c), v);
    if (x.data == nullptr) return;
    const float m = mean != nullptr ? mean[r] : 0, scale = rstd[r];
    float hat[N];
    load(x.at(r, c), hat);
    TRIAX_UNROLL
    for (int i = 0; i < N; ++i) v[i] *= (hat[i] - m) * scale;
  }
};

}  // namespace

void CudaDevice::norm_weight_sums(Tensor dy, Tensor x, Tensor mean, Tensor rstd, Tensor dgamma, Tensor dbeta) {
  const int64_t rows = dy.rows(), cols = dy.cols(), splits = row_splits(rows);
  const Buffer sums = scratch(DType::Float32, splits * cols);
  const Tensor partial = sums.view(DType::Float32, {splits, cols});
  with_type("norm_backward", dy.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    WeightGradient<T> body{{static_cast<const T *>(dy.data()), dy.row_stride()},
                           {static_cast<const T *>(x.data()), x.row_stride()},
                           static_cast<const float *>(mean.data()),
                           rstd.as<float>()};
    if (dgamma) {
      launch_column_sums<1>(rows, cols, body, partial.as<float>(), stream());
      add_partials(partial, dgamma);
    }
    if (dbeta) {
      body.x = {nullptr, 0};
      launch_column_sums<1>(rows, cols, body, partial.as<float>(), stream());
      add_partials(partial, dbeta);
    }
  });
}

void CudaDevice::norm_backward(const char *operation, Tensor dy, Tensor x, Tensor gamma, Tensor mean, Tensor rstd,
                               Tensor dx, Accumulate accumulate_dx, Tensor dgamma, Tensor dbeta) {
  const int64_t rows = x.rows(), cols = x.cols();
  need_matrix(operation, "dy", dy, x.dtype(), rows, cols);
  need_matrix(operation, "dx", dx, x.dtype(), rows, cols);
  need_vector(operation, "gamma", gamma, x.dtype(), cols);
  need_vector(operation, "rstd", rstd, DType::Float32, rows);
  if (mean) need_vector(operation, "mean", mean, DType::Float32, rows);
  if (dgamma) need_vector(operation, "dgamma", dgamma, dgamma.dtype(), cols);
  if (dbeta) need_vector(operation, "dbeta", dbeta, dbeta.dtype(), cols);
  if (x.numel() == 0) return;
  with_type(operation, x.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kWide = kVector<T>;
    NormGradArgs<T> args{{static_cast<const T *>(dy.data()), dy.row_stride()},
                         {static_cast<const T *>(x.data()), x.row_stride()},
                         rows_of<T>(dx),
                         gamma.as<T>(),
                         static_cast<const float *>(mean.data()),
                         rstd.as<float>(),
                         rows,
                         cols,
                         accumulate_dx == Accumulate::Yes,
                         nullptr,
                         nullptr};
    const bool aligned = cols % kWide == 0 && aligned_for(dy, kWide) && aligned_for(x, kWide) &&
                         aligned_for(dx, kWide) && aligned_for(gamma, kWide);
    const NormShape shape = norm_shape(cols, kWide, kNormBackwardThreads);
    if (!aligned || shape.runs == 0) {
      // The weights first: dx may be dy.
      if (dgamma || dbeta) norm_weight_sums(dy, x, mean, rstd, dgamma, dbeta);
      TRIAX_LAUNCH((norm_backward_loop<T>), static_cast<unsigned>(rows), kBlock, 0, stream(), args);
      return;
    }
    const int64_t blocks = std::min(rows, kNormBlocks);
    const Buffer gamma_sums = dgamma ? scratch(DType::Float32, blocks * cols) : Buffer();
    const Buffer beta_sums = dbeta ? scratch(DType::Float32, blocks * cols) : Buffer();
    args.dgamma = static_cast<float *>(gamma_sums.data());
    args.dbeta = static_cast<float *>(beta_sums.data());
    const auto grid = static_cast<unsigned>(blocks);
    if (shape.runs == 1) {
      TRIAX_LAUNCH((norm_backward_rows<T, kWide, 1>), grid, shape.threads, 0, stream(), args);
    } else {
      TRIAX_LAUNCH((norm_backward_rows<T, kWide, kNormRuns>), grid, shape.threads, 0, stream(), args);
    }
    if (dgamma) add_partials(gamma_sums.view(DType::Float32, {blocks, cols}), dgamma);
    if (dbeta) add_partials(beta_sums.view(DType::Float32, {blocks, cols}), dbeta);
  });
}

void CudaDevice::layer_norm_backward(Tensor dy, Tensor x, Tensor gamma, Tensor mean, Tensor rstd, Tensor dx,
                                     Accumulate accumulate_dx, Tensor dgamma, Tensor dbeta) {
  ensure(static_cast<bool>(mean), "layer_norm_backward: mean is empty");
  norm_backward("layer_norm_backward", dy, x, gamma, mean, rstd, dx, accumulate_dx, dgamma, dbeta);
}

void CudaDevice::rms_norm_backward(Tensor dy, Tensor x, Tensor gamma, Tensor rstd, Tensor dx, Accumulate accumulate_dx,
                                   Tensor dgamma) {
  norm_backward("rms_norm_backward", dy, x, gamma, Tensor(), rstd, dx, accumulate_dx, dgamma, Tensor());
}

}  // namespace triax::kernels
