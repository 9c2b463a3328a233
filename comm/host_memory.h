// Memory of one rank that all ranks of its host can read and write: the ground of all collectives inside a host.
//
// Every rank makes one memory file (memfd_create) as large as the machine's memory, which costs nothing until touched,
// and its peers map it through /proc/<pid>/fd/<n>. MPI_Win_allocate_shared would do the same with a file in /dev/shm,
// but there the size must be known at the start and containers often allow 64 MB; a memory file has neither limit, and
// any tensor that an arena takes from this provider can be reduced by its peers in place, without a copy.
#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "base/memory.h"

namespace triax::comm {

class HostMemory final : public MemoryProvider {
 public:
  /// Where a rank's memory file is found.
  struct File {
    int process = 0;
    int descriptor = -1;
  };

  /// Makes this rank's file and maps it; descriptor is -1 when the system does not allow it.
  HostMemory(int local_rank, int local_size);
  ~HostMemory() override;
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  File file() const;
  /// Maps the files of all local ranks. False when one cannot be mapped (no /proc, other process namespaces, limits of
  /// the address space): then no rank of the host may use its HostMemory.
  bool map_peers(const std::vector<File>& files);

  /// Uninitialised; 64-byte aligned, 2 MiB aligned from 1 MiB on. Thread-safe.
  void* allocate(size_t size_bytes) override;
  void deallocate(void* data, size_t size_bytes) noexcept override;
  /// All bytes zero, pages not touched yet.
  std::byte* allocate_zeroed(int64_t size_bytes);

  /// Where [data, data + size) lies in this rank's window, or -1 when it does not lie there.
  int64_t offset_of(const void* data, int64_t size_bytes) const;
  /// What local rank `local_rank` has at `offset`, as seen from here.
  std::byte* at(int local_rank, int64_t offset) const { return windows_[static_cast<size_t>(local_rank)] + offset; }
  int local_rank() const { return local_rank_; }

 private:
  int file_;
  int64_t size_bytes_;
  int local_rank_;
  std::vector<std::byte*> windows_;  ///< of each local rank; null where not mapped
  std::mutex mutex_;
  std::map<int64_t, int64_t> free_;  ///< offset -> size of the holes
};

}  // namespace triax::comm
