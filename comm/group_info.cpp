#include "comm/group_info.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "comm/communicator.h"

namespace triax::comm {
namespace {

constexpr size_t kMostNamed = 16;

std::string member(const GroupInfo& group, int rank) {
  const auto i = static_cast<size_t>(rank);
  return fmt::format("{} rank {} (world rank {} on {})", group.name, rank, group.world_ranks[i], group.hosts[i]);
}

std::string missing_members(const GroupInfo& group, std::span<const int> missing) {
  std::vector<std::string> names;
  for (const int rank : missing.first(std::min(missing.size(), kMostNamed))) names.push_back(member(group, rank));
  if (missing.size() > kMostNamed) names.push_back(fmt::format("{} more", missing.size() - kMostNamed));
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

void throw_peer_lost(const GroupInfo& group, const std::string& what, double waited_s, std::span<const int> missing) {
  const std::string who = missing.empty() ? fmt::format("a member of world ranks {}", fmt::join(group.world_ranks, " "))
                                          : missing_members(group, missing);
  throw PeerLost(fmt::format("peer lost: {} of group {} waited {:.1f} s on {}; no answer from {}", what, group.name,
                             waited_s, member(group, group.rank), who));
}

void throw_peer_lost(const GroupInfo& group, Operation op, int64_t sequence, double waited_s,
                     std::span<const int> missing) {
  throw_peer_lost(group, fmt::format("{} #{}", name_of(op), sequence), waited_s, missing);
}

}  // namespace triax::comm
