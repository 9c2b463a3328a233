// exp and division for activations: exact ones for fp32 tensors, fast ones where the result is rounded to 16 bits
// anyway (relative error 2^-21, against 2^-9 and 2^-12 of bf16 and fp16).
#pragma once

#include "kernels/cuda/ptx.h"

namespace triax::kernels {

template <class T>
struct ActivationMath {
  static __device__ __forceinline__ float exp(float x) { return fast_exp2(x * 1.4426950408889634f); }
  static __device__ __forceinline__ float divide(float x, float y) { return __fdividef(x, y); }
};
template <>
struct ActivationMath<float> {
  static __device__ __forceinline__ float exp(float x) { return expf(x); }
  static __device__ __forceinline__ float divide(float x, float y) { return x / y; }
};

/// 1 / (1 + e^-x); 0 for x so negative that e^-x overflows.
template <class T>
__device__ __forceinline__ float sigmoid(float x) {
  // __fdividef gives 0 for divisors above 2^126, which is the limit wanted here.
  return ActivationMath<T>::divide(1.0f, 1.0f + ActivationMath<T>::exp(-x));
}

}  // namespace triax::kernels
