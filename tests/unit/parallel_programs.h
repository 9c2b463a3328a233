// Programs and costs that several tests of parallel/ use.
#pragma once

#include <string>
#include <vector>

#include "parallel/cost_table.h"
#include "parallel/schedule.h"

namespace triax::parallel {

inline ScheduleOptions schedule_options(ScheduleKind kind, int p, int v, int m, int group = 0) {
  return {kind, p, v, m, group};
}

inline ProgramOptions program_options(const ScheduleOptions& schedule) {
  ProgramOptions options;
  options.schedule = schedule;
  options.layers = make_layer_map(int64_t{schedule.pipeline} * schedule.chunks, placement_of(schedule), 0, 0, {});
  return options;
}

inline Program program_of(const ScheduleOptions& schedule) { return make_training_program(program_options(schedule)); }

/// Costs of a whole stage, spread over its chunks.
struct Costs {
  int64_t forward, input, weight;
  int64_t latency = 0;
};
inline CostTable table_of(const Program& program, const Costs& c) {
  UniformCosts costs;
  costs.forward_ps = {c.forward};
  costs.backward_input_ps = {c.input};
  costs.backward_weight_ps = {c.weight};
  costs.latency_ps = {c.latency};
  return make_cost_table(costs, program.pipeline, program.chunks);
}

/// One of each schedule on p positions and m micro-batches, p >= 2.
inline std::vector<ScheduleOptions> every_schedule(int p, int m) {
  return {schedule_options(ScheduleKind::GPipe, p, 1, m),        schedule_options(ScheduleKind::OneFOneB, p, 1, m),
          schedule_options(ScheduleKind::Interleaved, p, 3, m),  schedule_options(ScheduleKind::ZeroBubbleH1, p, 1, m),
          schedule_options(ScheduleKind::ZeroBubbleH2, p, 1, m), schedule_options(ScheduleKind::ZeroBubbleV, p, 2, m)};
}

}  // namespace triax::parallel
