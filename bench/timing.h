// How every number of `triax bench` is taken: the cases in random order, round after round, the first round thrown
// away; median and minimum of the rest. Means are not shown first: one descheduled call spoils them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "comm/communicator.h"

namespace triax::bench {

/// Percentiles are nearest rank: p95 is the smallest time that at least 95 % of the samples do not exceed.
struct Statistics {
  double min_s = 0, median_s = 0, mean_s = 0, p95_s = 0, p99_s = 0, max_s = 0;
  double cv = 0;  ///< standard deviation / mean
  int64_t samples = 0;
};
/// Takes any order. All zero of no samples. The median of an even number is the mean of the two in the middle.
Statistics statistics(std::vector<double> seconds);

/// One number of every rank, as `op` joins them.
double over_ranks(comm::Communicator& group, double mine, comm::ReduceOp op);

/// What a table takes of the samples: the median; where they scatter by more than a tenth (cv), other programs had the
/// cores, which only ever adds, so the shortest.
double undisturbed_s(const Statistics& time);

/// Orders of `count` cases, one for each round: permutations drawn from Philox(seed), the same on all ranks.
std::vector<std::vector<size_t>> random_orders(size_t count, int rounds, uint64_t seed);

struct TimingOptions {
  int rounds = 5;            ///< that count
  double sample_s = 1e-3;    ///< calls of a sample together take at least about this long
  int64_t most_calls = 200;  ///< of a sample
  /// Called at the end of each sample, in its time: calls that only give work to a device are through after it. Empty:
  /// calls are through when they return.
  std::function<void()> settle = {};
};

/// Seconds of one call of each case. Every round calls every case once in an order of its own, after a barrier of
/// `group` (null: of this process alone), so that all ranks work at the same time; the first round only tells how many
/// calls a sample needs. A sample is the mean over the ranks of the time per call. Collective over `group`; every rank
/// gets the same numbers.
std::vector<Statistics> time_cases(const std::vector<std::function<void()>>& calls, const TimingOptions& options,
                                   comm::Communicator* group);

}  // namespace triax::bench
