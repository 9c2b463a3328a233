// Gradients of LayerNorm and RMSNorm with xhat = (x - mean) rstd, g = dy gamma:
//   dx (+)= rstd (g - mean(g) - xhat mean(g xhat)), without mean(g) for RMSNorm (mean is null then);
//   dgamma += sum over rows of dy xhat, dbeta += sum over rows of dy, added in a fixed order.
// dy, x, dx: [T, h], row strides free; gamma: [h]; mean, rstd: fp32 [T]; dgamma, dbeta: [h], either may be empty.
// Bytes: dy and x are read, dx written once (3 T h elements, the minimum; 4 when dx accumulates); the partial sums of
// the weights add 8 h bytes for each block (norm_shape.h). Long or unaligned rows: dx in three passes, dgamma and
// dbeta in one more.
#include "kernels/cuda/block.h"
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/norm_shape.h"
#include "kernels/cuda/types.h"

namespace triax::kernels {
namespace {

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

/// v to p where `wanted`. Of 8 floats, neighbouring lanes, whose p follow each other, exchange halves, so that each of
/// the two stores fills sectors. All lanes of the warp call it.
template <int N>
__device__ __forceinline__ void store_sectors(float *p, const float (&v)[N], bool wanted) {
  if constexpr (N == 4) {
    if (wanted) store(p, v);
  } else {
    static_assert(N == 8);
    const bool odd = threadIdx.x % 2 == 1;
    const bool other = __shfl_xor_sync(kAllLanes, wanted ? 1 : 0, 1) != 0;
    float low[4], high[4];  // of the even lane's run, then of the odd one's
    TRIAX_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float got = __shfl_xor_sync(kAllLanes, odd ? v[i] : v[i + 4], 1);
      low[i] = odd ? got : v[i];
      high[i] = odd ? v[i + 4] : got;
    }
    if (odd ? other : wanted) store(odd ? p - 4 : p, low);
    if (odd ? wanted : other) store(odd ? p + 4 : p + 8, high);
  }
}

/// A block walks its rows; a thread keeps its columns' sums over them.
template <class T, int V, int K>
__global__ void __launch_bounds__(K == 1 ? kNormShortRuns : kNormBackwardThreads)
    norm_backward_rows(NormGradArgs<T> a) {
  __shared__ BlockScratch<float> scratch[2][2];
  __shared__ float mean_of[kNormStaged], rstd_of[kNormStaged];
  const auto h = static_cast<float>(a.cols);
  const int64_t begin = a.rows * blockIdx.x / gridDim.x, end = a.rows * (blockIdx.x + 1) / gridDim.x;
  float dgamma[K][V], dbeta[K][V];
  RawRun<T, V> gamma[K];
  TRIAX_UNROLL
  for (int k = 0; k < K; ++k) {
    const int64_t c = (static_cast<int64_t>(k) * blockDim.x + threadIdx.x) * V;
    if (c < a.cols) gamma[k].fetch(a.gamma + c);
    TRIAX_UNROLL
    for (int i = 0; i < V; ++i) dgamma[k][i] = dbeta[k][i] = 0;
  }
  for (int64_t r = begin; r < end; ++r) {
    const auto place = static_cast<int>((r - begin) % kNormStaged);
    if (place == 0) {
      __syncthreads();
      const int64_t staged = end - r < kNormStaged ? end - r : kNormStaged;
      for (int i = threadIdx.x; i < staged; i += blockDim.x) {
        mean_of[i] = a.mean != nullptr ? global_read(a.mean + r + i) : 0;
        rstd_of[i] = global_read(a.rstd + r + i);
      }
      __syncthreads();
    }
    const float mean = mean_of[place], rstd = rstd_of[place];
    RawRun<T, V> x[K];
    float g[K][V], hat[V];
    float sum_g = 0, sum_ghat = 0;
    TRIAX_UNROLL
    for (int k = 0; k < K; ++k) {
      const int64_t c = (static_cast<int64_t>(k) * blockDim.x + threadIdx.x) * V;
      if (c < a.cols) {
        float factor[V];
        load(a.dy.at(r, c), g[k]);
        x[k].fetch(a.x.at(r, c));
        x[k].values(hat);
        gamma[k].values(factor);
        TRIAX_UNROLL
        for (int i = 0; i < V; ++i) {
          hat[i] = (hat[i] - mean) * rstd;
          dgamma[k][i] += g[k][i] * hat[i];
          dbeta[k][i] += g[k][i];
          g[k][i] *= factor[i];
          sum_g += g[k][i];
          sum_ghat += g[k][i] * hat[i];
        }
      }
    }
    const float mean_g = a.mean != nullptr ? block_sum(sum_g, scratch[r % 2][0]) / h : 0;
    const float mean_ghat = block_sum(sum_ghat, scratch[r % 2][1]) / h;
    TRIAX_UNROLL
    for (int k = 0; k < K; ++k) {
      const int64_t c = (static_cast<int64_t>(k) * blockDim.x + threadIdx.x) * V;
      if (c < a.cols) {
        float before[V];
        TRIAX_UNROLL
        for (int i = 0; i < V; ++i) before[i] = 0;
        if (a.accumulate) load(a.dx.at(r, c), before);
        x[k].values(hat);
        TRIAX_UNROLL
        for (int i = 0; i < V; ++i) {
          g[k][i] = before[i] + rstd * (g[k][i] - mean_g - (hat[i] - mean) * rstd * mean_ghat);
        }
        store(a.dx.at(r, c), g[k]);
      }
    }
  }
  TRIAX_UNROLL
  for (int k = 0; k < K; ++k) {
    const int64_t c = (static_cast<int64_t>(k) * blockDim.x + threadIdx.x) * V;
    if (a.dgamma != nullptr) store_sectors(a.dgamma + blockIdx.x * a.cols + c, dgamma[k], c < a.cols);
    if (a.dbeta != nullptr) store_sectors(a.dbeta + blockIdx.x * a.cols + c, dbeta[k], c < a.cols);
  }
}

/// dx of one row per block, any length and alignment.
template <class T>
__global__ void __launch_bounds__(kBlock) norm_backward_loop(NormGradArgs<T> a) {
  __shared__ BlockScratch<float> first, second;
  const int64_t r = blockIdx.x;
  const auto h = static_cast<float>(a.cols);
  const float mean = a.mean != nullptr ? global_read(a.mean + r) : 0, rstd = global_read(a.rstd + r);
  const T *const dy = a.dy.at(r, 0), *const x = a.x.at(r, 0);
  float sum_g = 0, sum_ghat = 0;
  for (int64_t c = threadIdx.x; c < a.cols; c += kBlock) {
    const float g = to_float(global_read(dy + c)) * to_float(global_read(a.gamma + c));
    sum_g += g;
    sum_ghat += g * (to_float(global_read(x + c)) - mean) * rstd;
  }
  const float mean_g = a.mean != nullptr ? block_sum(sum_g, first) / h : 0;
  const float mean_ghat = block_sum(sum_ghat, second) / h;
  for (int64_t c = threadIdx.x; c < a.cols; c += kBlock) {
    const float g = to_float(global_read(dy + c)) * to_float(global_read(a.gamma + c));
    const float hat = (to_float(global_read(x + c)) - mean) * rstd;
    T *const dx = a.dx.at(r, c);
    const float before = a.accumulate ? to_float(global_read(dx)) : 0;
    global_write(dx, from_float<T>(before + rstd * (g - mean_g - hat * mean_ghat)));
  }
}

/// dy xhat, or dy when x is null.
template <class T>
struct WeightGradient {
  Rows<const T> dy, x;
  const float *mean, *rstd;
  struct Row {
    float mean, rstd;
  };
  template <int V>
  __device__ int prepare(int64_t, int64_t) const {
    return 0;
  }
  __device__ Row row(int64_t r) const { return {mean != nullptr ? global_read(mean + r) : 0, global_read(rstd + r)}; }
  template <int N>
  __device__ void at(int, Row row, int64_t r, int64_t c, float (&v)[N]) const {
    load(dy.at(r, c), v);
    if (x.data == nullptr) return;
    float hat[N];
    load(x.at(r, c), hat);
    TRIAX_UNROLL
    for (int i = 0; i < N; ++i) v[i] *= (hat[i] - row.mean) * row.rstd;
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
    const int64_t blocks = norm_backward_blocks(rows);
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
