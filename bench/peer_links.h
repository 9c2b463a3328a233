// The links of a machine one by one: copies between a host and its device, and messages between each two ranks.
#pragma once

#include <vector>

#include "bench/collectives.h"

namespace triax::bench {

struct LinkBench {
  std::vector<int64_t> sizes{4096, int64_t{1} << 20, int64_t{64} << 20};
  int rounds = 5;
  double timeout_s = 600;
  OnDevice on;  ///< device null: the host's memory; groups null: there is one rank
};

/// The host's own copy, or those of a device: host to device and device to host (pinned memory), both at once, within
/// the device (each byte read once and written once).
enum class CopyKind { Host, ToDevice, FromDevice, BothWays, Within };
/// "host", "h2d", "d2h", "h2d+d2h", "d2d".
const char* name_of(CopyKind kind);

struct CopyRow {
  CopyKind kind;
  int rank = 0;
  int64_t bytes = 0;                  ///< copied; BothWays: in each direction
  double alone_s = 0;                 ///< while the other ranks wait
  double together_s = 0;              ///< while all ranks do the same: what shares a switch, a socket, a memory
  double gbps(double seconds) const;  ///< 1e9 bytes/s; BothWays: both directions together
};

/// Medians. Collective over `world`, by whose clock a copy is timed that the device has finished.
std::vector<CopyRow> measure_copies(comm::Communicator& world, const LinkBench& bench);

/// Messages of `from` to `to`.
struct PeerRow {
  int from = 0, to = 0;
  int64_t bytes = 0;
  double one_way_s = 0;     ///< one message after the other, at the receiver
  double both_ways_s = 0;   ///< while as many go the other way; the same in the row of (to, from)
  double round_trip_s = 0;  ///< of this size, there and back
  double gbps(double seconds) const { return seconds > 0 ? static_cast<double>(bytes) / seconds / 1e9 : 0; }
};

/// Up to this many ranks every pair is measured; beyond, neighbours.
inline constexpr int kMostRanksOfAllPairs = 16;

/// Medians; one pair talks at a time. On a device over two communicators of NCCL, one for each direction, by events on
/// the stream that waits for the messages. Collective over all ranks.
std::vector<PeerRow> measure_peers(comm::MpiSession& session, const LinkBench& bench);

}  // namespace triax::bench
