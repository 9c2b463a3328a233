#include "comm/group_nodes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace triax::comm {

std::vector<GroupNodes> group_nodes(const GridShape& shape, Axis axis, std::span<const int> nodes) {
  std::vector<GroupNodes> groups;
  for (int rank = 0; rank < shape.world(); ++rank) {
    GroupNodes group{group_of(shape, rank, axis), 1};
    if (group.ranks.front() != rank) continue;
    std::set<int> on;
    for (const int r : group.ranks) on.insert(nodes[static_cast<size_t>(r)]);
    group.nodes = static_cast<int>(on.size());
    groups.push_back(std::move(group));
  }
  return groups;
}

std::string describe_crossing(const std::vector<GroupNodes>& groups) {
  if (groups.empty() || groups.front().ranks.size() < 2) return "-";
  const auto crosses = [](const GroupNodes& group) { return group.nodes > 1; };
  const auto crossing = std::count_if(groups.begin(), groups.end(), crosses);
  if (crossing == 0) return "inside a node";
  const auto first = std::find_if(groups.begin(), groups.end(), crosses);
  return fmt::format("{} of {} groups cross nodes: {} stands on {}", crossing, groups.size(), ranks_text(first->ranks),
                     first->nodes);
}

std::string ranks_text(std::span<const int> ranks) {
  const bool run = ranks.size() > 2 && ranks.back() - ranks.front() == static_cast<int>(ranks.size()) - 1;
  if (run) return fmt::format("{{{}-{}}}", ranks.front(), ranks.back());
  constexpr size_t kShown = 8;
  if (ranks.size() <= kShown) return fmt::format("{{{}}}", fmt::join(ranks, ","));
  return fmt::format("{{{},...,{}}}", fmt::join(ranks.first(kShown - 2), ","), ranks.back());
}

}  // namespace triax::comm
