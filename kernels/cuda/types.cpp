#include "kernels/cuda/types.h"

#include <fmt/format.h>

namespace triax::kernels {

void refuse_type(const char* operation, DType dtype) {
  if (dtype == DType::Float64) {
    throw ConfigError(
        fmt::format("--fp64 with --device cuda: {} has no fp64 on the GPU; use --device cpu, or fp32, "
                    "--bf16 or --fp16",
                    operation));
  }
  throw std::logic_error(fmt::format("internal error: {}: dtype {}", operation, name_of(dtype)));
}

void fail_tensor(const char* operation, const char* tensor, const Tensor& got, DType dtype, int64_t rows,
                 int64_t cols) {
  throw std::logic_error(fmt::format("internal error: {}: {} is {} (row stride {}), but {} [{}, {}] is needed",
                                     operation, tensor, got ? got.describe() : "empty", got ? got.row_stride() : 0,
                                     name_of(dtype), rows, cols));
}

}  // namespace triax::kernels
