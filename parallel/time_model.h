// How long each op of each rank takes: cost table, seeded jitter, stragglers. The simulator and the virtual clock of
// the trainer ask the same object, so they agree to the picosecond.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/cost_table.h"

namespace triax::parallel {

/// A pipeline position of one data-parallel replica. All its tensor ranks run alike, so they are one lane.
struct Lane {
  int replica = 0;
  int position = 0;
};

/// Compute ops take a log-normal factor of mean 1: exp(sigma z - sigma^2 / 2), where z is a quantile of the normal
/// distribution chosen by Philox(seed; lane, op index). sigma = 0: no jitter.
struct JitterOptions {
  double sigma = 0;
  uint64_t seed = 1234;
};

/// A lane whose compute ops take `factor` times as long.
struct Straggler {
  Lane lane;
  double factor = 1;
};

struct TimeOptions {
  JitterOptions jitter;
  std::vector<Straggler> stragglers;
  /// Replicas do not all run alike.
  bool varies() const { return jitter.sigma > 0 || !stragglers.empty(); }
};

class TimeModel {
 public:
  /// Both must outlive the model. Throws ConfigError for a straggler that is not in the grid, a factor or sigma below
  /// 0.
  TimeModel(const Program& program, const CostTable& table, int replicas, const TimeOptions& options);

  /// Time of an op that is no message; `index` is its place in the program of the lane's position.
  int64_t duration_ps(Lane lane, const Op& op, int index) const;
  /// From the end of a send on `position` to the arrival of its message.
  int64_t flight_ps(int position, const Op& send) const;

 private:
  const Program* program_;
  const CostTable* table_;
  uint64_t seed_;
  std::vector<double> quantile_factors_;  ///< kQuantiles equally likely factors; empty without jitter
  std::vector<double> lane_factors_;      ///< [replica * p + position]; empty without stragglers
};

}  // namespace triax::parallel
