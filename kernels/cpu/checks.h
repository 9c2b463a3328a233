// Checks on entry to the operations, and small helpers on tensors.
#pragma once

#include "base/tensor.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/device.h"

namespace triax::kernels {

/// fp64, fp32, bf16, fp16: what the kernels compute with.
inline bool is_math_type(DType dtype) { return dtype <= DType::Float16; }
/// Type of statistics and partial sums.
inline DType compute_type(DType dtype) { return dtype == DType::Float64 ? DType::Float64 : DType::Float32; }

inline View view_of(const Tensor& t) { return {t.data(), t.row_stride()}; }
inline const void* data_of(const Tensor& t) { return t.data(); }

/// Throws std::logic_error naming the operation and the tensor.
[[noreturn]] void fail_shape(const char* operation, const char* tensor, const Tensor& got, DType dtype, int64_t rows,
                             int64_t cols);
/// A matrix (or anything of that many rows and columns) of the dtype.
inline void check_matrix(const char* operation, const char* tensor, const Tensor& t, DType dtype, int64_t rows,
                         int64_t cols) {
  if (!t || t.dtype() != dtype || t.rows() != rows || t.cols() != cols) {
    fail_shape(operation, tensor, t, dtype, rows, cols);
  }
}
/// A contiguous run of n elements of the dtype.
inline void check_vector(const char* operation, const char* tensor, const Tensor& t, DType dtype, int64_t n) {
  if (!t || t.dtype() != dtype || t.numel() != n || !t.contiguous()) fail_shape(operation, tensor, t, dtype, 1, n);
}

/// Key, threshold and factor of a dropout site in this step; checks index when it is active.
DropoutArgs dropout_args(const char* operation, const Dropout& dropout, const TokenIndex& index, int64_t rows);

}  // namespace triax::kernels
