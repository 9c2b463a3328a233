#include "comm/cuda/nccl_registration.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>

#include "comm/cuda/nccl_check.h"
#include "comm/cuda/nccl_link.h"

namespace triax::comm {

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

void* NcclRegistration::allocate(size_t size_bytes) {
  void* data = nullptr;
  TRIAX_NCCL(allocate_(&data, std::max<size_t>(size_bytes, 1)));
  std::vector<Handle>& handles = registered_[data];
  for (NcclLink* link : *links_) {
    if (link->communicator() == nullptr) continue;
    void* handle = nullptr;
    TRIAX_NCCL(register_(link->communicator(), data, std::max<size_t>(size_bytes, 1), &handle));
    handles.push_back({link, handle});
  }
  return data;
}

void NcclRegistration::forget(NcclLink* link) noexcept {
  for (auto& [data, handles] : registered_) {
    std::erase_if(handles, [&](const Handle& handle) {
      if (handle.link != link) return false;
      if (link->communicator() != nullptr) static_cast<void>(deregister_(link->communicator(), handle.handle));
      return true;
    });
  }
}

void NcclRegistration::deallocate(void* data, size_t) noexcept {
  const auto found = registered_.find(data);
  if (found == registered_.end()) return;
  for (const Handle& handle : found->second) {
    if (handle.link->communicator() == nullptr) continue;  // given up
    static_cast<void>(deregister_(handle.link->communicator(), handle.handle));
  }
  registered_.erase(found);
  static_cast<void>(free_(data));
}

}  // namespace triax::comm
