// AdamW (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2) over one flat range [n], with g = grad * grad_scale:
//   m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2,
//   w -= lr (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + weight_decay w), param = w rounded to nearest even.
// lr, t, grad_scale and skip are read from the step block on the device. master, m, v: fp32.
// Bytes per element: 24 for w, m, v + the gradient + the parameter: 30 with fp32 gradients and bf16 parameters. The
// minimum.
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/optimizer_launch.h"

namespace triax::kernels {
namespace {

/// What the elements of a step have in common.
struct AdamWFactors {
  float learning_rate, grad_scale, inv_correction1, inv_sqrt_correction2;
};

template <class G, class P, int V>
__global__ void __launch_bounds__(kBlock)
    adamw_kernel(float* master, float* exp_avg, float* exp_avg_sq, const G* grad, P* param, int64_t n, double beta1,
                 double beta2, float eps, float weight_decay, const StepBlock* step) {
  __shared__ AdamWFactors shared;
  if (step->skip != 0) return;
  if (threadIdx.x == 0) {  // powers in fp64, once per block
    const auto update = static_cast<double>(step->update);
    shared.learning_rate = static_cast<float>(step->learning_rate);
    shared.grad_scale = static_cast<float>(step->grad_scale);
    shared.inv_correction1 = static_cast<float>(1 / (1 - pow(beta1, update)));
    shared.inv_sqrt_correction2 = static_cast<float>(1 / sqrt(1 - pow(beta2, update)));
  }
  __syncthreads();
  const AdamWFactors f = shared;
  const auto b1 = static_cast<float>(beta1), b2 = static_cast<float>(beta2);
  const auto one_minus_b1 = static_cast<float>(1 - beta1), one_minus_b2 = static_cast<float>(1 - beta2);
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * kBlock + threadIdx.x) * V; i < n;
       i += static_cast<int64_t>(gridDim.x) * kBlock * V) {
    float w[V], m[V], v[V], g[V];
    load(master + i, w);
    load(exp_avg + i, m);
    load(exp_avg_sq + i, v);
    load(grad + i, g);
    TRIAX_UNROLL
    for (int j = 0; j < V; ++j) {
      g[j] *= f.grad_scale;
      m[j] = b1 * m[j] + one_minus_b1 * g[j];
      v[j] = b2 * v[j] + one_minus_b2 * g[j] * g[j];
      const float direction = m[j] * f.inv_correction1 / (sqrtf(v[j]) * f.inv_sqrt_correction2 + eps);
      w[j] -= f.learning_rate * (direction + weight_decay * w[j]);
    }
    store(master + i, w);
    store(exp_avg + i, m);
    store(exp_avg_sq + i, v);
    store_parameter(param, i, w);
  }
}

}  // namespace

void CudaDevice::adamw(const AdamW& a, const StepBlock* step) {
  check_optimizer("adamw", a.master, a.grad, a.param, step);
  const int64_t n = a.master.numel();
  need_vector("adamw", "exp_avg", a.exp_avg, DType::Float32, n);
  need_vector("adamw", "exp_avg_sq", a.exp_avg_sq, DType::Float32, n);
  const auto launch = [&](int64_t begin, int64_t end, bool aligned) {
    if (begin == end) return;
    with_optimizer_types("adamw", a.grad, a.param, aligned, [&](auto g, auto p, auto width) {
      using G = typename decltype(g)::type;
      using P = typename decltype(p)::type;
      constexpr int V = decltype(width)::value;
      const auto grid = static_cast<unsigned>(std::min<int64_t>(kElementBlocks, grid_of(end - begin, kBlock * V)));
      TRIAX_LAUNCH((adamw_kernel<G, P, V>), grid, kBlock, 0, stream(), a.master.as<float>() + begin,
                   a.exp_avg.as<float>() + begin, a.exp_avg_sq.as<float>() + begin,
                   static_cast<const G*>(a.grad.data()) + begin,
                   a.param ? static_cast<P*>(a.param.data()) + begin : nullptr, end - begin, a.beta1, a.beta2,
                   static_cast<float>(a.eps), static_cast<float>(a.weight_decay), step);
    });
  };
  const bool aligned = aligned_for(a.master.flat(), 4) && aligned_for(a.exp_avg.flat(), 4) &&
                       aligned_for(a.exp_avg_sq.flat(), 4) && aligned_for(a.grad.flat(), 4) &&
                       (!a.param || aligned_for(a.param.flat(), 4));
  const int64_t body = aligned ? n / 4 * 4 : 0;
  launch(0, body, true);
  launch(body, n, false);
}

}  // namespace triax::kernels
