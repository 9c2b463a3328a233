#include "parallel/unit_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "base/error.h"
#include "parallel/unit_walks.h"

namespace triax::parallel {

const char* name_of(UnitPass pass) {
  constexpr std::array<const char*, 4> kNames{"F", "B", "I", "W"};
  return kNames[static_cast<size_t>(pass)];
}

const char* name_of(KeepGathered keep) {
  constexpr std::array<const char*, 3> kNames{"forward", "backward", "step"};
  return kNames[static_cast<size_t>(keep)];
}

const char* name_of(UnitOpKind kind) {
  constexpr std::array<const char*, 6> kNames{"GATHER", "RELEASE", "COLLECT", "REDUCE", "FINISH", "RUN"};
  return kNames[static_cast<size_t>(kind)];
}

std::string text_of(const UnitOp& op) {
  if (op.kind == UnitOpKind::Run) return fmt::format("{} unit {}", name_of(op.use.pass), op.use.unit);
  return fmt::format("{} block {}", name_of(op.kind), op.block);
}

const std::vector<UnitUse>& walk_of(const ChunkWalk& walk, OpKind kind) {
  static const std::vector<UnitUse> kNothing;
  switch (kind) {
    case OpKind::Forward:
      return walk.forward;
    case OpKind::Backward:
      return walk.backward;
    case OpKind::BackwardInput:
      return walk.backward_input;
    case OpKind::BackwardWeight:
      return walk.backward_weight;
    default:
      return kNothing;
  }
}

bool holds(const PositionUnits::Block& block, int unit) {
  return std::find(block.units.begin(), block.units.end(), unit) != block.units.end();
}

bool adds_to(const PositionUnits::Block& block, const UnitUse& use) {
  if (!holds(block, use.unit) || use.pass == UnitPass::Forward) return false;
  if (use.pass == UnitPass::Backward) return true;
  return (use.pass == UnitPass::BackwardInput) == (block.phase == GradientPhase::Input);
}

bool reads_gradients(OpKind kind) {
  return kind == OpKind::SumTensorPartial || kind == OpKind::SumTied || kind == OpKind::ReduceGradients ||
         kind == OpKind::GradientNorm;
}

namespace {

/// One use in the sequence of the whole step.
struct Step {
  size_t op = 0;
  int micro_batch = 0;
  UnitUse use;
};

/// Weights of a block are there for the uses [first, last].
struct Stay {
  size_t first = 0, last = 0;
};

class Expansion {
 public:
  Expansion(const Program& program, int position)
      : options_(program.unit_options),
        ops_(program.positions[static_cast<size_t>(position)]),
        units_(program.units[static_cast<size_t>(position)]),
        result_(ops_.size()) {
    for (size_t i = 0; i < ops_.size(); ++i) {
      if (!is_compute(ops_[i].kind)) continue;
      const ChunkWalk& walk = units_.walks[static_cast<size_t>(ops_[i].chunk)];
      for (const UnitUse& use : walk_of(walk, ops_[i].kind)) steps_.push_back({i, ops_[i].micro_batch, use});
    }
    last_backward_.assign(units_.walks.size(), ops_.size());
    for (size_t i = 0; i < ops_.size(); ++i) {
      if (is_backward_weight(ops_[i].kind)) last_backward_[static_cast<size_t>(ops_[i].chunk)] = i;
    }
    before_.resize(steps_.size());
    after_.resize(steps_.size());
  }

  std::vector<std::vector<UnitOp>> run() {
    place_stays();
    size_t next = 0;
    for (size_t i = 0; i < ops_.size(); ++i) {
      size_t end = next;
      while (end < steps_.size() && steps_[end].op == i) ++end;
      run_op(i, next, end);
      next = end;
    }
    return std::move(result_);
  }

 private:
  /// The all-gathers run one after the other: what is needed first goes first.
  void place_stays() {
    std::vector<std::pair<Stay, int>> stays;
    for (int b = 0; b < static_cast<int>(units_.blocks.size()); ++b) {
      if (!units_.blocks[static_cast<size_t>(b)].gathered) continue;
      for (const Stay& stay : stays_of(b)) stays.emplace_back(stay, b);
    }
    std::stable_sort(stays.begin(), stays.end(),
                     [](const auto& a, const auto& b) { return a.first.first < b.first.first; });
    for (const auto& [stay, block] : stays) {
      const size_t ahead = std::min(stay.first, static_cast<size_t>(options_.prefetch));
      before_[stay.first - ahead].push_back({UnitOpKind::Gather, block, {}});
      after_[stay.last].push_back({UnitOpKind::Release, block, {}});
    }
  }

