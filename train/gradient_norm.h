// The global gradient norm, the overflow test that comes with it, and the one factor that the optimizer applies.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "kernels/device.h"
#include "parallel/parameter.h"
#include "train/optimizer.h"

namespace triax::train {

/// Flat ranges whose elements this rank counts, so that every element of the model counts once over the tp x pp ranks:
/// replica 0 of replicated tensors, not the tied copy. Padding and alignment are zero and may lie within.
std::vector<FlatRange> counted_ranges(const parallel::ParameterStore& store);
/// The parts of `ranges` that lie within `owned`.
std::vector<FlatRange> parts_within(const std::vector<FlatRange>& ranges, std::span<const FlatRange> owned);

/// Sums squares over `ranges` of this rank's gradients (counted_ranges() of what it owns) and all-reduces one fp64 over
/// `group` (8 bytes): tp x pp where every dp rank holds all gradients, else the world. Call after the reduction over
/// dp.
class GradientNorm {
 public:
  GradientNorm(const parallel::ParameterStore& store, std::vector<FlatRange> ranges, comm::Communicator& group,
               kernels::Device& device, Arena& arena);
  /// sum of g^2 over the whole model, in fp64, as accumulated (not yet scaled). Not finite exactly when some gradient
  /// on some rank is infinite or NaN: squares of finite fp32 values cannot overflow fp64.
  double sum_of_squares();

 private:
  const parallel::ParameterStore* store_;
  std::vector<FlatRange> ranges_;
  comm::Communicator* group_;
  kernels::Device* device_;
  Buffer sum_buffer_;
  Tensor sum_;  // [1] fp64
};

/// Gradients hold (loss_scale / T) * d(sum of token losses)/dw, T tokens of a micro-batch; the mean over all N counted
/// tokens of the global batch is that times T / (loss_scale N).
double mean_factor(int64_t micro_batch_tokens, double loss_scale, double global_tokens);
/// clip / (norm + 1e-6) where that is below 1 (Megatron, PyTorch), else 1; 1 when clip is 0 (off).
double clip_factor(double clip, double norm);
/// Name of the first tensor of this rank whose gradient is not finite; empty when all are.
std::string first_nonfinite(const parallel::ParameterStore& store, kernels::Device& device, Arena& arena);

}  // namespace triax::train
