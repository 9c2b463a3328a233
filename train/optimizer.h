// AdamW and SGD over the flat parameters that one rank owns: master weights and moments are flat arrays like the
// weights.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/memory.h"
#include "io/run_options.h"
#include "kernels/device.h"
#include "parallel/parameter.h"

namespace triax::train {

using parallel::FlatRange;

/// A run of parameters with the same weight decay.
struct DecayRange {
  FlatRange range;
  double weight_decay = 0;
  bool operator==(const DecayRange&) const = default;
};

/// Cuts `owned` into runs of equal weight decay: `weight_decay` where Parameter::weight_decay, else 0. The zeros of
/// alignment between parameters join the run before them: all their values stay 0 under every update.
std::vector<DecayRange> decay_ranges(const parallel::ParameterStore& store, double weight_decay, FlatRange owned);

/// Keeps state for what this rank owns (without ZeRO all of the flat arrays), range after range in one array each.
/// State: master weights (bf16, fp16 only; under fp32 and fp64 the weights are their own master), Adam's two moments or
/// SGD's momentum buffer (none at momentum 0), in `state_dtype`, MemoryCategory::Optimizer.
class Optimizer {
 public:
  /// `owned`: ascending and disjoint; the store must hold their weights and gradients.
  Optimizer(const io::OptimizerOptions& options, const parallel::ParameterStore& store, kernels::Device& device,
            Arena& arena, DType state_dtype, std::vector<FlatRange> owned);

  /// One update of the owned weights from their gradients; everything that varies is read from `step`. No-op when
  /// step->skip is set.
  void step(const kernels::StepBlock* step);
  /// Makes the weights (of what is owned) from the masters, rounded to their dtype.
  void weights_from_master();

  std::span<const FlatRange> owned() const { return owned_; }
  int64_t numel() const { return numel_; }  ///< elements owned
  /// State of owned()[i], state dtype; the master is a view of the weights under fp32 and fp64. Empty where the
  /// optimizer keeps no such array.
  Tensor master(size_t i) const;
  Tensor exp_avg(size_t i) const { return part(exp_avg_, i); }        ///< Adam
  Tensor exp_avg_sq(size_t i) const { return part(exp_avg_sq_, i); }  ///< Adam
  Tensor momentum(size_t i) const { return part(momentum_, i); }      ///< SGD with momentum

 private:
  Tensor allocate_state(Arena& arena, DType dtype, Buffer& buffer);
  Tensor part(Tensor state, size_t i) const;
  void update(size_t i, const DecayRange& range, const kernels::StepBlock* step);

  io::OptimizerOptions options_;
  const parallel::ParameterStore* store_;
  kernels::Device* device_;
  std::vector<FlatRange> owned_;
  std::vector<int64_t> begin_;                   ///< of each owned range in the state arrays
  std::vector<std::vector<DecayRange>> ranges_;  ///< of each owned range
  std::vector<kernels::AdamW> adam_;             ///< of the step: one call for all ranges
  int64_t numel_ = 0;
  Buffer master_buffer_, exp_avg_buffer_, exp_avg_sq_buffer_, momentum_buffer_;
  Tensor master_, exp_avg_, exp_avg_sq_, momentum_;
};

}  // namespace triax::train
