// Where the time of one step went on every pipeline position of a replica: measured, or on the virtual clock; with the
// simulation of the same program at the measured mean costs, and the closed form, beside it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "parallel/cost_table.h"
#include "parallel/idle.h"
#include "parallel/schedule.h"

namespace triax::train {

using OpTimes = std::vector<std::vector<parallel::OpTime>>;  ///< [position][op]

/// Op times of all positions; collective over `pipeline`, 16 bytes an op. Times are of one clock (ranks of one host
/// share theirs) and are moved so that the earliest op starts at 0.
OpTimes gather_op_times(const parallel::Program& program, std::span<const parallel::OpTime> own,
                        comm::Communicator& pipeline);

struct PipelineTiming {
  int64_t makespan_ps = 0;
  int64_t span_ps = 0;                    ///< longest of first F to last W or B
  double bubble_of_total = 0;             ///< 1 - mean busy / span
  double bubble_of_ideal = 0;             ///< span / mean busy - 1
  std::vector<int64_t> busy_ps;           ///< [position]
  std::vector<parallel::IdleSplit> idle;  ///< [position]
  int64_t other_ps(size_t position) const { return makespan_ps - busy_ps[position] - idle[position].total(); }
};
/// From the times alone. Time on the wire is unknown, so that no wait counts as p2p_wait.
PipelineTiming analyse(const parallel::Program& program, const OpTimes& times);

/// Mean of each op's time by virtual stage (B as one op, without its waits); messages cost nothing.
parallel::CostTable mean_costs(const parallel::Program& program, const OpTimes& times);

/// The report printed after a run: one line with both bubbles, the simulated and the closed form; then a row for each
/// position. unit_ps and unit: of the numbers, for example 1e9 and "ms".
std::string timing_report(const parallel::Program& program, const parallel::ScheduleOptions& schedule,
                          const OpTimes& times, const std::string& source, double unit_ps, const std::string& unit);

}  // namespace triax::train
