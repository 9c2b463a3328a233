#include "parallel/linear.h"

#include "parallel/tensor_collectives.h"

namespace triax::parallel {

using kernels::Accumulate;
using kernels::Gemm;
using kernels::Transpose;

namespace {

Gemm with_fp8(const LayerContext& c, Fp8Site site, Gemm product, Fp8Part a, Fp8Part b) {
  if (c.fp8 != nullptr && site.layer >= 0) c.fp8->set(product, site, a, b);
  return product;
}

Gemm forward_product(const LayerContext& c, Fp8Site site, Tensor x, const LinearWeights& w, Tensor bias, Tensor y) {
  return with_fp8(c, site, {x, w.weight, y, Transpose::No, Transpose::Yes, Accumulate::No, bias}, Fp8Part::Input,
                  Fp8Part::Weight);
}

Gemm input_product(const LayerContext& c, Fp8Site site, Tensor dy, const LinearWeights& w, Tensor dx) {
  return with_fp8(c, site, {dy, w.weight, dx, Transpose::No, Transpose::No, Accumulate::No, {}}, Fp8Part::Gradient,
                  Fp8Part::Weight);
}

Gemm weight_product(const LayerContext& c, Fp8Site site, Tensor dy, Tensor x, const LinearWeights& w) {
  return with_fp8(c, site, {dy, x, w.dweight, Transpose::Yes, Transpose::No, w.accumulate, {}}, Fp8Part::Gradient,
                  Fp8Part::Input);
}

}  // namespace

Buffer ColumnParallelLinear::forward(const LinearWeights& w, Tensor x) const {
  const Buffer gathered = gather_tokens(*c_, x);
  const Tensor input = gathered ? gathered.view(c_->dtype, {c_->tokens(), x.cols()}) : x;  // [T, in]
  Buffer out = c_->activation(c_->tokens(), w.weight.rows());
  const Tensor y = out.view(c_->dtype, {c_->tokens(), w.weight.rows()});  // [T, out/t]
  c_->device->gemm(forward_product(*c_, site_, input, w, w.bias, y));
  return out;
}

Buffer ColumnParallelLinear::forward_gelu(const LinearWeights& w, Tensor x, Buffer& activated) const {
  const Buffer gathered = gather_tokens(*c_, x);
  const Tensor input = gathered ? gathered.view(c_->dtype, {c_->tokens(), x.cols()}) : x;  // [T, in]
  Buffer out = c_->activation(c_->tokens(), w.weight.rows());
  activated = c_->activation(c_->tokens(), w.weight.rows());
  const Tensor y = out.view(c_->dtype, {c_->tokens(), w.weight.rows()});  // [T, out/t]
  c_->device->gemm_gelu(forward_product(*c_, site_, input, w, w.bias, y),
                        activated.view(c_->dtype, {c_->tokens(), w.weight.rows()}));
  return out;
}

Buffer ColumnParallelLinear::backward_input(const LinearWeights& w, Tensor dy) const {
  Buffer partial = c_->activation(c_->tokens(), w.weight.cols());
  const Tensor dx = partial.view(c_->dtype, {c_->tokens(), w.weight.cols()});  // [T, in], partial sum
  c_->device->gemm(input_product(*c_, site_, dy, w, dx));
  return sum_over_tensor_ranks(*c_, std::move(partial), w.weight.cols());
}

void ColumnParallelLinear::backward_weight(const LinearWeights& w, Tensor x, Tensor dy) const {
  const Buffer gathered = gather_tokens(*c_, x);
  const Tensor input = gathered ? gathered.view(c_->dtype, {c_->tokens(), x.cols()}) : x;  // [T, in]
  const Gemm product = weight_product(*c_, site_, dy, input, w);
  w.dbias ? c_->device->gemm_bias_backward(product, w.dbias) : c_->device->gemm(product);
}

Buffer RowParallelLinear::forward(const LinearWeights& w, Tensor x) const {
  Buffer partial = c_->activation(c_->tokens(), w.weight.rows());
  const Tensor y = partial.view(c_->dtype, {c_->tokens(), w.weight.rows()});  // [T, out], partial sum
  c_->device->gemm(forward_product(*c_, site_, x, w, {}, y));
  return sum_over_tensor_ranks(*c_, std::move(partial), w.weight.rows());
}

Buffer RowParallelLinear::gather_output_gradient(Tensor dy) const { return gather_tokens(*c_, dy); }

Buffer RowParallelLinear::backward_input(const LinearWeights& w, Tensor dy) const {
  Buffer out = c_->activation(c_->tokens(), w.weight.cols());
  const Tensor dx = out.view(c_->dtype, {c_->tokens(), w.weight.cols()});  // [T, in/t]
  c_->device->gemm(input_product(*c_, site_, dy, w, dx));
  return out;
}

Buffer RowParallelLinear::backward_input_gelu(const LinearWeights& w, Tensor dy, Tensor before) const {
  Buffer out = c_->activation(c_->tokens(), w.weight.cols());
  const Tensor dx = out.view(c_->dtype, {c_->tokens(), w.weight.cols()});  // [T, in/t]
  c_->device->gemm_gelu_backward(input_product(*c_, site_, dy, w, dx), before);
  return out;
}

void RowParallelLinear::backward_weight(const LinearWeights& w, Tensor x, Tensor dy) const {
  c_->device->gemm(weight_product(*c_, site_, dy, x, w));
}

}  // namespace triax::parallel
