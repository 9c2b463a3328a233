#include "comm/host_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

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

}  // namespace

HostMemory::HostMemory(int local_rank, int local_size)
    : file_(memfd_create("triax", MFD_CLOEXEC)),
      size_bytes_(window_size(local_size)),
      local_rank_(local_rank),
      windows_(static_cast<size_t>(local_size)) {
  if (file_ < 0 || ftruncate(file_, size_bytes_) != 0) return;
  windows_[static_cast<size_t>(local_rank)] = map_window(file_, size_bytes_);
  free_[0] = size_bytes_;
}

HostMemory::File HostMemory::file() const {
  return {getpid(), windows_[static_cast<size_t>(local_rank_)] == nullptr ? -1 : file_};
}

bool HostMemory::map_peers(const std::vector<File>& files) {
  for (size_t r = 0; r < files.size(); ++r) {
    if (files[r].descriptor < 0) return false;
    if (static_cast<int>(r) == local_rank_) continue;
    const int file =
        open(fmt::format("/proc/{}/fd/{}", files[r].process, files[r].descriptor).c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) return false;
    windows_[r] = map_window(file, size_bytes_);
    close(file);
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
