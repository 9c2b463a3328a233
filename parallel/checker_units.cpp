// Inside the ops of a position under ZeRO 2 and 3: weights are there when they are read, gradients reach their owners.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "parallel/checker.h"
#include "parallel/checker_parts.h"
#include "parallel/program_print.h"
#include "parallel/unit_walks.h"

namespace triax::parallel {
namespace {

struct Place {
  int op = 0, inside = 0;
};

/// What has last happened to a block.
struct BlockState {
  std::optional<Place> gathered, released;           ///< gathered: its weights are there
  std::optional<Place> collected, written, reduced;  ///< of the bucket that is open; reduced: not finished yet
};

class PositionUnitOps {
 public:
  PositionUnitOps(const Program& program, int position, const std::vector<std::vector<UnitOp>>& lists, Faults& faults)
      : program_(program),
        position_(position),
        ops_(program.positions[static_cast<size_t>(position)]),
        units_(program.units[static_cast<size_t>(position)]),
        lists_(lists),
        faults_(faults),
        states_(units_.blocks.size()) {}

  void run() {
    for (at_.op = 0; at_.op < static_cast<int>(ops_.size()); ++at_.op) {
      const Op& op = ops_[static_cast<size_t>(at_.op)];
      const std::vector<UnitOp>& list = lists_[static_cast<size_t>(at_.op)];
      for (at_.inside = 0; at_.inside < static_cast<int>(list.size()); ++at_.inside) {
        visit(list[static_cast<size_t>(at_.inside)]);
      }
      check_runs(op, list);
      if (reads_gradients(op.kind)) check_finished("is not finished before " + place_of(program_, position_, at_.op));
    }
    check_finished("is never finished");
    for (size_t b = 0; b < states_.size(); ++b) {
      if (states_[b].gathered) fault(*states_[b].gathered, "gathered and never released");
    }
  }

 private:
  std::string text(const Place& place) const {
    return fmt::format("{}, inside {} ({})", place_of(program_, position_, place.op), place.inside,
                       text_of(lists_[static_cast<size_t>(place.op)][static_cast<size_t>(place.inside)]));
  }
  void fault(const Place& place, const std::string& what) { faults_.push_back(text(place) + ": " + what); }

  void visit(const UnitOp& op) {
    if (op.kind == UnitOpKind::Run) return run_unit(op.use);
    if (op.block < 0 || static_cast<size_t>(op.block) >= states_.size()) {
      return fault(at_, fmt::format("names none of the {} blocks", states_.size()));
    }
    BlockState& state = states_[static_cast<size_t>(op.block)];
    const bool of_weights = op.kind == UnitOpKind::Gather || op.kind == UnitOpKind::Release;
    if (of_weights && !units_.blocks[static_cast<size_t>(op.block)].gathered) {
      return fault(at_, "the block is resident, not held in shards");
    }
    switch (op.kind) {
      case UnitOpKind::Gather:
        return gather(state);
      case UnitOpKind::Release:
        return release(state);
      case UnitOpKind::Collect:
        return collect(state);
      case UnitOpKind::Reduce:
        return reduce(state);
      default:
        return finish(state);
    }
  }

  void gather(BlockState& state) {
    if (state.gathered) fault(at_, "gathered twice, first by " + text(*state.gathered));
    state.gathered = at_;
  }
  void release(BlockState& state) {
    if (!state.gathered && !state.released) fault(at_, "releases what was never gathered");
    if (!state.gathered && state.released) fault(at_, "double release, already by " + text(*state.released));
    state.gathered.reset();
    state.released = at_;
  }
  void collect(BlockState& state) {
    if (state.reduced) {
      fault(at_, "collects into a bucket whose reduction is not finished: " + text(*state.reduced));
    } else if (state.collected) {
      fault(at_, "collected twice, without a reduction of " + text(*state.collected));
    }
    state.collected = at_;
    state.written.reset();
    state.reduced.reset();
  }
  void reduce(BlockState& state) {
    const bool collects = program_.unit_options.shards_gradients;  // else gradients have memory of their own
    if (collects && !state.collected) return fault(at_, "reduces what was never collected");
    if (state.reduced) return fault(at_, "reduced twice, first by " + text(*state.reduced));
    if (collects && !state.written)
      fault(at_, "reduces a bucket to which no unit has added since " + text(*state.collected));
    state.reduced = at_;
  }
  void finish(BlockState& state) {
    if (!state.reduced) fault(at_, "finishes a reduction that was never started");
    state.collected.reset();
    state.reduced.reset();
  }

