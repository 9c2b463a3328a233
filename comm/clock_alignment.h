// How far the clocks of the ranks' hosts stand apart.
#pragma once

#include <functional>
#include <vector>

#include "comm/communicator.h"

namespace triax::comm {

struct ClockAlignment {
  double offset_s = 0;  ///< clock of this rank less that of world rank 0, at one instant
  double error_s = 0;   ///< at most, of any two ranks' offsets to each other
  int clocks = 1;       ///< hosts, each with a clock of its own
};

/// Collective over `world`. The first rank of each node other than rank 0's sends to rank 0 and hears its clock,
/// `rounds` times; the quickest answer counts, and half its way is the error (as NTP, RFC 5905 section 8, without the
/// rate: call it again for times that are hours apart). All ranks of a node read one clock, so that one host costs
/// nothing. nodes: of each rank. clock: now_s, or a test's.
ClockAlignment align_clocks(Communicator& world, const std::vector<int>& nodes, const std::function<double()>& clock,
                            int rounds = 32);

}  // namespace triax::comm
