// Runs a program over time without running it: list scheduling with in-order streams.
//
// A lane is one pipeline position of one replica. Its ops start in order: a compute op when the lane is free; a receive
// holds the lane until its message is there; a send takes no time of the lane, the message arrives flight_ps later.
// ReduceGradients on the data stream runs beside the lane, in the order of the program: it starts when all replicas
// have reached it and the reduction before it has ended, and GradientNorm waits for all of them. SumTied, GradientNorm,
// and a ReduceGradients on another stream hold the lane until all partners have come. Times are whole picoseconds, so
// the result does not depend on the order in which lanes are advanced.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/cost_table.h"
#include "parallel/idle.h"
#include "parallel/program.h"
#include "parallel/time_model.h"

namespace triax::parallel {

struct SimulationOptions {
  int replicas = 1;  ///< data-parallel; folded to one where they run alike
  TimeOptions time;
  int recorded_replica = 0;  ///< whose op times are kept
};

/// One pipeline position; sums over replicas are divided by their number.
struct StageTimes {
  int64_t busy_ps = 0;  ///< F, I, W, B, R and LOAD
  int64_t span_ps = 0;  ///< first F to last W or B; of the slowest replica
  IdleSplit idle;       ///< busy + idle = makespan
};

struct Simulation {
  int64_t makespan_ps = 0;     ///< end of the last op, optimizer included
  int64_t span_ps = 0;         ///< longest of the stages' spans: norm and optimizer are outside
  double bubble_of_total = 0;  ///< 1 - m (F + I + W) / span, mean over stages
  double bubble_of_ideal = 0;  ///< span / (m (F + I + W)) - 1
  std::vector<StageTimes> stages;
  std::vector<std::vector<OpTime>> times;  ///< [position][op], of the recorded replica
};

/// The program must pass check(); throws std::logic_error where a lane can never go on, ConfigError for a table of
/// another shape.
Simulation simulate(const Program& program, const CostTable& table, const SimulationOptions& options = {});

}  // namespace triax::parallel
