// Device memory and pinned host memory of the emulated GPU. Device memory lies in one reserved range, so that the host
// can be kept from it. Under AddressSanitizer it comes from the heap instead, so that it is guarded.
#include <cuda_runtime.h>
#include <simt.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "gpu.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace triax::emulated {
namespace {

constexpr size_t kTotal = size_t{8} << 30;
constexpr size_t kAlignment = 256;
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kReserved = false;
#else
constexpr bool kReserved = true;
#endif

/// Bytes that nobody may touch, as far as AddressSanitizer is there to see it.
void forbid(const char* data, size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(data, bytes);
#else
  static_cast<void>(data), static_cast<void>(bytes);
#endif
}
void permit(const char* data, size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(data, bytes);
#else
  static_cast<void>(data), static_cast<void>(bytes);
#endif
}

class DeviceMemory {
 public:
  DeviceMemory() {
    if (!kReserved) return;
    void* const all = mmap(nullptr, kTotal, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) std::abort();
    base_ = static_cast<char*>(all);
    holes_[base_] = kTotal;
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  /// What was never freed is a fault of the product: it is said, and the process fails.
  ~DeviceMemory() {
    const bool leaks = !live_.empty() && !failed_;
    if (leaks) {
      std::fprintf(stderr, "emulated GPU: %zu allocations of device memory, %zu bytes, were never freed\n",
                   live_.size(), used_);
      std::_Exit(99);
    }
    if (base_ != nullptr) munmap(base_, kTotal);
  }

  void* allocate(size_t bytes) {
    const std::lock_guard lock(mutex_);
    const size_t room = room_of(bytes);
    if (bytes > kTotal || room > kTotal - used_) return nullptr;
    char* data = nullptr;
    if (kReserved) {
      allow();
      auto at = holes_.begin();
      while (at != holes_.end() && at->second < room) ++at;
      if (at == holes_.end()) return nullptr;
      data = at->first;
      const size_t left = at->second - room;
      holes_.erase(at);
      if (left > 0) holes_[data + room] = left;
    } else {
      data = static_cast<char*>(std::aligned_alloc(kAlignment, room));
      if (data == nullptr) return nullptr;
    }
    std::memset(data, 0xff, bytes);  // NaN: reads before writes show
    forbid(data + bytes, room - bytes);
    live_[data] = bytes;
    used_ += room;
    return data;
  }

  bool free(void* pointer) {
    const std::lock_guard lock(mutex_);
    auto* const data = static_cast<char*>(pointer);
    const auto at = live_.find(data);
    if (at == live_.end()) return false;
    ++simt::memory_generation;
    const size_t room = room_of(at->second);
    used_ -= room;
    if (kReserved) {
      allow();
      std::memset(data, 0xff, at->second);
      give_hole(data, room);
    } else {
      permit(data, room);
      std::free(data);
    }
    live_.erase(at);
    return true;
  }

  bool holds(const void* data, size_t bytes, simt::GlobalRange& range) {
    const std::lock_guard lock(mutex_);
    auto at = live_.upper_bound(static_cast<char*>(const_cast<void*>(data)));
    if (at == live_.begin()) return false;
    --at;
    range.begin = reinterpret_cast<uintptr_t>(at->first);
    range.end = range.begin + at->second;
    return reinterpret_cast<uintptr_t>(data) + bytes <= range.end;
  }

  void set_access(HostAccess access) {
    const std::lock_guard lock(mutex_);
    if (access == HostAccess::Allowed) {
      allow();
    } else if (kReserved && protects_ && allowed_ && !live_.empty()) {
      mprotect(base_, high(), PROT_NONE);
      allowed_ = false;
    }
  }
  size_t available() {
    const std::lock_guard lock(mutex_);
    return kTotal - used_;
  }
  void failed() { failed_ = true; }

 private:
  static size_t room_of(size_t bytes) {
    return (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  }
  void allow() {
    if (allowed_) return;
    mprotect(base_, kTotal, PROT_READ | PROT_WRITE);
    allowed_ = true;
  }
  size_t high() const {
    const auto& [data, bytes] = *live_.rbegin();
    const auto end = static_cast<size_t>(data - base_) + bytes;
    return (end + 4095) / 4096 * 4096;
  }
  void give_hole(char* data, size_t room) {
    auto after = holes_.lower_bound(data);
    if (after != holes_.end() && data + room == after->first) {
      room += after->second;
      after = holes_.erase(after);
    }
    if (after != holes_.begin()) {
      const auto before = std::prev(after);
      if (before->first + before->second == data) {
        before->second += room;
        return;
      }
    }
    holes_[data] = room;
  }

  std::mutex mutex_;
  char* base_ = nullptr;
  bool allowed_ = true, failed_ = false;
  const bool protects_ = std::getenv("TRIAX_EMULATED_PROTECT") != nullptr;
  std::map<char*, size_t> live_, holes_;
  size_t used_ = 0;
};

DeviceMemory& memory() {
  static DeviceMemory all;
  return all;
}

bool find_in_memory(const void* data, size_t bytes, simt::GlobalRange& range) {
  return memory().holds(data, bytes, range);
}

struct Pinned {
  std::mutex mutex;
  std::map<const char*, size_t> live;
};
Pinned& pinned() {
  static Pinned all;
  return all;
}

}  // namespace

bool on_device(const void* data, size_t bytes) {
  simt::GlobalRange range;
  return memory().holds(data, bytes, range);
}
void set_host_access(HostAccess access) { memory().set_access(access); }

bool is_pinned(const void* data, size_t bytes) {
  const std::lock_guard lock(pinned().mutex);
  const auto* const p = static_cast<const char*>(data);
  auto at = pinned().live.upper_bound(p);
  if (at == pinned().live.begin()) return false;
  --at;
  return p + bytes <= at->first + at->second;
}

void memory_may_leak() { memory().failed(); }

}  // namespace triax::emulated

using triax::emulated::check_unsafe_call;
using triax::emulated::Gpu;

extern "C" __attribute__((visibility("default"))) triax::emulated::MemoryCounts* triax_emulated_memory() {
  static triax::emulated::MemoryCounts counts;
  return &counts;
}

cudaError_t cudaMalloc(void** data, size_t bytes) {
  if (const cudaError_t status = check_unsafe_call(); status != cudaSuccess) return status;
  triax::simt::find_global = triax::emulated::find_in_memory;  // kernels have memory that is theirs
  ++triax_emulated_memory()->device;
  *data = triax::emulated::memory().allocate(bytes);
  return *data == nullptr ? triax::emulated::pending_error = cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  if (data == nullptr) return cudaSuccess;
  if (const cudaError_t status = check_unsafe_call(); status != cudaSuccess) return status;
  bool known = false;
  Gpu::instance().drain();  // as the real call, it waits for all work
  Gpu::instance().locked([&] { known = triax::emulated::memory().free(data); });
  return known ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = triax::emulated::memory().available();
  *total = triax::emulated::kTotal;
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** data, size_t bytes) {
  if (const cudaError_t status = check_unsafe_call(); status != cudaSuccess) return status;
  ++triax_emulated_memory()->pinned;
  const size_t room = (std::max<size_t>(bytes, 1) + 255) / 256 * 256;
  *data = std::aligned_alloc(256, room);
  if (*data == nullptr) return cudaErrorMemoryAllocation;
  std::memset(*data, 0xff, room);
  triax::emulated::forbid(static_cast<char*>(*data) + bytes, room - bytes);
  const std::lock_guard lock(triax::emulated::pinned().mutex);
  triax::emulated::pinned().live[static_cast<char*>(*data)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) {
  if (data == nullptr) return cudaSuccess;
  if (const cudaError_t status = check_unsafe_call(); status != cudaSuccess) return status;
  Gpu::instance().drain();
  const std::lock_guard lock(triax::emulated::pinned().mutex);
  const auto at = triax::emulated::pinned().live.find(static_cast<char*>(data));
  if (at == triax::emulated::pinned().live.end()) return cudaErrorInvalidValue;
  triax::emulated::permit(at->first, (std::max<size_t>(at->second, 1) + 255) / 256 * 256);
  triax::emulated::pinned().live.erase(at);
  std::free(data);
  return cudaSuccess;
}
