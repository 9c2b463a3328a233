// Nothing is missing, nothing happens twice, sums come after what they sum, the optimizer comes last.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "parallel/checker_parts.h"
#include "parallel/program_print.h"

namespace triax::parallel {
namespace {

class PositionCounts {
 public:
  PositionCounts(const Program& program, int position, Faults& faults)
      : program_(program), position_(position), faults_(faults) {}

  void run(bool training) {
    const auto& ops = program_.positions[static_cast<size_t>(position_)];
    for (int index = 0; index < static_cast<int>(ops.size()); ++index) visit(ops[static_cast<size_t>(index)], index);
    check_message_gathers();
    for (int chunk = 0; chunk < program_.chunks; ++chunk) {
      for (int mb = 0; mb < program_.num_micro_batches; ++mb) check_micro_batch(chunk, mb, training);
    }
    if (training) check_end();
    int expected = 0;
    for (const auto& [bucket, index] : buckets_) {
      if (bucket != expected) fault(fmt::format("bucket {} is never reduced (REDUCE_GRAD missing)", expected));
      expected = bucket + 1;
    }
  }

 private:
  using Key = std::pair<int, int>;  // chunk, micro-batch

  void fault(const std::string& text) { faults_.push_back(fmt::format("position {}: {}", position_, text)); }
  void fault_at(int index, const std::string& text) {
    faults_.push_back(place_of(program_, position_, index) + ": " + text);
  }
  std::string name(int chunk, OpKind kind, int mb) const {
    Op op;
    op.kind = kind;
    op.chunk = chunk;
    op.micro_batch = mb;
    return text_of(program_.layers, position_, op);
  }

  // Where messages travel in slices, each received one is made whole once.
  void check_message_gathers() {
    const auto& made = [&](OpKind kind) -> const std::map<Key, int>& { return done_[static_cast<size_t>(kind)]; };
    const bool scattered = std::any_of(program_.positions.begin(), program_.positions.end(), [](const auto& ops) {
      return std::any_of(ops.begin(), ops.end(), [](const Op& op) { return is_message_gather(op.kind); });
    });
    if (!scattered) return;
    for (const auto& [receive, gather] : {std::pair{OpKind::RecvActivation, OpKind::GatherActivation},
                                          std::pair{OpKind::RecvGradient, OpKind::GatherGradient}}) {
      for (const auto& [key, index] : made(receive)) {
        if (!made(gather).contains(key)) fault_at(index, "receives a slice that is never gathered over tp");
      }
    }
  }

  void visit(const Op& op, int index) {
    if (is_receive(op.kind)) done_[static_cast<size_t>(op.kind)].emplace(Key{op.chunk, op.micro_batch}, index);
    if (is_compute(op.kind) || is_message_gather(op.kind)) {
      const auto [first, fresh] = done_[static_cast<size_t>(op.kind)].emplace(Key{op.chunk, op.micro_batch}, index);
      if (!fresh) fault_at(index, fmt::format("happens twice, first as op {}", first->second));
    }
    if (is_backward_weight(op.kind)) {
      if (const auto sum = sums_.find(op.chunk); sum != sums_.end()) {
        fault_at(index, fmt::format("adds to gradients that op {} has already summed", sum->second));
      }
      if (norm_) fault_at(index, fmt::format("comes after the gradient norm (op {})", *norm_));
    }
    if (op.kind == OpKind::ReduceGradients || op.kind == OpKind::SumTensorPartial || op.kind == OpKind::SumTied) {
      sums_.emplace(op.chunk, index);
      if (norm_) fault_at(index, fmt::format("comes after the gradient norm (op {})", *norm_));
    }
    if (op.kind == OpKind::ReduceGradients) {
      const auto [first, fresh] = buckets_.emplace(op.bucket, index);
      if (!fresh) fault_at(index, fmt::format("bucket {} is reduced twice, first by op {}", op.bucket, first->second));
    }
    if (op.kind == OpKind::GatherParameters) {
      const auto [first, fresh] = gathers_.emplace(op.bucket, index);
      if (!fresh) fault_at(index, fmt::format("block {} is gathered twice, first by op {}", op.bucket, first->second));
      if (op.stream == Stream::Data && has_forward(op.chunk)) fault_at(index, "comes after a forward that needs it");
      if (op.stream != Stream::Data && !step_)
        fault_at(index, "comes before the optimizer step whose weights it sends");
    }
    if (op.kind == OpKind::GradientNorm) once(norm_, index);
    if (op.kind == OpKind::OptimizerStep) {
      once(step_, index);
      if (!norm_) fault_at(index, "comes before the gradient norm");
    }
  }
  void once(std::optional<int>& seen, int index) {
    if (seen) fault_at(index, fmt::format("happens twice, first as op {}", *seen));
    if (!seen) seen = index;
  }

  bool has_forward(int chunk) const {
    const auto& forwards = done_[static_cast<size_t>(OpKind::Forward)];
    return std::any_of(forwards.begin(), forwards.end(), [&](const auto& f) { return f.first.first == chunk; });
  }
  bool has(OpKind kind, int chunk, int mb) const { return done_[static_cast<size_t>(kind)].contains({chunk, mb}); }

  void check_micro_batch(int chunk, int mb, bool training) {
    if (!has(OpKind::Forward, chunk, mb)) fault(name(chunk, OpKind::Forward, mb) + " is missing");
    if (!training) return;
    const bool whole = has(OpKind::Backward, chunk, mb);
    const bool input = has(OpKind::BackwardInput, chunk, mb);
    const bool weight = has(OpKind::BackwardWeight, chunk, mb);
    const std::string backward = name(chunk, OpKind::Backward, mb);
    if (whole && (input || weight)) {
      fault(fmt::format("{} happens twice: whole, and as {}", backward,
                        name(chunk, input ? OpKind::BackwardInput : OpKind::BackwardWeight, mb)));
    } else if (!whole && !input && !weight) {
      fault(backward + " is missing (or its I and W)");
    } else if (!whole && !(input && weight)) {
      fault(name(chunk, input ? OpKind::BackwardWeight : OpKind::BackwardInput, mb) + " is missing");
    }
  }

  void check_end() {
    if (!norm_) fault("NORM is missing");
    if (!step_) fault("OPT is missing");
  }

  const Program& program_;
  int position_;
  Faults& faults_;
  std::array<std::map<Key, int>, kNumOpKinds> done_;
  std::map<int, int> sums_;     // first gradient sum of each chunk
  std::map<int, int> buckets_;  // index of each bucket's reduction
  std::map<int, int> gathers_;  // index of each block's gather
  std::optional<int> norm_, step_;
};

}  // namespace

void check_counts(const Program& program, Faults& faults) {
  const bool training = std::any_of(program.positions.begin(), program.positions.end(), [](const auto& ops) {
    return std::any_of(ops.begin(), ops.end(), [](const Op& op) {
      return is_backward_input(op.kind) || is_backward_weight(op.kind) || op.kind == OpKind::OptimizerStep;
    });
  });
  for (int i = 0; i < program.pipeline; ++i) PositionCounts(program, i, faults).run(training);
}

}  // namespace triax::parallel
