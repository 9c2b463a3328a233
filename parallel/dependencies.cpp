#include "parallel/dependencies.h"

#include <algorithm>
#include <unordered_map>

#include "parallel/memory_effects.h"

namespace triax::parallel {
namespace {

// Walks one position in order and remembers who made what.
class Walker {
 public:
  Walker(const Program& program, const MemoryRules& rules, int position)
      : rules_(&rules),
        position_(position),
        num_micro_batches_(static_cast<size_t>(program.num_micro_batches)),
        makers_(static_cast<size_t>(kNumStepTensors * program.chunks) * num_micro_batches_, -1),
        last_weight_(static_cast<size_t>(program.chunks), -1),
        gathers_(static_cast<size_t>(program.chunks)) {}

  void visit(const Op& op, int index, std::vector<OpRef>& refs) {
    for (const MemoryEffect& effect : rules_->effects(position_, op)) {
      int& maker = makers_[slot(effect)];
      if (effect.effect == Effect::Alloc) {
        maker = index;
      } else if (maker >= 0) {
        add(maker, refs);
      }
    }
    if (op.kind == OpKind::SumTensorPartial || op.kind == OpKind::ReduceGradients || op.kind == OpKind::SumTied) {
      add(last_weight_[static_cast<size_t>(op.chunk)], refs);
      sums_.push_back(index);
    }
    if (op.kind == OpKind::GradientNorm) {
      for (const int weight : last_weight_) add(weight, refs);
      for (const int sum : sums_) add(sum, refs);
      norm_ = index;
    }
    if (op.kind == OpKind::OptimizerStep) {
      add(norm_, refs);
      step_ = index;
    }
    if (op.kind == OpKind::GatherParameters) {
      add(step_, refs);
      gathers_[static_cast<size_t>(op.chunk)].push_back(index);
    }
    if (is_forward(op.kind)) {
      for (const int gather : gathers_[static_cast<size_t>(op.chunk)]) add(gather, refs);
    }
    if (is_backward_weight(op.kind)) last_weight_[static_cast<size_t>(op.chunk)] = index;
  }

 private:
  size_t slot(const MemoryEffect& e) const {
    const auto tensors = static_cast<size_t>(kNumStepTensors);
    return (static_cast<size_t>(e.chunk) * num_micro_batches_ + static_cast<size_t>(e.micro_batch)) * tensors +
           static_cast<size_t>(e.tensor);
  }
  void add(int index, std::vector<OpRef>& refs) {
    const OpRef ref{position_, index};
    if (index >= 0 && std::find(refs.begin(), refs.end(), ref) == refs.end()) refs.push_back(ref);
  }

  const MemoryRules* rules_;
  int position_;
  size_t num_micro_batches_;
  std::vector<int> makers_;
  std::vector<int> last_weight_;
  std::vector<int> sums_;
  int norm_ = -1, step_ = -1;
  std::vector<std::vector<int>> gathers_;  // [chunk]
};

}  // namespace

Dependencies::Dependencies(const Program& program) {
  std::unordered_map<int64_t, OpRef> sends;
  size_t num_ops = 0;
  for (int i = 0; i < static_cast<int>(program.positions.size()); ++i) {
    const auto& ops = program.positions[static_cast<size_t>(i)];
    num_ops += ops.size();
    for (int k = 0; k < static_cast<int>(ops.size()); ++k) {
      if (is_send(ops[static_cast<size_t>(k)].kind)) sends.emplace(ops[static_cast<size_t>(k)].match, OpRef{i, k});
    }
  }
  const MemoryRules rules(program);
  starts_.reserve(num_ops + 1);
  for (int i = 0; i < static_cast<int>(program.positions.size()); ++i) {
    position_start_.push_back(starts_.size());
    Walker walker(program, rules, i);
    int index = 0;
    for (const Op& op : program.positions[static_cast<size_t>(i)]) {
      starts_.push_back(refs_.size());
      std::vector<OpRef> refs;
      if (is_receive(op.kind)) {
        if (const auto send = sends.find(op.match); send != sends.end()) refs.push_back(send->second);
      }
      walker.visit(op, index++, refs);
      refs_.insert(refs_.end(), refs.begin(), refs.end());
    }
  }
  starts_.push_back(refs_.size());
}

std::span<const OpRef> Dependencies::of(OpRef op) const {
  const size_t at = position_start_[static_cast<size_t>(op.position)] + static_cast<size_t>(op.index);
  return std::span(refs_).subspan(starts_[at], starts_[at + 1] - starts_[at]);
}

}  // namespace triax::parallel
