// What the parts of NCCL's stand-in share.
#pragma once

#include <mpi.h>
#include <nccl.h>

#include <atomic>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/emulated/recorded.h"

struct EmulatedNccl {
  int rank = 0, tag = 0;
  std::vector<int> world;  // of each rank
  int polls = 2;           // until it is said to be ready
  std::atomic<bool> aborted{false};
  std::atomic<int> in_flight{0};
  std::map<void*, size_t> registered;
  /// What a thread of the library does behind the caller's back: as the real one, it connects ranks at their first
  /// message or sum, for which both sides must have come, and then gives the stream the operation.
  std::function<void()> starting;
  std::vector<MPI_Request> connecting;
  std::set<std::pair<int, int>> connected;  // rank, kind of connection
  int size() const { return static_cast<int>(world.size()); }
};

namespace triax::emulated {

/// Kinds of connections: of sums and the like, and of messages to a higher rank and to a lower one.
enum Connection { kOfAll = 0, kUpward = 1, kDownward = 2 };

std::string& last_error();
ncclResult_t fail(ncclResult_t status, const std::string& words);
ncclResult_t not_on_device();
NcclCounts& nccl_counts();
/// Whether the range lies in memory that this communicator was told of.
bool is_registered(const EmulatedNccl& comm, const void* data, size_t bytes);

}  // namespace triax::emulated
