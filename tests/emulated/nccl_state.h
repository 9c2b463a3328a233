// What the parts of NCCL's stand-in share.
#pragma once

#include <nccl.h>

#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "tests/emulated/recorded.h"

struct EmulatedNccl {
  int rank = 0, tag = 0;
  std::vector<int> world;  // of each rank
  int polls = 2;           // until it is said to be ready
  std::atomic<bool> aborted{false};
  std::atomic<int> in_flight{0};
  std::map<void*, size_t> registered;
  int size() const { return static_cast<int>(world.size()); }
};

namespace triax::emulated {

std::string& last_error();
ncclResult_t fail(ncclResult_t status, const std::string& words);
ncclResult_t not_on_device();
NcclCounts& nccl_counts();
/// Whether the range lies in memory that this communicator was told of.
bool is_registered(const EmulatedNccl& comm, const void* data, size_t bytes);

}  // namespace triax::emulated
