#include "comm/cuda/nccl_registration.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>

#include "comm/cuda/nccl_check.h"
#include "comm/cuda/nccl_link.h"

namespace triax::comm {
namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kSlabBytes = size_t{512} << 20;

size_t rounded_up(size_t size, size_t to) { return (size + to - 1) / to * to; }

}  // namespace

void NcclRegistration::look_up() {
  if (allocate_ != nullptr) return;
  // The very library that this module is linked with, wherever it was found.
  Dl_info library{};
  void* handle = nullptr;
  if (dladdr(reinterpret_cast<void*>(&ncclGetVersion), &library) != 0) {
    handle = dlopen(library.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }
  const auto find = [&](auto& function, const char* name) {
    if (handle != nullptr)
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    return function != nullptr;
  };
  const bool found = find(free_, "ncclMemFree") && find(register_, "ncclCommRegister") &&
                     find(deregister_, "ncclCommDeregister") && find(allocate_, "ncclMemAlloc");
  if (handle != nullptr) dlclose(handle);
  if (found) return;
  allocate_ = nullptr;
  int version = 0;
  TRIAX_NCCL(ncclGetVersion(&version));
  throw RunTimeError(
      fmt::format("--use-nccl-ub: NCCL {}.{}.{} registers no memory: use NCCL 2.19 or newer, or leave the option out",
                  version / 10000, version / 100 % 100, version % 100));
}

NcclRegistration::Slabs::iterator NcclRegistration::add_slab(size_t size_bytes) {
  void* data = nullptr;
  TRIAX_NCCL(allocate_(&data, size_bytes));
  const auto slab = slabs_.emplace(static_cast<std::byte*>(data), Slab{size_bytes}).first;
  slab->second.holes[0] = size_bytes;
  for (NcclLink* link : *links_) {
    if (link->communicator() == nullptr) continue;
    void* handle = nullptr;
    TRIAX_NCCL(register_(link->communicator(), data, size_bytes, &handle));
    slab->second.handles.push_back({link, handle});
  }
  return slab;
}

/// The first hole that is large enough; null when there is none.
void* NcclRegistration::take(Slabs::iterator slab, size_t size_bytes) {
  auto& holes = slab->second.holes;
  const auto hole = std::find_if(holes.begin(), holes.end(), [&](const auto& h) { return h.second >= size_bytes; });
  if (hole == holes.end()) return nullptr;
  const auto [offset, room] = *hole;
  holes.erase(hole);
  if (room > size_bytes) holes[offset + size_bytes] = room - size_bytes;
  return slab->first + offset;
}

void* NcclRegistration::allocate(size_t size_bytes) {
  const size_t needed = rounded_up(std::max<size_t>(size_bytes, 1), kAlignment);
  for (auto slab = slabs_.begin(); slab != slabs_.end(); ++slab) {
    if (void* const data = take(slab, needed); data != nullptr) return data;
  }
  return take(add_slab(rounded_up(needed, kSlabBytes)), needed);
}

void NcclRegistration::forget(NcclLink* link) noexcept {
  for (auto& [data, slab] : slabs_) {
    std::erase_if(slab.handles, [&](const Handle& handle) {
      if (handle.link != link) return false;
      if (link->communicator() != nullptr) static_cast<void>(deregister_(link->communicator(), handle.handle));
      return true;
    });
  }
}

void NcclRegistration::deallocate(void* data, size_t size_bytes) noexcept {
  gives_up_->before_free();
  auto slab = slabs_.upper_bound(static_cast<std::byte*>(data));
  if (slab == slabs_.begin()) return;
  --slab;
  auto& holes = slab->second.holes;
  auto hole =
      holes
          .emplace(static_cast<std::byte*>(data) - slab->first, rounded_up(std::max<size_t>(size_bytes, 1), kAlignment))
          .first;
  if (const auto after = std::next(hole); after != holes.end() && hole->first + hole->second == after->first) {
    hole->second += after->second;
    holes.erase(after);
  }
  if (hole != holes.begin()) {
    const auto before = std::prev(hole);
    if (before->first + before->second == hole->first) {
      before->second += hole->second;
      holes.erase(hole);
    }
  }
  if (holes.begin()->second != slab->second.size_bytes) return;
  for (const Handle& handle : slab->second.handles) {
    if (handle.link->communicator() == nullptr) continue;  // given up
    static_cast<void>(deregister_(handle.link->communicator(), handle.handle));
  }
  static_cast<void>(free_(slab->first));
  slabs_.erase(slab);
}

}  // namespace triax::comm
