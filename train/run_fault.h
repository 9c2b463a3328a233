// A rank that fails on purpose, at a chosen place of a run: --inject fault:KIND:PHASE[:RANK[:STEP[:N]]]; or one that is
// slow: --inject slow:RANK:MILLISECONDS, before each forward pass.
#pragma once

#include <cstdint>
#include <string>

#include "parallel/program.h"

namespace triax::train {

/// kill: SIGKILL. stop: SIGSTOP. exit: leaves with code 0. throw: RunTimeError. hang: does nothing any more. segv:
/// SIGSEGV.
enum class FaultKind { Kill, Stop, Exit, Throw, Hang, Segv };
/// Forward to Optimizer: before an op of a step. Message: sends and receives between stages. Reduce: sums of gradients,
/// their norm, gathers of weights. Report: before the exchange that ends a step. Save: half of the rank's shard
/// written.
enum class FaultPhase { Start, Load, Data, Forward, Backward, Message, Reduce, Optimizer, Report, Save, Finish };

/// Whether a part of an --inject text is such a fault.
bool is_run_fault(const std::string& part);

/// At most one fault and one slowness for each rank; more, or a rank that the run has not, are refused. Without one,
/// at() does nothing.
class RunFault {
 public:
  RunFault() = default;
  /// Throws ConfigError for another form. RANK: 0, STEP: 1, N: 1 where left out.
  RunFault(const std::string& inject, int rank, int world_size);
  explicit operator bool() const { return armed_ || slow_s_ > 0; }
  /// Strikes at the Nth call for the phase in step STEP (Start, Load, Data, Finish: whatever the step; Save: of that
  /// step or a later one).
  void at(FaultPhase phase, int64_t step);
  void before(const parallel::Op& op, int64_t step);
  void disarm() { armed_ = false; }

 private:
  void read_fault(const std::string& part, int rank);
  void read_slowness(const std::string& part, int rank);
  void strike() const;
  bool armed_ = false;
  FaultKind kind_ = FaultKind::Kill;
  FaultPhase phase_ = FaultPhase::Start;
  int64_t step_ = 1, left_ = 1;
  double slow_s_ = 0;  ///< before each forward op
};

}  // namespace triax::train