  void run_unit(const UnitUse& use) {
    for (size_t b = 0; b < states_.size(); ++b) {
      const PositionUnits::Block& block = units_.blocks[b];
      BlockState& state = states_[b];
      if (use.reads_weights && block.gathered && holds(block, use.unit) && !state.gathered) {
        fault(at_, fmt::format("reads weights of block {}, {}", b,
                               state.released ? "released by " + text(*state.released) : "which were never gathered"));
      }
      const bool collects = program_.unit_options.shards_gradients;
      if (!collects && state.reduced && holds(block, use.unit) && use.pass != UnitPass::Forward) {
        fault(at_, fmt::format("adds to gradients of block {} that {} has reduced", b, text(*state.reduced)));
      }
      if (!collects || !adds_to(block, use)) continue;
      if (!state.collected) fault(at_, fmt::format("adds to gradients of block {}, which has no bucket", b));
      if (state.reduced) {
        fault(at_, fmt::format("adds to gradients of block {} that {} is reducing", b, text(*state.reduced)));
      }
      state.written = at_;
    }
  }

  void check_runs(const Op& op, const std::vector<UnitOp>& list) {
    const std::vector<UnitUse>& walk = walk_of(units_.walks[static_cast<size_t>(op.chunk)], op.kind);
    size_t next = 0;
    for (int k = 0; k < static_cast<int>(list.size()); ++k) {
      if (list[static_cast<size_t>(k)].kind != UnitOpKind::Run) continue;
      if (next == walk.size()) return fault({at_.op, k}, "the model runs no more units here");
      if (list[static_cast<size_t>(k)].use != walk[next]) {
        return fault({at_.op, k}, "the model runs " + run_text(walk[next]) + " here");
      }
      ++next;
    }
    if (next < walk.size()) {
      faults_.push_back(place_of(program_, position_, at_.op) + ": does not run " + run_text(walk[next]));
    }
  }
  static std::string run_text(const UnitUse& use) { return text_of(UnitOp{UnitOpKind::Run, -1, use}); }

  void check_finished(const std::string& when) {
    if (!program_.unit_options.shards_gradients) return;
    for (BlockState& state : states_) {
      if (state.reduced) {
        fault(*state.reduced, "the reduction " + when);
      } else if (state.collected) {
        fault(*state.collected, "the bucket is never reduced, and " + when);
      }
      state.collected.reset();  // said once
      state.reduced.reset();
    }
  }

  const Program& program_;
  int position_;
  const std::vector<Op>& ops_;
  const PositionUnits& units_;
  const std::vector<std::vector<UnitOp>>& lists_;
  Faults& faults_;
  std::vector<BlockState> states_;  ///< [block]
  Place at_;
};

}  // namespace

std::vector<std::string> check_units(const Program& program, int position,
                                     const std::vector<std::vector<UnitOp>>& lists) {
  Faults faults;
  const size_t ops = program.positions[static_cast<size_t>(position)].size();
  if (lists.size() != ops) {
    faults.push_back(fmt::format("position {}: {} lists of unit ops for {} ops", position, lists.size(), ops));
  } else if (!program.units.empty()) {
    PositionUnitOps(program, position, lists, faults).run();
  }
  return faults;
}

void check_units(const Program& program, Faults& faults) {
  if (program.units.empty()) return;
  for (int i = 0; i < program.pipeline; ++i) {
    for (std::string& fault : check_units(program, i, unit_ops(program, i))) faults.push_back(std::move(fault));
  }
}

}  // namespace triax::parallel
