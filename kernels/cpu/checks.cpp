#include "kernels/cpu/checks.h"

#include <fmt/format.h>

namespace triax::kernels {

void fail_shape(const char* operation, const char* tensor, const Tensor& got, DType dtype, int64_t rows, int64_t cols) {
  throw std::logic_error(fmt::format("internal error: {}: {} is {} (row stride {}), but {} [{}, {}] is needed",
                                     operation, tensor, got ? got.describe() : "empty", got ? got.row_stride() : 0,
                                     name_of(dtype), rows, cols));
}

DropoutArgs dropout_args(const char* operation, const Dropout& dropout, const TokenIndex& index, int64_t rows) {
  DropoutArgs args;
  if (dropout.p == 0) return args;
  ensure(dropout.p > 0 && dropout.p < 1, "dropout probability outside [0, 1)");
  ensure(dropout.step != nullptr && static_cast<bool>(index.sample), "active dropout needs a step block and an index");
  check_vector(operation, "position", index.position, DType::Int32, rows);
  check_vector(operation, "sample", index.sample, DType::Int64, index.sample.numel());
  args.active = true;
  args.key = dropout_key(dropout.seed, dropout.step->step, dropout.site);
  args.threshold = dropout_threshold(dropout.p);
  args.keep_scale = 1 / (1 - dropout.p);
  args.sample = index.sample.as<int64_t>();
  args.position = index.position.as<int32_t>();
  args.batch = index.sample.numel();
  return args;
}

}  // namespace triax::kernels
