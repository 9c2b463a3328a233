// What each op of a program makes, needs and frees. The checker proves lifetimes with it, the simulator counts what is
// in flight, dependencies follow from it; the memory executor attaches bytes.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "parallel/program.h"

namespace triax::parallel {

/// Tensors of one (chunk, micro-batch) on one position.
enum class StepTensor : uint8_t {
  Batch,           ///< tokens, targets, positions
  Input,           ///< activation that the chunk's forward reads (not on the first virtual stage)
  Output,          ///< activation on its way to another position
  Checkpoint,      ///< what a Recompute starts from
  Activations,     ///< saved by the forward (or its recomputation) for the backward
  OutputGradient,  ///< gradient that the chunk's backward reads (not on the last virtual stage)
  InputGradient,   ///< gradient on its way to another position
  WeightInputs,    ///< output gradients of the linear layers, kept from I to W
};
inline constexpr int kNumStepTensors = 8;
/// "batch", "input activation", ...
const char* name_of(StepTensor tensor);

enum class Effect : uint8_t { Alloc, Use, Free };

struct MemoryEffect {
  Effect effect = Effect::Use;
  StepTensor tensor = StepTensor::Batch;
  int chunk = 0;
  int micro_batch = 0;
  bool operator==(const MemoryEffect&) const = default;
};

/// Effects of one op; at most six.
class EffectList {
 public:
  void add(Effect effect, StepTensor tensor, int chunk, int micro_batch) {
    effects_[size_++] = {effect, tensor, chunk, micro_batch};
  }
  const MemoryEffect* begin() const { return effects_.data(); }
  const MemoryEffect* end() const { return effects_.data() + size_; }
  size_t size() const { return size_; }

 private:
  std::array<MemoryEffect, 6> effects_;
  size_t size_ = 0;
};

/// The rules, for one program. A program without backward ops (evaluation) keeps nothing after a forward; one with
/// Recompute ops keeps a checkpoint instead of the activations.
class MemoryRules {
 public:
  explicit MemoryRules(const Program& program);
  /// What `op` does on `position`, in the order needs, makes, frees. Data for a virtual stage on the same position is
  /// made there at once as its Input or OutputGradient; else it is made as Output or InputGradient and freed by the
  /// send.
  EffectList effects(int position, const Op& op) const;

 private:
  void forward(int position, const Op& op, EffectList& list) const;
  void backward_input(int position, const Op& op, EffectList& list) const;

  const LayerMap* layers_;
  bool has_backward_ = false;
  bool has_recompute_ = false;
};

/// Largest number of chunk activations in flight on each position: F done, W (or B) not done. In units of micro-batches
/// divide by the chunks.
std::vector<int> in_flight_peaks(const Program& program);

}  // namespace triax::parallel
