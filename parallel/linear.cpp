#include "parallel/linear.h"

#include "parallel/tensor_collectives.h"

namespace triax::parallel {

using kernels::Accumulate;
using kernels::Gemm;
using kernels::Transpose;

Buffer ColumnParallelLinear::forward(const LinearWeights& w, Tensor x) const {
  const Buffer gathered = gather_tokens(*c_, x);
  const Tensor input = gathered ? gathered.view(c_->dtype, {c_->tokens(), x.cols()}) : x;  // [T, in]
  Buffer out = c_->activation(c_->tokens(), w.weight.rows());
  const Tensor y = out.view(c_->dtype, {c_->tokens(), w.weight.rows()});  // [T, out/t]
  c_->device->gemm({input, w.weight, y, Transpose::No, Transpose::Yes, Accumulate::No, w.bias});
  return out;
}

Buffer ColumnParallelLinear::backward_input(const LinearWeights& w, Tensor dy) const {
  Buffer partial = c_->activation(c_->tokens(), w.weight.cols());
  const Tensor dx = partial.view(c_->dtype, {c_->tokens(), w.weight.cols()});  // [T, in], partial sum
  c_->device->gemm({dy, w.weight, dx, Transpose::No, Transpose::No, Accumulate::No, {}});
  return sum_over_tensor_ranks(*c_, std::move(partial), w.weight.cols());
}

void ColumnParallelLinear::backward_weight(const LinearWeights& w, Tensor x, Tensor dy) const {
  const Buffer gathered = gather_tokens(*c_, x);
  const Tensor input = gathered ? gathered.view(c_->dtype, {c_->tokens(), x.cols()}) : x;  // [T, in]
  c_->device->gemm({dy, input, w.dweight, Transpose::Yes, Transpose::No, w.accumulate, {}});
  if (w.dbias) c_->device->bias_backward(dy, w.dbias);
}

Buffer RowParallelLinear::forward(const LinearWeights& w, Tensor x) const {
  Buffer partial = c_->activation(c_->tokens(), w.weight.rows());
  const Tensor y = partial.view(c_->dtype, {c_->tokens(), w.weight.rows()});  // [T, out], partial sum
  c_->device->gemm({x, w.weight, y, Transpose::No, Transpose::Yes, Accumulate::No, {}});
  return sum_over_tensor_ranks(*c_, std::move(partial), w.weight.rows());
}

Buffer RowParallelLinear::gather_output_gradient(Tensor dy) const { return gather_tokens(*c_, dy); }

Buffer RowParallelLinear::backward_input(const LinearWeights& w, Tensor dy) const {
  Buffer out = c_->activation(c_->tokens(), w.weight.cols());
  const Tensor dx = out.view(c_->dtype, {c_->tokens(), w.weight.cols()});  // [T, in/t]
  c_->device->gemm({dy, w.weight, dx, Transpose::No, Transpose::No, Accumulate::No, {}});
  return out;
}

void RowParallelLinear::backward_weight(const LinearWeights& w, Tensor x, Tensor dy) const {
  c_->device->gemm({dy, x, w.dweight, Transpose::Yes, Transpose::No, w.accumulate, {}});
}

}  // namespace triax::parallel
