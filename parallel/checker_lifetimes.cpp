// Every tensor of a step is made once, used while it lives, and freed once.
#include <fmt/format.h>

#include "parallel/checker_parts.h"
#include "parallel/memory_effects.h"
#include "parallel/program_print.h"

namespace triax::parallel {
namespace {

constexpr int kNever = -1;

struct Life {
  int made = kNever;   // op that made it
  int freed = kNever;  // op that freed it after that
};

std::string tensor_of(const Program& program, int position, const MemoryEffect& e) {
  return fmt::format("{} of virtual stage {}, micro-batch {}", name_of(e.tensor),
                     program.layers.virtual_stage(position, e.chunk), e.micro_batch);
}

std::string maker_of(StepTensor tensor) {
  switch (tensor) {
    case StepTensor::Batch:
      return "LOAD";
    case StepTensor::Input:
      return "RECV_F, or the F before it on this position";
    case StepTensor::OutputGradient:
      return "RECV_B, or the backward before it on this position";
    case StepTensor::Output:
    case StepTensor::Checkpoint:
      return "F";
    case StepTensor::Activations:
      return "F, or R";
    case StepTensor::InputGradient:
      return "B or I";
    case StepTensor::WeightInputs:
      return "I";
  }
  return "";
}

std::string apply(const Program& program, int position, int index, const MemoryEffect& e, Life& life) {
  const auto at = [&](const std::string& what) {
    return fmt::format("{}: {}: {}", place_of(program, position, index), what, tensor_of(program, position, e));
  };
  const auto by = [&](int op) { return place_of(program, position, op); };
  if (e.effect == Effect::Alloc) {
    const bool lives = life.made != kNever && life.freed == kNever;
    const std::string fault = lives ? at("makes twice what " + by(life.made) + " has made and nothing freed") : "";
    life = {index, kNever};
    return fault;
  }
  const bool frees = e.effect == Effect::Free;
  if (life.made == kNever) {
    return at(fmt::format("{} what was never made ({} is missing or comes later)", frees ? "consumes" : "uses",
                          maker_of(e.tensor)));
  }
  if (life.freed != kNever) {
    return at(fmt::format("{} freed by {}", frees ? "double free, already" : "use after free,", by(life.freed)));
  }
  if (frees) life.freed = index;
  return "";
}

}  // namespace

void check_lifetimes(const Program& program, Faults& faults) {
  const MemoryRules rules(program);
  const auto m = static_cast<size_t>(program.num_micro_batches);
  const auto tensors = static_cast<size_t>(kNumStepTensors);
  for (int i = 0; i < program.pipeline; ++i) {
    std::vector<Life> lives(static_cast<size_t>(program.chunks) * m * tensors);
    const auto& ops = program.positions[static_cast<size_t>(i)];
    for (int index = 0; index < static_cast<int>(ops.size()); ++index) {
      for (const MemoryEffect& e : rules.effects(i, ops[static_cast<size_t>(index)])) {
        const size_t slot = (static_cast<size_t>(e.chunk) * m + static_cast<size_t>(e.micro_batch)) * tensors +
                            static_cast<size_t>(e.tensor);
        if (std::string fault = apply(program, i, index, e, lives[slot]); !fault.empty()) {
          faults.push_back(std::move(fault));
        }
      }
    }
    for (size_t slot = 0; slot < lives.size(); ++slot) {
      if (lives[slot].made == kNever || lives[slot].freed != kNever) continue;
      const MemoryEffect e{Effect::Use, static_cast<StepTensor>(slot % tensors), static_cast<int>(slot / tensors / m),
                           static_cast<int>(slot / tensors % m)};
      faults.push_back(fmt::format("{}: makes what nothing frees: {}", place_of(program, i, lives[slot].made),
                                   tensor_of(program, i, e)));
    }
  }
}

}  // namespace triax::parallel
