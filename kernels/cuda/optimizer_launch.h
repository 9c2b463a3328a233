// The element types of an optimizer step: gradient fp32, bf16 or fp16; parameter none (the master is it), bf16 or fp16.
#pragma once

#include <type_traits>

#include "kernels/cuda/elements.h"
#include "kernels/cuda/types.h"

namespace triax::kernels {

/// Stands for "no separate parameter".
struct NoParameter {};

inline void check_optimizer(const char* operation, const Tensor& master, const Tensor& grad, const Tensor& param,
                            const StepBlock* step) {
  const int64_t n = master.numel();
  need_vector(operation, "master", master, DType::Float32, n);
  need_vector(operation, "grad", grad, grad.dtype(), n);
  if (param) need_vector(operation, "param", param, param.dtype(), n);
  ensure(step != nullptr, "optimizer: step is missing");
}

/// f(Type<grad>, Type<param or NoParameter>).
template <class F>
void with_optimizer_types(const char* operation, const Tensor& grad, const Tensor& param, F&& f) {
  with_type(operation, grad.dtype(), [&](auto g) {
    if (!param) return f(g, Type<NoParameter>());
    if (param.dtype() == DType::BFloat16) return f(g, Type<bf16>());
    ensure(param.dtype() == DType::Float16, "optimizer: param must be bf16, fp16 or empty");
    return f(g, Type<fp16>());
  });
}

/// Writes the rounded parameters where there are any.
template <int N, class P>
__device__ __forceinline__ void store_parameter(P* param, int64_t i, const float (&w)[N]) {
  if constexpr (!std::is_same_v<P, NoParameter>) store(param + i, w);
}

}  // namespace triax::kernels
