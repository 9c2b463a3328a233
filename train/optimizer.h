// AdamW and SGD over the flat parameters of one rank: master weights and moments are flat arrays like the weights.
#pragma once

#include <cstdint>
#include <vector>

#include "base/memory.h"
#include "io/run_options.h"
#include "kernels/device.h"
#include "parallel/parameter.h"

namespace triax::train {

/// Elements [begin, end) of the flat arrays.
struct FlatRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const FlatRange&) const = default;
};

/// A run of parameters with the same weight decay.
struct DecayRange {
  FlatRange range;
  double weight_decay = 0;
  bool operator==(const DecayRange&) const = default;
};

/// Cuts `owned` into runs of equal weight decay: `weight_decay` where Parameter::weight_decay, else 0. The zeros of
/// alignment between parameters join the run before them: all their values stay 0 under every update.
std::vector<DecayRange> decay_ranges(const parallel::ParameterStore& store, double weight_decay, FlatRange owned);

/// Keeps state for `owned` only (a ZeRO rank owns a part of the flat arrays; without ZeRO all of it).
/// State: master weights (bf16, fp16 only; under fp32 and fp64 the weights are their own master), Adam's two moments or
/// SGD's momentum buffer (none at momentum 0), in `state_dtype`, MemoryCategory::Optimizer.
class Optimizer {
 public:
  Optimizer(const io::OptimizerOptions& options, const parallel::ParameterStore& store, kernels::Device& device,
            Arena& arena, DType state_dtype, FlatRange owned);

  /// One update of the owned weights from the flat gradient; everything that varies is read from `step`. No-op when
  /// step->skip is set.
  void step(const kernels::StepBlock* step);
  /// Makes the weights (of owned) from the masters, rounded to their dtype.
  void weights_from_master();

  FlatRange owned() const { return owned_; }
  /// [owned.size()], state dtype; under fp32 and fp64 a view of the weights.
  Tensor master() const { return master_; }
  Tensor exp_avg() const { return exp_avg_; }        ///< empty under SGD
  Tensor exp_avg_sq() const { return exp_avg_sq_; }  ///< empty under SGD
  Tensor momentum() const { return momentum_; }      ///< empty under Adam, and at momentum 0

 private:
  Tensor allocate_state(Arena& arena, DType dtype, Buffer& buffer);
  Tensor own(Tensor state, const FlatRange& range) const;

  io::OptimizerOptions options_;
  kernels::Device* device_;
  FlatRange owned_;
  std::vector<DecayRange> ranges_;
  Tensor weight_, grad_;  // flat, of the store
  Buffer master_buffer_, exp_avg_buffer_, exp_avg_sq_buffer_, momentum_buffer_;
  Tensor master_, exp_avg_, exp_avg_sq_, momentum_;
};

}  // namespace triax::train
