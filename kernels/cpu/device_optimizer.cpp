// AdamW and SGD over flat ranges, in chunks that stay in the first-level cache while types are converted.
#include <cmath>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/cpu_device.h"

namespace triax::kernels {
namespace {

constexpr int64_t kChunk = 1024;
constexpr int64_t kUpdateGrain = 8192;

/// Calls update(begin, n, gradients of the master's type) over [0, n), then writes the chunk's parameters.
template <class F>
void for_chunks(const Threads& threads, const KernelTable& table, const Tensor& master, const Tensor& grad,
                const Tensor& param, F&& update) {
  const auto master_size = static_cast<int64_t>(size_of(master.dtype()));
  const auto grad_size = static_cast<int64_t>(size_of(grad.dtype()));
  const auto param_size = param ? static_cast<int64_t>(size_of(param.dtype())) : 0;
  const auto convert = table.type[static_cast<size_t>(grad.dtype())].copy[static_cast<size_t>(master.dtype())];
  const auto publish =
      param ? table.type[static_cast<size_t>(master.dtype())].copy[static_cast<size_t>(param.dtype())] : nullptr;
  threads.ranges(master.numel(), kUpdateGrain, [&](int64_t begin, int64_t end) {
    alignas(64) double converted[kChunk];
    for (int64_t i = begin; i < end; i += kChunk) {
      const int64_t n = std::min(kChunk, end - i);
      const void* g = static_cast<const char*>(grad.data()) + i * grad_size;
      if (grad.dtype() != master.dtype()) {
        convert(g, converted, n);
        g = converted;
      }
      update(i, n, g);
      if (param) {
        publish(static_cast<const char*>(master.data()) + i * master_size,
                static_cast<char*>(param.data()) + i * param_size, n);
      }
    }
  });
}

void check_optimizer(const char* operation, const Tensor& master, const Tensor& grad, const Tensor& param) {
  ensure(master.dtype() == DType::Float32 || master.dtype() == DType::Float64,
         "optimizer: master must be fp32 or fp64");
  ensure(is_math_type(grad.dtype()) && (!param || is_math_type(param.dtype())), "optimizer: dtype of grad or param");
  const int64_t n = master.numel();
  check_vector(operation, "master", master, master.dtype(), n);
  check_vector(operation, "grad", grad, grad.dtype(), n);
  if (param) check_vector(operation, "param", param, param.dtype(), n);
}

}  // namespace

void CpuDevice::adamw(const AdamW& a, const StepBlock* step) {
  check_optimizer("adamw", a.master, a.grad, a.param);
  check_vector("adamw", "exp_avg", a.exp_avg, a.master.dtype(), a.master.numel());
  check_vector("adamw", "exp_avg_sq", a.exp_avg_sq, a.master.dtype(), a.master.numel());
  if (step->skip != 0) return;
  AdamWArgs args{};
  args.beta1 = a.beta1;
  args.beta2 = a.beta2;
  args.eps = a.eps;
  args.weight_decay = a.weight_decay;
  args.learning_rate = step->learning_rate;
  args.grad_scale = step->grad_scale;
  const auto update = static_cast<double>(step->update);
  args.inv_correction1 = 1 / (1 - std::pow(a.beta1, update));
  args.inv_sqrt_correction2 = 1 / std::sqrt(1 - std::pow(a.beta2, update));
  const auto size = static_cast<int64_t>(size_of(a.master.dtype()));
  const auto at = [&](const Tensor& t, int64_t i) { return static_cast<char*>(t.data()) + i * size; };
  const TypeKernels& k = kernels(a.master.dtype());
  for_chunks(threads_, table_, a.master, a.grad, a.param, [&](int64_t i, int64_t n, const void* g) {
    k.adamw(args, at(a.master, i), at(a.exp_avg, i), at(a.exp_avg_sq, i), g, n);
  });
}

void CpuDevice::sgd(const Sgd& a, const StepBlock* step) {
  check_optimizer("sgd", a.master, a.grad, a.param);
  ensure(a.momentum_buffer || a.momentum == 0, "sgd: momentum needs its buffer");
  if (a.momentum_buffer) check_vector("sgd", "momentum", a.momentum_buffer, a.master.dtype(), a.master.numel());
  if (step->skip != 0) return;
  const SgdArgs args{a.momentum, a.weight_decay, step->learning_rate, step->grad_scale};
  const auto size = static_cast<int64_t>(size_of(a.master.dtype()));
  const TypeKernels& k = kernels(a.master.dtype());
  for_chunks(threads_, table_, a.master, a.grad, a.param, [&](int64_t i, int64_t n, const void* g) {
    char* const buffer = a.momentum_buffer ? static_cast<char*>(a.momentum_buffer.data()) + i * size : nullptr;
    k.sgd(args, static_cast<char*>(a.master.data()) + i * size, buffer, g, n);
  });
}

}  // namespace triax::kernels
