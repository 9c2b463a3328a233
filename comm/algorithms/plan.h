// A collective over point-to-point sends as data: what one rank sends and receives, in order. Pure functions, so that
// the runner, the byte formulas and the tests read the same thing.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/algorithms/choice.h"
#include "comm/pieces.h"

namespace triax::comm {

enum class TransferKind : uint8_t {
  Send,       ///< to `peer`; does not block
  RecvSum,    ///< range = range op what `peer` sends
  RecvCopy,   ///< range = what `peer` sends
  RecvInput,  ///< `peer`'s own values of the range, kept apart until SumInputs
  SumInputs   ///< range = op over all ranks' own values of it, in rank order
};

/// Elements [begin, end) of the buffer. Messages of a pair with one tag are received in the order of the sends.
struct Transfer {
  TransferKind kind;
  int peer;
  int tag;
  int64_t begin, end;
  int64_t size() const { return end - begin; }
  bool operator==(const Transfer&) const = default;
};
using Plan = std::vector<Transfer>;

/// A group as plans see it.
struct PlanGroup {
  int rank = 0;
  int size = 1;
  std::vector<int> nodes;  ///< of each member; empty: all on one node
  int node(int member) const { return nodes.empty() ? 0 : nodes[static_cast<size_t>(member)]; }
};

/// Ring, HalvingDoubling and Hierarchical have reduce_scatter and all_gather; trees have all_reduce alone.
bool has_plans(Algorithm algorithm);
bool has_scatter_plan(Algorithm algorithm);

/// Bytes sent by a rank of n, S bytes in all, n divides S:
///   ring, halving-doubling    2 (n-1)/n S
///   tree                      S upwards (not the root), S to each child downwards
///   double-tree               the same in each of two trees, of S/2 each
///   hierarchical, N nodes of G ranks: 2 (G-1)/G S inside the node, 2 (N-1)/N S/G across
/// SumOrder::Ranks sends a rank's own values straight to where they are summed: as many bytes, except hierarchical,
/// whose first half then is (G-1)/n S inside and (n-G)/n S across.
/// Trees go through the buffer in steps of `tree_chunk` elements.
Plan plan_all_reduce(Algorithm algorithm, SumOrder order, const PlanGroup& group, int64_t count, int64_t tree_chunk);
/// Of a buffer with the pieces of all ranks; afterwards this rank's piece holds the sum and the others are spoilt.
Plan plan_reduce_scatter(Algorithm algorithm, SumOrder order, const PlanGroup& group, const Pieces& pieces);
/// Of a buffer in which this rank's piece is in place.
Plan plan_all_gather(Algorithm algorithm, const PlanGroup& group, const Pieces& pieces);

/// Elements that this rank sends to members on its own node and to others.
struct PlannedSends {
  int64_t inside = 0, across = 0;
};
PlannedSends planned_sends(const Plan& plan, const PlanGroup& group);

}  // namespace triax::comm
