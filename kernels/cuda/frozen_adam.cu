// The two updates of 1-bit Adam (Tang 2021, arXiv 2102.02888, algorithm 1), flat ranges [n], products rounded before
// they are added as on the CPU: g = beta m + factor g; and w -= lr (m / (1 - beta1^t) / (sqrt(v) c + eps) + wd w) where
// v is not 0, lr, t and skip from the step block. Bytes: 12 n and 16 n, the minimum.
#include "kernels/cuda/code_blocks.h"
#include "kernels/cuda/cuda_compression.h"
#include "kernels/cuda/elements.h"

namespace triax::kernels {
namespace {

__global__ void __launch_bounds__(kBlock) blend(const float* m, float beta, float factor, float* g, int64_t n) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  if (i < n) global_write(g + i, __fadd_rn(__fmul_rn(beta, global_read(m + i)), __fmul_rn(factor, global_read(g + i))));
}

struct FrozenArgs {
  float *w, *m, *v;
  int64_t n;
  double beta1, weight_decay;
  float root, eps;
};

__global__ void __launch_bounds__(kBlock) frozen_update(FrozenArgs a, const StepBlock* step) {
  __shared__ float keep, scale;
  __shared__ int skip;
  if (threadIdx.x == 0) {
    const double rate = global_read(&step->learning_rate);
    keep = static_cast<float>(1 - rate * a.weight_decay);
    scale = static_cast<float>(rate * (1 / (1 - pow(a.beta1, static_cast<double>(global_read(&step->update))))));
    skip = global_read(&step->skip) != 0 ? 1 : 0;
  }
  __syncthreads();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  if (skip != 0 || i >= a.n) return;
  const float v = global_read(a.v + i);
  if (v == 0) return;
  const float down = __fadd_rn(__fmul_rn(sqrtf(v), a.root), a.eps);
  const float part = __fmul_rn(scale, global_read(a.m + i)) / down;
  global_write(a.w + i, __fsub_rn(__fmul_rn(global_read(a.w + i), keep), part));
}

}  // namespace

void CudaCompression::momentum(Tensor m, double beta, double factor, Tensor g) {
  const int64_t n = g.numel();
  need_vector("momentum", "g", g, DType::Float32, n);
  need_vector("momentum", "m", m, DType::Float32, n);
  if (n == 0) return;
  TRIAX_LAUNCH(blend, grid_of(n, kBlock), kBlock, 0, queue(), m.as<float>(), static_cast<float>(beta),
               static_cast<float>(factor), g.as<float>(), n);
}

void CudaCompression::frozen_adam(const FrozenAdam& args, const StepBlock* step) {
  const int64_t n = args.master.numel();
  need_vector("frozen_adam", "master", args.master, DType::Float32, n);
  need_vector("frozen_adam", "exp_avg", args.exp_avg, DType::Float32, n);
  need_vector("frozen_adam", "exp_avg_sq", args.exp_avg_sq, DType::Float32, n);
  if (n == 0) return;
  const FrozenArgs device{args.master.as<float>(),
                          args.exp_avg.as<float>(),
                          args.exp_avg_sq.as<float>(),
                          n,
                          args.beta1,
                          args.weight_decay,
                          static_cast<float>(args.inv_sqrt_correction2),
                          static_cast<float>(args.eps)};
  TRIAX_LAUNCH(frozen_update, grid_of(n, kBlock), kBlock, 0, queue(), device, step);
}

}  // namespace triax::kernels
