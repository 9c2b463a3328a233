// Memory of one rank that all ranks of its host can read and write: the ground of all collectives inside a host.
//
// Every rank makes one memory file (memfd_create) as large as the machine's memory, which costs nothing until touched,
// and its peers map it through /proc/<pid>/fd/<n>. MPI_Win_allocate_shared would do the same with a file in /dev/shm,
// but there the size must be known at the start and containers often allow 64 MB; a memory file has neither limit, and
// any tensor that an arena takes from this provider can be reduced by its peers in place, without a copy.
#pragma once

#include <mpi.h>

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/memory.h"
#include "comm/wait.h"

namespace triax::comm {

class HostMemory final : public MemoryProvider {
 public:
  /// Collective over `local`, whose ranks all stand on one host. Null on all ranks when one of them cannot map its
  /// peers' memory (no /proc, other process namespaces, address space limits); why is logged by local rank 0.
  static std::unique_ptr<HostMemory> create(MPI_Comm local, const GroupInfo& group);
  ~HostMemory() override;
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  /// Uninitialised; 64-byte aligned, 2 MiB aligned from 1 MiB on. Thread-safe.
  void* allocate(size_t size_bytes) override;
  void deallocate(void* data, size_t size_bytes) noexcept override;
  /// All bytes zero, pages not touched yet.
  std::byte* allocate_zeroed(int64_t size_bytes);

  /// Where [data, data + size) lies in this rank's window, or -1 when it does not lie there.
  int64_t offset_of(const void* data, int64_t size_bytes) const;
  /// What local rank `local_rank` has at `offset`, as seen from here.
  std::byte* at(int local_rank, int64_t offset) const {
    return windows_[static_cast<size_t>(local_rank)] + offset;
  }
  int local_rank() const { return local_rank_; }

 private:
  HostMemory(int file, int64_t size_bytes, int local_rank, int local_size);
  bool map_peers(const std::vector<std::pair<int, int>>& files);

  int file_;
  int64_t size_bytes_;
  int local_rank_;
  std::vector<std::byte*> windows_;  ///< of each local rank; null where not mapped
  std::mutex mutex_;
  std::map<int64_t, int64_t> free_;  ///< offset -> size of the holes
};

}  // namespace triax::comm
