#include "comm/host_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "comm/mpi_check.h"

namespace triax::comm {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kLarge = int64_t{1} << 20;
constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kAddressSpace = int64_t{1} << 45;  // 32 TiB of the 128 TiB that a process has

int64_t round_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

int64_t window_size(int local_size) {
  const int64_t memory = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return round_up(std::min(memory, kAddressSpace / local_size), kHugePage);
}

/// The range [data, +size) of 2 MiB alignment over `file`, or null.
std::byte* map_window(int file, int64_t size) {
  const auto bytes = static_cast<size_t>(size);
  void* room = mmap(nullptr, bytes + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<int64_t>(room);
  const int64_t aligned = round_up(begin, kHugePage);
  if (aligned > begin) munmap(room, static_cast<size_t>(aligned - begin));
  void* end = reinterpret_cast<void*>(aligned + size);
  if (begin + kHugePage > aligned) munmap(end, static_cast<size_t>(begin + kHugePage - aligned));
  void* data = mmap(reinterpret_cast<void*>(aligned), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
  if (data == MAP_FAILED) {
    munmap(reinterpret_cast<void*>(aligned), bytes);
    return nullptr;
  }
  madvise(data, bytes, MADV_HUGEPAGE);  // advice only
  madvise(data, bytes, MADV_DONTDUMP);
  return static_cast<std::byte*>(data);
}

/// True when `ok` holds on all ranks of `local`.
bool all_agree(MPI_Comm local, const GroupInfo& group, bool ok) {
  int flag = ok ? 1 : 0;
  MPI_Request request = MPI_REQUEST_NULL;
  TRIAX_MPI(MPI_Iallreduce(MPI_IN_PLACE, &flag, 1, MPI_INT, MPI_MIN, local, &request));
  wait_all({&request, 1}, {}, group, Operation::AllReduce, 0);
  return flag != 0;
}

}  // namespace

std::unique_ptr<HostMemory> HostMemory::create(MPI_Comm local, const GroupInfo& group) {
  int rank = 0;
  int size = 1;
  TRIAX_MPI(MPI_Comm_rank(local, &rank));
  TRIAX_MPI(MPI_Comm_size(local, &size));
  const int64_t bytes = window_size(size);
  const int file = memfd_create("triax", MFD_CLOEXEC);
  const bool made = file >= 0 && ftruncate(file, bytes) == 0;
  std::unique_ptr<HostMemory> memory(new HostMemory(file, bytes, rank, size));

  std::vector<std::pair<int, int>> files(static_cast<size_t>(size));  // (process, descriptor) of each local rank
  const std::pair<int, int> mine(getpid(), file);
  MPI_Request request = MPI_REQUEST_NULL;
  TRIAX_MPI(MPI_Iallgather(&mine, 2, MPI_INT, files.data(), 2, MPI_INT, local, &request));
  wait_all({&request, 1}, {}, group, Operation::AllGather, 0);
  const bool mapped = made && memory->map_peers(files);
  if (all_agree(local, group, mapped)) return memory;
  if (rank == 0) {
    spdlog::warn("ranks of this host cannot map each other's memory (memfd through /proc/<pid>/fd): "
                 "collectives inside the host go through MPI and are slower");
  }
  return nullptr;
}

HostMemory::HostMemory(int file, int64_t size_bytes, int local_rank, int local_size)
    : file_(file), size_bytes_(size_bytes), local_rank_(local_rank), windows_(static_cast<size_t>(local_size)) {
  free_[0] = size_bytes;
}

bool HostMemory::map_peers(const std::vector<std::pair<int, int>>& files) {
  for (size_t r = 0; r < files.size(); ++r) {
    const bool own = static_cast<int>(r) == local_rank_;
    const std::string path = fmt::format("/proc/{}/fd/{}", files[r].first, files[r].second);
    const int file = own ? file_ : open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) return false;
    windows_[r] = map_window(file, size_bytes_);
    if (!own) close(file);
    if (windows_[r] == nullptr) return false;
  }
  return true;
}

HostMemory::~HostMemory() {
  for (std::byte* window : windows_) {
    if (window != nullptr) munmap(window, static_cast<size_t>(size_bytes_));
  }
  if (file_ >= 0) close(file_);
}

void* HostMemory::allocate(size_t size_bytes) {
  const auto wanted = round_up(std::max<int64_t>(static_cast<int64_t>(size_bytes), 1), kAlignment);
  const int64_t alignment = wanted >= kLarge ? kHugePage : kAlignment;
  const std::lock_guard lock(mutex_);
  for (auto hole = free_.begin(); hole != free_.end(); ++hole) {
    const auto [begin, size] = *hole;
    const int64_t at = round_up(begin, alignment);
    if (at + wanted > begin + size) continue;
    free_.erase(hole);
    if (at > begin) free_[begin] = at - begin;
    if (begin + size > at + wanted) free_[at + wanted] = begin + size - at - wanted;
    return windows_[static_cast<size_t>(local_rank_)] + at;
  }
  throw std::bad_alloc();
}

std::byte* HostMemory::allocate_zeroed(int64_t size_bytes) {
  auto* data = static_cast<std::byte*>(allocate(static_cast<size_t>(size_bytes)));
  const int64_t offset = offset_of(data, size_bytes);
  // A hole reads as zeros; its ragged ends are cleared in place.
  if (fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, size_bytes) != 0) {
    std::memset(data, 0, static_cast<size_t>(size_bytes));
  }
  return data;
}

void HostMemory::deallocate(void* data, size_t size_bytes) noexcept {
  int64_t begin = static_cast<std::byte*>(data) - windows_[static_cast<size_t>(local_rank_)];
  int64_t size = round_up(std::max<int64_t>(static_cast<int64_t>(size_bytes), 1), kAlignment);
  if (size >= kLarge) fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin, size);
  const std::lock_guard lock(mutex_);
  const auto next = free_.lower_bound(begin);
  if (next != free_.end() && next->first == begin + size) {
    size += next->second;
    free_.erase(next);
  }
  const auto after = free_.lower_bound(begin);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == begin) {
      before->second += size;
      return;
    }
  }
  free_[begin] = size;
}

int64_t HostMemory::offset_of(const void* data, int64_t size_bytes) const {
  const std::byte* window = windows_[static_cast<size_t>(local_rank_)];
  const auto* begin = static_cast<const std::byte*>(data);
  if (begin < window || begin + size_bytes > window + size_bytes_) return -1;
  return begin - window;
}

}  // namespace triax::comm
