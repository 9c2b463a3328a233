// Where the groups of an axis stand: which stay inside a node and which cross.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "comm/process_grid.h"

namespace triax::comm {

struct GroupNodes {
  std::vector<int> ranks;  ///< world ranks, ascending along the axis
  int nodes = 1;           ///< on how many nodes they stand
};

/// Every group of `axis`, ordered by its first rank. nodes[r]: node of world rank r.
std::vector<GroupNodes> group_nodes(const GridShape& shape, Axis axis, std::span<const int> nodes);

/// "inside a node", "2 of 8 groups cross nodes: {0,1,2,3} stands on 2"; "-" for groups of one rank.
std::string describe_crossing(const std::vector<GroupNodes>& groups);

/// "{0-7}", "{0,8,16,24}".
std::string ranks_text(std::span<const int> ranks);

}  // namespace triax::comm
