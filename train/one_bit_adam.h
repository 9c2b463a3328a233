// 1-bit Adam (Tang et al. 2021, arXiv 2102.02888, algorithm 1): after some updates of plain Adam its second moment is
// frozen, and what travels is the momentum, as signs and one scale per block, with error feedback on both ends.
#pragma once

#include <span>
#include <vector>

#include "comm/communicator.h"
#include "io/run_options.h"
#include "train/gradient_compression.h"
#include "train/optimizer.h"

namespace triax::train {

/// In force while compression.active(). Tensors that are not compressed have plain sums and plain Adam throughout.
/// Element by element, over d dp ranks, f the factor that makes the mean gradient of the sum (StepBlock::grad_scale):
///   m_i = (beta1 m + d (1 - beta1) f g_i) / d    m = sum over ranks of m_i, coded twice
///   w -= lr (mhat / (sqrt(vhat) + eps) + weight_decay w)
/// vhat keeps the bias correction of the last update before the freeze. Elements whose v is 0 stay as they are. Every
/// rank needs all of m; where it owns a part of the states (ZeRO 1), the rest is kept beside it
/// (MemoryCategory::Optimizer), gathered once when the warm-up ends or a run goes on.
class OneBitAdam {
 public:
  /// `blocks`: of the flat arrays, each owned in equal pieces by the ranks of `data` where states are sharded.
  OneBitAdam(const io::OptimizerOptions& options, const parallel::ParameterStore& store,
             std::span<const parallel::FlatRange> blocks, Optimizer& optimizer, GradientCompression& compression,
             comm::Communicator& data, comm::Communicator& world, kernels::Device& device, Arena& arena);

  /// Stands for the square of the gradient's norm, which no rank knows: the mean over dp ranks of the squares of d
  /// times their own compressed gradients, at least the square of the mean's norm, and the plain sums' squares.
  /// All-reduces one fp64 over the world.
  double sum_of_squares();
  /// One update; communicates the momentum over dp. Nothing happens when skip is set. `step` is the device's block,
  /// which holds what `now` does.
  void step(const kernels::StepBlock& now, const kernels::StepBlock* step);

 private:
  /// A run of one tensor, within what this rank owns: owned()[owned].
  struct Update {
    parallel::FlatRange range;
    size_t owned = 0;
    double weight_decay = 0;
  };
  void add_updates(const parallel::FlatRange& range, double weight_decay, std::vector<Update>& updates) const;
  void gather_momentum();
  Tensor own(Tensor state, const Update& update) const;

  io::OptimizerOptions options_;
  const parallel::ParameterStore* store_;
  std::vector<parallel::FlatRange> blocks_;
  Optimizer* optimizer_;
  GradientCompression* compression_;
  comm::Communicator* data_;
  comm::Communicator* world_;
  kernels::Device* device_;
  std::vector<parallel::FlatRange> coded_;             // compressed tensors
  std::vector<Update> coded_updates_, plain_updates_;  // of what this rank owns
  std::vector<parallel::FlatRange> counted_;           // compressed, for the norm
  std::vector<parallel::FlatRange> counted_plain_;     // the rest, whose sums this rank has
  double plain_share_ = 1;                             // of those sums' squares: 1 / d where all dp ranks have them
  Buffer momentum_buffer_, sum_buffer_;
  Tensor momentum_;                    // flat, all of it
  std::vector<kernels::AdamW> plain_;  // of a step: one call for all
  bool gathered_ = true;
  Tensor sum_;  // [1] fp64
};

}  // namespace triax::train
