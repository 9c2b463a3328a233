// Reduce-scatter and all-gather among some members of a group, each of whom owns a block of the buffer.
#pragma once

#include <vector>

#include "comm/algorithms/plan.h"

namespace triax::comm {

/// Ranges of the buffer; may be empty.
using Block = std::vector<Slice>;

struct Circle {
  std::vector<int> members;   ///< group ranks
  std::vector<Block> blocks;  ///< of each member
  int me = 0;                 ///< index of this rank
  int size() const { return static_cast<int>(members.size()); }
};

/// Appends one transfer for each run of adjoining ranges of the blocks. Both sides of a message must name the same
/// blocks in the same order.
void add_transfers(Plan& plan, TransferKind kind, int peer, int tag, const std::vector<const Block*>& blocks);

/// n-1 steps to the right neighbour, one block each.
void ring_reduce_scatter(const Circle& circle, Plan& plan);
void ring_all_gather(const Circle& circle, Plan& plan);
/// Recursive halving and doubling for any n: ceil(log2 n) steps. In a step with s blocks left, the upper floor(s/2) go
/// to the rank ceil(s/2) further on (circulant graph; Traeff 2024, arXiv 2410.14234; for n a power of two as many steps
/// and bytes as the exchange of halves between pairs).
void halving_reduce_scatter(const Circle& circle, Plan& plan);
void doubling_all_gather(const Circle& circle, Plan& plan);
/// Everyone's own values straight to the owner, who sums them in rank order. All ranks of the group must be members.
void ordered_reduce_scatter(const Circle& circle, Plan& plan);

}  // namespace triax::comm
