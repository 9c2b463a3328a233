// Where the time of a step goes on every pipeline position, by cause, so that the parts sum to the step exactly: op
// times of a simulation, split by what the cost model says about the inside of each op.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "parallel/cost_table.h"
#include "parallel/idle.h"
#include "parallel/program.h"
#include "plan/cost_model.h"

namespace triax::plan {

/// Each picosecond of a position's step belongs to one of these.
enum class TimePart : uint8_t {
  Gemm,             ///< matrix products of forward and backward, recomputation apart
  Attention,        ///< likewise
  Elementwise,      ///< norms, activations, residuals, embedding, loss
  Launch,           ///< floors of kernel launches
  Recompute,        ///< all computing of recomputation
  Load,             ///< batches
  TensorComm,       ///< exposed collectives over tp, sums of partial gradients
  ZeroGather,       ///< exposed gathers of weights (ZeRO 1 to 3)
  DataReduce,       ///< exposed sums of gradients over dp
  PipelineComm,     ///< waits while the message is on the wire, gathers of message slices, the tied embedding's sum
  BubbleFill,       ///< waits before the first backward, without what is PipelineComm
  BubbleDrain,      ///< waits after the last forward and until the last position has computed
  BubbleImbalance,  ///< waits between: another position is slower
  BubbleSync,       ///< stands until other positions come, after the pass: norm, end of the step
  Optimizer,        ///< gradient norm and optimizer step
};
inline constexpr int kNumTimeParts = 15;
/// "gemm", "attention", "elementwise", "launch", "recompute", "load", "tp_comm", "zero_gather", "dp_reduce", "pp_comm",
/// "bubble_fill", "bubble_drain", "bubble_imbalance", "bubble_sync", "optimizer".
const char* name_of(TimePart part);

struct TimeSplit {
  std::array<int64_t, kNumTimeParts> ps{};
  int64_t& operator[](TimePart part) { return ps[static_cast<size_t>(part)]; }
  int64_t operator[](TimePart part) const { return ps[static_cast<size_t>(part)]; }
  int64_t total() const;
  int64_t compute() const;  ///< Gemm to Load
  int64_t exposed() const;  ///< TensorComm to PipelineComm
  int64_t bubble() const;   ///< the four bubbles; PipelineComm is its p2p part
  bool operator==(const TimeSplit&) const = default;
};

/// `whole` cut in proportion to `weights` into integers that sum to it exactly (largest remainders; ties to the first).
/// All weights 0: everything falls to the first.
std::vector<int64_t> apportion(int64_t whole, std::span<const double> weights);

/// Op times of one replica: one split per pipeline position, each of which sums to `end_ps`. `table` is what the times
/// were made from, `parts` what its compute entries consist of, [position * chunks + chunk].
std::vector<TimeSplit> split_step(const parallel::Program& program,
                                  std::span<const std::vector<parallel::OpTime>> times,
                                  const parallel::CostTable& table, std::span<const StageParts> parts, int64_t end_ps);

/// Mean over positions, in integers that sum to what each of them sums to.
TimeSplit mean_of(std::span<const TimeSplit> splits);

}  // namespace triax::plan
