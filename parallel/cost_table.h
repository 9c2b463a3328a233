// What ops and messages cost in time, in picoseconds. The simulator and the virtual clock read the same table; the
// planner fills it from a model and a machine, `triax program time` from numbers on the command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/program.h"

namespace triax::parallel {

/// Costs of one virtual stage for one micro-batch.
struct StageCost {
  int64_t forward_ps = 0;
  int64_t backward_input_ps = 0;
  int64_t backward_weight_ps = 0;
  int64_t recompute_ps = 0;
  bool operator==(const StageCost&) const = default;
};

/// Costs of one pipeline position for a step.
struct PositionCost {
  int64_t load_ps = 0;            ///< one LoadBatch
  int64_t tensor_partial_ps = 0;  ///< one SumTensorPartial
  int64_t optimizer_ps = 0;
  std::vector<int64_t> reduce_ps;  ///< ReduceGradients of each bucket; one value: of every bucket
  std::vector<int64_t> gather_ps;  ///< GatherParameters, likewise
  int64_t message_gather_ps = 0;   ///< one GatherActivation or GatherGradient
};

/// A hop between two pipeline positions: time = latency + bytes / bandwidth; messages do not slow each other.
struct LinkCost {
  int64_t latency_ps = 0;
  double bytes_per_s = 0;  ///< 0: bytes cost nothing
  int64_t time_ps(int64_t bytes) const;
};

struct CostTable {
  int pipeline = 1;
  int chunks = 1;
  std::vector<StageCost> stages;        ///< [position * chunks + chunk]
  std::vector<PositionCost> positions;  ///< [position]
  std::vector<LinkCost> links;          ///< [from * p + to], or one for all pairs
  int64_t message_bytes = 0;            ///< of one activation or gradient between stages
  int64_t tied_ps = 0;                  ///< SumTied
  int64_t norm_ps = 0;                  ///< GradientNorm

  const StageCost& stage(int position, int chunk) const {
    return stages[static_cast<size_t>(position * chunks + chunk)];
  }
  const LinkCost& link(int from, int to) const {
    return links[links.size() == 1 ? 0 : static_cast<size_t>(from * pipeline + to)];
  }
};

/// Which entry of the table prices an op: ops of equal key cost the same.
struct CostKey {
  OpKind kind = OpKind::Forward;
  int position = 0;
  int chunk = -1;   ///< -1 where the position as a whole is meant
  int bucket = -1;  ///< ReduceGradients, GatherParameters
  int peer = -1;    ///< messages: position of the other side
  bool operator==(const CostKey&) const = default;
};
CostKey cost_key(const Program& program, int position, const Op& op);
/// "F/2/0": kind, position, chunk; "SEND_F/2>3"; "REDUCE_GRAD/2/b1".
std::string text_of(const CostKey& key);

/// Time of the op without jitter. Sends: the time on the wire (the sender itself goes on at once); receives: 0, their
/// message's send pays. Backward costs I + W.
int64_t cost_of(const CostTable& table, const CostKey& key);

/// One cost for each position, spread evenly over its chunks (the remainder of the division goes to the last ones, so
/// that a position's chunks sum to its cost exactly).
struct UniformCosts {
  std::vector<int64_t> forward_ps, backward_input_ps, backward_weight_ps, recompute_ps;  ///< [position], or one value
  std::vector<int64_t> optimizer_ps, reduce_ps, gather_ps, load_ps, tensor_partial_ps;   ///< the same; empty: 0
  std::vector<int64_t> message_gather_ps = {};                                           ///< the same
  std::vector<int64_t> latency_ps;  ///< hop i <-> i + 1 mod p, or one value for all pairs; empty: 0
  std::vector<double> bytes_per_s;  ///< the same
  int64_t message_bytes = 0, tied_ps = 0, norm_ps = 0;
};
/// Throws ConfigError naming a list that has neither one value nor one per position. Positions that are no neighbours
/// on the ring are as far as the hops between them.
CostTable make_cost_table(const UniformCosts& costs, int pipeline, int chunks);

}  // namespace triax::parallel
