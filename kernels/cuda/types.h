// From the dtypes of tensors to template arguments, and the checks on entry.
#pragma once

#include "base/tensor.h"
#include "kernels/device.h"

namespace triax::kernels {

template <class T>
struct Type {
  using type = T;
};

/// Refuses what this device does not compute with; fp64 is the CPU device's.
[[noreturn]] void refuse_type(const char* operation, DType dtype);

/// Calls f(Type<T>()) with the element type.
template <class F>
void with_type(const char* operation, DType dtype, F&& f) {
  switch (dtype) {
    case DType::Float32:
      return f(Type<float>());
    case DType::BFloat16:
      return f(Type<bf16>());
    case DType::Float16:
      return f(Type<fp16>());
    default:
      refuse_type(operation, dtype);
  }
}

[[noreturn]] void fail_tensor(const char* operation, const char* tensor, const Tensor& got, DType dtype, int64_t rows,
                              int64_t cols);
/// A matrix (or anything of that many rows and columns) of the dtype.
inline void need_matrix(const char* operation, const char* tensor, const Tensor& t, DType dtype, int64_t rows,
                        int64_t cols) {
  if (!t || t.dtype() != dtype || t.rows() != rows || t.cols() != cols) {
    fail_tensor(operation, tensor, t, dtype, rows, cols);
  }
}
/// A contiguous run of n elements of the dtype.
inline void need_vector(const char* operation, const char* tensor, const Tensor& t, DType dtype, int64_t n) {
  if (!t || t.dtype() != dtype || t.numel() != n || !t.contiguous()) fail_tensor(operation, tensor, t, dtype, 1, n);
}

/// t as one row when its rows follow each other, so that runs of elements cross their borders.
inline Tensor flattened(const Tensor& t) { return t && t.contiguous() ? t.flat() : t; }

}  // namespace triax::kernels
