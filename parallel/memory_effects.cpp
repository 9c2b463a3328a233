#include "parallel/memory_effects.h"

#include <algorithm>

namespace triax::parallel {

const char* name_of(StepTensor tensor) {
  constexpr std::array<const char*, kNumStepTensors> kNames{
      "batch",       "input activation", "output activation", "checkpoint",
      "activations", "output gradient",  "input gradient",    "inputs of the weight gradient"};
  return kNames[static_cast<size_t>(tensor)];
}

MemoryRules::MemoryRules(const Program& program) : layers_(&program.layers) {
  for (const auto& ops : program.positions) {
    for (const Op& op : ops) {
      has_backward_ = has_backward_ || is_backward_input(op.kind);
      has_recompute_ = has_recompute_ || op.kind == OpKind::Recompute;
    }
  }
}

void MemoryRules::forward(int position, const Op& op, EffectList& list) const {
  const int stage = layers_->virtual_stage(position, op.chunk);
  const int mb = op.micro_batch;
  list.add(has_backward_ ? Effect::Use : Effect::Free, StepTensor::Batch, op.chunk, mb);
  if (stage > 0) list.add(Effect::Free, StepTensor::Input, op.chunk, mb);
  if (has_backward_) {
    list.add(Effect::Alloc, has_recompute_ ? StepTensor::Checkpoint : StepTensor::Activations, op.chunk, mb);
  }
  if (stage + 1 == layers_->num_virtual_stages()) return;
  if (layers_->position_of(stage + 1) == position) {
    list.add(Effect::Alloc, StepTensor::Input, layers_->chunk_of(stage + 1), mb);
  } else {
    list.add(Effect::Alloc, StepTensor::Output, op.chunk, mb);
  }
}

void MemoryRules::backward_input(int position, const Op& op, EffectList& list) const {
  const int stage = layers_->virtual_stage(position, op.chunk);
  const int mb = op.micro_batch;
  if (stage + 1 < layers_->num_virtual_stages()) list.add(Effect::Free, StepTensor::OutputGradient, op.chunk, mb);
  if (stage == 0) return;
  if (layers_->position_of(stage - 1) == position) {
    list.add(Effect::Alloc, StepTensor::OutputGradient, layers_->chunk_of(stage - 1), mb);
  } else {
    list.add(Effect::Alloc, StepTensor::InputGradient, op.chunk, mb);
  }
}

EffectList MemoryRules::effects(int position, const Op& op) const {
  EffectList list;
  const int mb = op.micro_batch;
  const auto free_saved = [&] {
    list.add(Effect::Free, StepTensor::Activations, op.chunk, mb);
    list.add(Effect::Free, StepTensor::Batch, op.chunk, mb);
    if (has_recompute_) list.add(Effect::Free, StepTensor::Checkpoint, op.chunk, mb);
  };
  switch (op.kind) {
    case OpKind::LoadBatch:
      list.add(Effect::Alloc, StepTensor::Batch, op.chunk, mb);
      break;
    case OpKind::Forward:
      forward(position, op, list);
      break;
    case OpKind::Recompute:
      list.add(Effect::Use, StepTensor::Checkpoint, op.chunk, mb);
      list.add(Effect::Alloc, StepTensor::Activations, op.chunk, mb);
      break;
    case OpKind::Backward:
      backward_input(position, op, list);
      free_saved();
      break;
    case OpKind::BackwardInput:
      list.add(Effect::Use, StepTensor::Activations, op.chunk, mb);
      backward_input(position, op, list);
      list.add(Effect::Alloc, StepTensor::WeightInputs, op.chunk, mb);
      break;
    case OpKind::BackwardWeight:
      list.add(Effect::Free, StepTensor::WeightInputs, op.chunk, mb);
      free_saved();
      break;
    case OpKind::SendActivation:
      list.add(Effect::Free, StepTensor::Output, op.chunk, mb);
      break;
    case OpKind::RecvActivation:
      list.add(Effect::Alloc, StepTensor::Input, op.chunk, mb);
      break;
    case OpKind::GatherActivation:
      list.add(Effect::Use, StepTensor::Input, op.chunk, mb);
      break;
    case OpKind::GatherGradient:
      list.add(Effect::Use, StepTensor::OutputGradient, op.chunk, mb);
      break;
    case OpKind::SendGradient:
      list.add(Effect::Free, StepTensor::InputGradient, op.chunk, mb);
      break;
    case OpKind::RecvGradient:
      list.add(Effect::Alloc, StepTensor::OutputGradient, op.chunk, mb);
      break;
    default:
      break;
  }
  return list;
}

std::vector<int> in_flight_peaks(const Program& program) {
  std::vector<int> peaks;
  for (const auto& ops : program.positions) {
    int live = 0;
    int peak = 0;
    for (const Op& op : ops) {
      if (is_forward(op.kind)) peak = std::max(peak, ++live);
      if (is_backward_weight(op.kind)) --live;
    }
    peaks.push_back(peak);
  }
  return peaks;
}

}  // namespace triax::parallel
