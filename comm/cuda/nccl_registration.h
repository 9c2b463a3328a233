// Memory that NCCL knows, so that its kernels and network cards reach it without copies through NCCL's own buffers.
#pragma once

#include <nccl.h>

#include <map>
#include <vector>

#include "base/memory.h"

namespace triax::comm {

class NcclLink;

/// ncclMemAlloc and ncclCommRegister came with NCCL 2.19; this program needs no more than 2.18, so they are looked up
/// in the library that runs.
class NcclRegistration final : public MemoryProvider {
 public:
  /// links: of all communicators; asked at every allocation.
  explicit NcclRegistration(const std::vector<NcclLink*>& links) : links_(&links) {}
  /// Throws RunTimeError with the remedy when the library has no such functions.
  void look_up();
  void* allocate(size_t size_bytes) override;
  void deallocate(void* data, size_t size_bytes) noexcept override;
  /// The communicator ends before the memory.
  void forget(NcclLink* link) noexcept;

 private:
  struct Handle {
    NcclLink* link;
    void* handle;
  };
  using Allocate = ncclResult_t (*)(void**, size_t);
  using Free = ncclResult_t (*)(void*);
  using Register = ncclResult_t (*)(ncclComm_t, void*, size_t, void**);
  using Deregister = ncclResult_t (*)(ncclComm_t, void*);
  const std::vector<NcclLink*>* links_;
  Allocate allocate_ = nullptr;
  Free free_ = nullptr;
  Register register_ = nullptr;
  Deregister deregister_ = nullptr;
  std::map<void*, std::vector<Handle>> registered_;
};

}  // namespace triax::comm