  std::vector<Stay> stays_of(int block) const {
    const PositionUnits::Block& b = units_.blocks[static_cast<size_t>(block)];
    std::vector<Stay> wanted;
    std::map<int, size_t> forward;  // index in wanted, by micro-batch
    for (size_t k = 0; k < steps_.size(); ++k) {
      const UnitUse& use = steps_[k].use;
      if (!use.reads_weights || !holds(b, use.unit)) continue;
      const auto open = forward.find(steps_[k].micro_batch);
      if (options_.keep == KeepGathered::Step && !wanted.empty()) {
        wanted.front().last = k;
      } else if (options_.keep == KeepGathered::Backward && open != forward.end()) {
        wanted[open->second].last = k;
      } else {
        forward[steps_[k].micro_batch] = wanted.size();
        wanted.push_back({k, k});
      }
    }
    // Where the next gather would be started before or right after the release, the weights stay.
    std::vector<Stay> stays;
    const auto prefetch = static_cast<size_t>(options_.prefetch);
    for (const Stay& stay : wanted) {
      if (!stays.empty() && stay.first <= stays.back().last + 1 + prefetch) {
        stays.back().last = std::max(stays.back().last, stay.last);
      } else {
        stays.push_back(stay);
      }
    }
    return stays;
  }

  void run_op(size_t op, size_t begin, size_t end) {
    std::vector<UnitOp>& list = result_[op];
    if (begin == end) {
      if (reads_gradients(ops_[op].kind)) finish_all(list, 0);
      return;
    }
    for (size_t k = begin; k < end; ++k) {
      list.insert(list.end(), before_[k].begin(), before_[k].end());
      if (options_.shards_gradients) collect(list, k, begin);
      list.push_back({UnitOpKind::Run, -1, steps_[k].use});
      list.insert(list.end(), after_[k].begin(), after_[k].end());
      if (options_.shards_gradients) {
        reduce(list, k, end);
      } else if (op == last_backward_[static_cast<size_t>(ops_[op].chunk)] && options_.reductions_in_flight > 0) {
        reduce_complete(list, k, end);
      }
    }
  }

  void finish_all(std::vector<UnitOp>& list, size_t but) {
    for (; in_flight_.size() > but; in_flight_.pop_front())
      list.push_back({UnitOpKind::Finish, in_flight_.front(), {}});
  }

  /// Before the first use in this op that adds to a block's gradients.
  void collect(std::vector<UnitOp>& list, size_t k, size_t begin) {
    for (size_t b = 0; b < units_.blocks.size(); ++b) {
      const PositionUnits::Block& block = units_.blocks[b];
      if (!adds_to(block, steps_[k].use)) continue;
      const auto earlier = [&](const Step& s) { return adds_to(block, s.use); };
      if (std::any_of(at(begin), at(k), earlier)) continue;
      finish_all(list, static_cast<size_t>(options_.reductions_in_flight));
      // Its own reduction of the micro-batch before must be through.
      const auto own = std::find(in_flight_.begin(), in_flight_.end(), static_cast<int>(b));
      if (own != in_flight_.end()) finish_all(list, static_cast<size_t>(in_flight_.end() - own) - 1);
      list.push_back({UnitOpKind::Collect, static_cast<int>(b), {}});
    }
  }

  /// After the last one.
  void reduce(std::vector<UnitOp>& list, size_t k, size_t end) {
    for (size_t b = 0; b < units_.blocks.size(); ++b) {
      const PositionUnits::Block& block = units_.blocks[b];
      if (!adds_to(block, steps_[k].use)) continue;
      const auto later = [&](const Step& s) { return adds_to(block, s.use); };
      if (std::any_of(at(k + 1), at(end), later)) continue;
      list.push_back({UnitOpKind::Reduce, static_cast<int>(b), {}});
      in_flight_.push_back(static_cast<int>(b));
      if (options_.reductions_in_flight == 0) finish_all(list, 0);
    }
  }
  /// Stages 0 and 1: a block is complete when the last backward of the chunk has run all its units.
  void reduce_complete(std::vector<UnitOp>& list, size_t k, size_t end) {
    for (size_t b = 0; b < units_.blocks.size(); ++b) {
      const PositionUnits::Block& block = units_.blocks[b];
      if (!holds(block, steps_[k].use.unit) || steps_[k].use.pass == UnitPass::Forward) continue;
      const auto later = [&](const Step& s) { return holds(block, s.use.unit) && s.use.pass != UnitPass::Forward; };
      if (std::none_of(at(k + 1), at(end), later)) list.push_back({UnitOpKind::Reduce, static_cast<int>(b), {}});
    }
  }
  std::vector<Step>::const_iterator at(size_t k) const { return steps_.begin() + static_cast<std::ptrdiff_t>(k); }

  const UnitOptions& options_;
  const std::vector<Op>& ops_;
  const PositionUnits& units_;
  std::vector<Step> steps_;
  std::vector<std::vector<UnitOp>> before_, after_;  // gathers and releases around each step
  std::deque<int> in_flight_;
  std::vector<size_t> last_backward_;  // [chunk]: index of the op
  std::vector<std::vector<UnitOp>> result_;
};

}  // namespace

std::vector<std::vector<UnitOp>> unit_ops(const Program& program, int position) {
  const auto i = static_cast<size_t>(position);
  if (program.units.empty()) return std::vector<std::vector<UnitOp>>(program.positions[i].size());
  return Expansion(program, position).run();
}

}  // namespace triax::parallel
