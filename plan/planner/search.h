// Prices every layout of a space by closed forms, keeps what fits, simulates the best op by op, and remembers of every
// value of every axis the best layout with it: what explains the choice.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/hardware.h"
#include "plan/planner/space.h"
#include "plan/prediction.h"
#include "plan/step_time.h"

namespace triax::plan {

/// Throughput: shortest step. Memory: the least bytes of a device, among steps at most a tenth longer than the
/// shortest.
enum class Objective { Throughput, Memory };

struct PlanQuestion {
  io::RunOptions base;  ///< model, precision, global batch (> 0); the layout in it is not read
  bench::Hardware hardware;
  int devices = 1;
  PlanSpace space;
  double memory_share = 0.92;  ///< of a device's memory that a run may fill
  Objective objective = Objective::Throughput;
  int simulated = 24;  ///< layouts that are simulated op by op

  /// Bytes that a run may fill on one device.
  double limit_bytes() const;
};

/// A layout as the closed forms see it.
struct Candidate {
  Layout layout;
  StepTime time;
  double bytes = 0;  ///< of the fullest device, runtime included
};

/// What one value of one axis allows at best.
struct ValueSummary {
  int64_t layouts = 0, fitting = 0;
  std::optional<Candidate> best;      ///< the fastest that fits
  std::optional<Candidate> smallest;  ///< the least memory, fitting or not
};

/// A layout as the simulator sees it.
struct Choice {
  Layout layout;
  StepTime closed_form;
  Prediction prediction;
  io::RunOptions options;  ///< resolved
  double step_s() const { return prediction.step_s(); }
};

struct SearchResult {
  int64_t layouts = 0, fitting = 0;
  std::vector<Candidate> ranked;  ///< by closed form: the best of each (tp, pp, zero, shard group), best first
  std::vector<Choice> choices;    ///< simulated, fitting, best first
  std::map<std::pair<PlanAxis, int>, ValueSummary> values;
  BrokenRules broken;
  std::optional<Candidate> smallest;  ///< the least memory of all
  /// Of each (tp, pp, zero, shard group, micro-batch, recomputation, sequence parallelism) the fastest and the smallest
  /// layout, fitting or not: what another machine or batch would choose from.
  std::vector<Layout> pool;
  std::vector<std::string> refused;  ///< simulated candidates that the trainer does not take, with its words
};

/// Closed forms only: `choices` stays empty.
SearchResult survey(const PlanQuestion& question);
/// survey(), then simulates the best. Throws ConfigError where the machine's description lacks what is needed.
SearchResult search(const PlanQuestion& question);

/// The candidate's closed-form price on the question's machine, whatever its memory.
Candidate price(const PlanQuestion& question, const Layout& layout);
/// The fastest of these layouts that fits, by closed form; nothing where none does.
std::optional<Candidate> fastest_of(const PlanQuestion& question, std::span<const Layout> layouts);

}  // namespace triax::plan
