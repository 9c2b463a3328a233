// Which of several runs are repeats of each other, what tells the others apart, and what may not be compared.
#pragma once

#include <string>
#include <vector>

#include "plan/report/run_data.h"

namespace triax::plan {

/// Runs of the same options (seeds and places of output aside), model, data, hosts' number and commit.
struct RunGroup {
  std::string name;
  std::vector<const RunData*> runs;
};
std::vector<RunGroup> groups_of(const std::vector<RunData>& runs);

struct DifferingOption {
  std::string name;
  std::vector<std::string> values;  ///< of each group; "-" where the run does not have it
};
/// Only those that differ between groups.
std::vector<DifferingOption> differing_options(const std::vector<RunGroup>& groups);

/// "Losses: other data (hashes ...)": the metrics, and why.
struct Incomparable {
  std::string what, why;
};
std::vector<Incomparable> incomparable(const std::vector<RunGroup>& groups);

struct ComparedMetric {
  std::string name;
  std::vector<Estimate> estimates;  ///< of each group: over its runs, or over the steps of its one run
};
/// step_ms, tokens_per_s, ... whatever any run has. Loss: the last one of each run, without an interval over steps.
std::vector<ComparedMetric> compared_metrics(const std::vector<RunGroup>& groups);

/// True where the two intervals leave no doubt: both are known and do not overlap.
bool clearly_different(const Estimate& a, const Estimate& b);

}  // namespace triax::plan
