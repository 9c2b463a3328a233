// Who belongs to a group, how long it waits for them, and the words about one that did not come.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/ledger.h"

namespace triax::comm {

class Progress;

/// In a root's place: the result is every rank's.
inline constexpr int kEveryRank = -1;

/// Who belongs to a group and how long it waits for them.
struct GroupInfo {
  std::string name;
  int rank = 0;                    ///< this rank's index in the group
  std::vector<int> world_ranks;    ///< of each member
  std::vector<std::string> hosts;  ///< of each member
  double timeout_s = 600;
  Progress* progress = nullptr;  ///< of the rank; may be null in a single wait
  std::vector<int> nodes = {};   ///< of each member; empty: all on one
  int size() const { return static_cast<int>(world_ranks.size()); }
  int node(int member) const { return nodes.empty() ? 0 : nodes[static_cast<size_t>(member)]; }
};

/// Throws PeerLost: which operation of which group was not answered. `missing`: group ranks known not to have answered,
/// may be empty.
[[noreturn]] void throw_peer_lost(const GroupInfo& group, Operation op, int64_t sequence, double waited_s,
                                  std::span<const int> missing);
/// The same of something that is no operation: "making the communicator".
[[noreturn]] void throw_peer_lost(const GroupInfo& group, const std::string& what, double waited_s,
                                  std::span<const int> missing);

}  // namespace triax::comm
