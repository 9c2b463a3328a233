// Memory of the fullest pipeline position by the closed forms of model/memory_formulas.h, without making its schedule:
// for pruning a million layouts. The chosen ones are counted by plan::memory_by_formula.
#pragma once

#include <map>
#include <tuple>

#include "plan/memory_report.h"
#include "plan/planner/space.h"

namespace triax::plan {

class QuickMemory {
 public:
  /// `base`: model, precision and optimizer of the run; need not be resolved.
  explicit QuickMemory(const io::RunOptions& base);

  /// Bytes of the fuller of the first and the last position. Layers are spread evenly; activations are counted at the
  /// moment with the most chunks in flight, which for the last position may miss one micro-batch's logits.
  double bytes(const Layout& layout, const StepShape& shape);

 private:
  /// Chunks alive at the fullest moment of a position, and those of them that are its first or last virtual stage.
  struct Live {
    int all = 0, first = 0, last = 0;
  };
  /// Of the first and the last position.
  struct InFlight {
    Live first, last;
  };
  using Key = std::tuple<parallel::ScheduleKind, int, int, int64_t>;
  const InFlight& in_flight(const Layout& layout, int64_t micro_batches);

  struct Position {
    bool first = false, last = false;  ///< holds the embedding, the head
    int64_t layers = 0;
    Live live;
  };
  double bytes_of(const Position& position, const Layout& layout, const StepShape& shape) const;

  io::RunOptions base_;
  model::ModelConfig model_;
  model::StateWidths widths_;
  int64_t statistic_bytes_;
  int64_t bucket_, prefetch_;
  parallel::Recompute recompute_;
  std::map<Key, InFlight> in_flight_;
};

}  // namespace triax::plan
