// The layouts that a planner may choose from: which values each axis may take, and every combination that divides
// evenly.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "io/run_options.h"
#include "plan/step_shape.h"

namespace triax::plan {

/// One candidate: what the planner decides. All else is as the run's options say.
struct Layout {
  int tensor = 1, pipeline = 1, chunks = 1, data = 1;
  parallel::ScheduleKind schedule = parallel::ScheduleKind::OneFOneB;
  int zero = 0, shard_group = 1;  ///< the group: divides data; data where nothing is hybrid
  int micro_batch = 1;
  parallel::RecomputeGranularity recompute = parallel::RecomputeGranularity::None;
  bool sequence_parallel = false;
  comm::RankOrder order = comm::RankOrder::TpCpDpPp;
  bool operator==(const Layout&) const = default;
};

/// The axes in the order in which they are explained.
enum class PlanAxis {
  Tensor,
  Pipeline,
  Chunks,
  Schedule,
  Zero,
  ShardGroup,
  MicroBatch,
  Recompute,
  SequenceParallel,
  Order
};
inline constexpr int kNumPlanAxes = 10;
/// "tp", "pp", "vpp", "schedule", "zero", "shard group", "micro-batch", "recompute", "sequence parallel", "rank order".
const char* name_of(PlanAxis axis);
/// The value on an axis as a small number; its text: "8", "zb-h1", "selective", "on", "tp-dp-pp".
int value_of(const Layout& layout, PlanAxis axis);
std::string text_of(PlanAxis axis, int value);
/// "tp8 pp4 dp4 zero1 b1 selective sp 1f1b"
std::string text_of(const Layout& layout);

/// Allowed values, ascending; an empty list stands for every value that makes sense on so many devices.
struct PlanSpace {
  std::vector<int> tensor, pipeline, chunks, zero, shard_group, micro_batch;
  std::vector<parallel::ScheduleKind> schedules;
  std::vector<parallel::RecomputeGranularity> recompute;
  std::vector<bool> sequence_parallel;
  std::vector<comm::RankOrder> orders;
  int most_tensor = 0;  ///< where `tensor` is empty; 0: devices of a node
};

/// Values that no layout can have, each with the rule that it breaks ("must divide --num-attention-heads 12").
using BrokenRules = std::map<std::pair<PlanAxis, int>, std::string>;

/// Calls `visit` for every layout of `devices` devices over which model and batch divide evenly. The rules are those of
/// io::resolve (ranks, heads, widths, layers per stage, micro-batches, schedules): what is visited runs. The innermost
/// loops change only what the times of a layer do not depend on. `base`: model, global batch, precision.
void for_each_layout(const io::RunOptions& base, int devices, int devices_per_node, const PlanSpace& space,
                     BrokenRules& broken, const std::function<void(const Layout&)>& visit);

/// The run's options with this layout, ready for io::resolve on layout.tensor * pipeline * data ranks.
io::RunOptions options_of(const io::RunOptions& base, const Layout& layout);
/// The same as numbers; `base` is shape_of these options in any layout, resolved.
StepShape shape_of(const StepShape& base, const io::RunOptions& run, const Layout& layout);

}  // namespace triax::plan
