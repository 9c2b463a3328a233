// Column- and row-parallel linear layers (Megatron-LM, Shoeybi et al. 2019, arXiv 1909.08053 section 3) with sequence
// parallelism (Korthikanti et al. 2022, arXiv 2205.05198 section 4.2.2). Weights are [out, in] as in PyTorch.
// t = tp ranks, T = tokens of a micro-batch, T' = T/t under sequence parallelism, else T.
#pragma once

#include "parallel/layer_context.h"

namespace triax::parallel {

/// Weights and gradients of a linear layer as this rank holds them; bias and dbias may be empty.
struct LinearWeights {
  Tensor weight, bias;                                        ///< compute dtype
  Tensor dweight, dbias;                                      ///< gradient dtype, accumulated
  kernels::Accumulate accumulate = kernels::Accumulate::Yes;  ///< No: dweight is overwritten
};

/// Y = X A^T + b with A cut along its rows: A = [A_1; ...; A_t], Y_i = X A_i^T + b_i.
class ColumnParallelLinear {
 public:
  /// Products are fp8 where the context says so and `site` is a layer.
  explicit ColumnParallelLinear(const LayerContext& context, Fp8Site site = {}) : c_(&context), site_(site) {}

  /// x [T', in] -> y [T, out/t]. Under sequence parallelism x is all-gathered over tp: T * in elements, (t-1)/t of them
  /// received; otherwise no communication.
  Buffer forward(const LinearWeights& w, Tensor x) const;
  /// The same with gelu(y) -> activated [T, out/t].
  Buffer forward_gelu(const LinearWeights& w, Tensor x, Buffer& activated) const;
  /// dy [T, out/t] -> dx [T', in]. Sums over tp: all-reduce of T * in elements, or reduce-scatter under sequence
  /// parallelism.
  Buffer backward_input(const LinearWeights& w, Tensor dy) const;
  /// dA_i += dy^T x, db_i += column sums of dy. Gathers x again under sequence parallelism (it is kept as T').
  void backward_weight(const LinearWeights& w, Tensor x, Tensor dy) const;

 private:
  const LayerContext* c_;
  Fp8Site site_;
};

/// Y = X A^T with A cut along its columns: A = [A_1, ..., A_t], X = [X_1, ..., X_t], Y = sum of X_i A_i^T. The bias is
/// added by the caller after the sum (fused with dropout and residual).
class RowParallelLinear {
 public:
  explicit RowParallelLinear(const LayerContext& context, Fp8Site site = {}) : c_(&context), site_(site) {}

  /// x [T, in/t] -> y [T', out]: all-reduce over tp of T * out elements, or reduce-scatter under sequence parallelism.
  Buffer forward(const LinearWeights& w, Tensor x) const;
  /// dy [T', out] -> [T, out], what backward_input and backward_weight take: all-gather under sequence parallelism,
  /// otherwise dy itself (returned buffer empty).
  Buffer gather_output_gradient(Tensor dy) const;
  /// dy [T, out] -> dx [T, in/t]. No communication.
  Buffer backward_input(const LinearWeights& w, Tensor dy) const;
  /// The same times gelu'(before), where x = gelu(before) [T, in/t].
  Buffer backward_input_gelu(const LinearWeights& w, Tensor dy, Tensor before) const;
  /// dA_i += dy^T x_i. No communication.
  void backward_weight(const LinearWeights& w, Tensor x, Tensor dy) const;

 private:
  const LayerContext* c_;
  Fp8Site site_;
};

}  // namespace triax::parallel
