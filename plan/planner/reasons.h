// Why the planner chose what it chose: the ratios of communication to computing, what every other value would have
// cost or broken, and what the choice hangs on.
#pragma once

#include <string>
#include <vector>

#include "plan/planner/search.h"

namespace triax::plan {

/// Communication over computing on the winner's machine, with F the achieved FLOP/s of a device and B the bus bandwidth
/// of the group (docs/planner.md):
///   tp  (2/9) (t-1) F / (h B)        pp  (1/18) p F / (h L B) per message size of the layout
///   dp  2 g / 6 F / (B T), g bytes of a gradient, T tokens of a replica and step
///   zero3 tokens: w F / (2 B): tokens of a device and micro-batch from which its gathers hide
struct Ratios {
  double flops = 0;  ///< F: model FLOPs of a step over the time that its passes compute
  double tensor_bytes_per_s = 0, pipeline_bytes_per_s = 0, data_bytes_per_s = 0;  ///< B of each group
  int tensor = 1, data = 1, pipeline = 1;  ///< the degrees that the ratios are given for: at least 2
  double tp = 0, pp = 0, dp = 0;
  double zero3_tokens = 0, tokens = 0;  ///< needed, and b s of the layout
};
Ratios ratios_of(const PlanQuestion& question, const Layout& layout);

/// One value of one axis against the winner.
struct ValueNote {
  PlanAxis axis = PlanAxis::Tensor;
  int value = 0;
  bool chosen = false;
  int64_t layouts = 0, fitting = 0;
  double slower = 0;                  ///< relative to the winner by closed form; 0 where nothing fits
  std::optional<Layout> layout = {};  ///< the fastest with this value that fits
  std::string reason =
      {};  ///< "exposed tp communication +0.31 of 84 s"; "nothing fits: at least 93.1 GiB, 19.4 more than 73.7"; a rule
};
/// What makes the second slower than the first: the part that grew most, "recomputation +20.6 of 84 s".
std::string largest_loss(const StepTime& winner, const StepTime& other);
std::vector<ValueNote> value_notes(const PlanQuestion& question, const SearchResult& result);

/// What another machine or batch would change: the best layout of the changed question by closed form.
struct Sensitivity {
  std::string change;                 ///< "+8 GiB per device", "nvlink x2", "global batch x2"
  double step_change = 0;             ///< of the time per sample, relative: -0.06 is 6 % faster
  std::optional<Layout> layout = {};  ///< where it is another than now; nothing where it stays
  bool feasible = true;
};
std::vector<Sensitivity> sensitivities(const PlanQuestion& question, const SearchResult& result);

/// Advice that the numbers of this machine and model give, each sentence with its numbers; nothing that they do not.
std::vector<std::string> advice(const PlanQuestion& question, const SearchResult& result, const Ratios& ratios);

/// Where nothing fits: what is missing and something that works (more devices, a shorter sequence, a smaller
/// micro-batch than asked for). Never empty.
std::vector<std::string> infeasible_notes(const PlanQuestion& question, const SearchResult& result);

}  // namespace triax::plan
