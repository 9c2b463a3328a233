// SGD with momentum over one flat range [n], g = grad * grad_scale: buf = momentum buf + g; w -= lr (buf + weight_decay
// w); without a buffer buf = g. param = w rounded to nearest even. lr, grad_scale and skip come from the step block.
// Bytes per element: 8 for w, 8 for the buffer, the gradient, the parameter. The minimum.
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/optimizer_launch.h"

namespace triax::kernels {
namespace {

template <class G, class P, int V>
__global__ void __launch_bounds__(kBlock) sgd_kernel(float* master, float* buffer, const G* grad, P* param, int64_t n,
                                                     float momentum, float weight_decay, const StepBlock* step) {
  if (global_read(&step->skip) != 0) return;
  const auto learning_rate = static_cast<float>(global_read(&step->learning_rate));
  const auto grad_scale = static_cast<float>(global_read(&step->grad_scale));
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * kBlock + threadIdx.x) * V; i < n;
       i += static_cast<int64_t>(gridDim.x) * kBlock * V) {
    float w[V], b[V], g[V];
    load(master + i, w);
    load(grad + i, g);
    TRIAX_UNROLL
    for (int j = 0; j < V; ++j) b[j] = 0;
    if (buffer != nullptr) load(buffer + i, b);
    TRIAX_UNROLL
    for (int j = 0; j < V; ++j) {
      b[j] = momentum * b[j] + grad_scale * g[j];
      w[j] -= learning_rate * (b[j] + weight_decay * w[j]);
    }
    store(master + i, w);
    if (buffer != nullptr) store(buffer + i, b);
    store_parameter(param, i, w);
  }
}

}  // namespace

void CudaDevice::sgd(const Sgd& a, const StepBlock* step) {
  check_optimizer("sgd", a.master, a.grad, a.param, step);
  const int64_t n = a.master.numel();
  ensure(a.momentum_buffer || a.momentum == 0, "sgd: momentum needs its buffer");
  if (a.momentum_buffer) need_vector("sgd", "momentum_buffer", a.momentum_buffer, DType::Float32, n);
  const auto launch = [&](int64_t begin, int64_t end, bool aligned) {
    if (begin == end) return;
    with_optimizer_types("sgd", a.grad, a.param, [&](auto g, auto p) {
      using G = typename decltype(g)::type;
      using P = typename decltype(p)::type;
      const int64_t width = aligned ? 4 : 1;
      const auto grid = static_cast<unsigned>(std::min<int64_t>(kElementBlocks, grid_of(end - begin, kBlock * width)));
      TRIAX_LAUNCH((aligned ? sgd_kernel<G, P, 4> : sgd_kernel<G, P, 1>), grid, kBlock, 0, stream(),
                   a.master.as<float>() + begin, a.momentum_buffer ? a.momentum_buffer.as<float>() + begin : nullptr,
                   static_cast<const G*>(a.grad.data()) + begin,
                   a.param ? static_cast<P*>(a.param.data()) + begin : nullptr, end - begin,
                   static_cast<float>(a.momentum), static_cast<float>(a.weight_decay), step);
    });
  };
  const bool aligned = aligned_for(a.master.flat(), 4) && aligned_for(a.momentum_buffer, 4) &&
                       aligned_for(a.grad.flat(), 4) && aligned_for(a.param, 4);
  const int64_t body = aligned ? n / 4 * 4 : 0;
  launch(0, body, true);
  launch(body, n, false);
}

}  // namespace triax::kernels
