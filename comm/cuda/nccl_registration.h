// Memory that NCCL knows, so that its kernels and network cards reach it without copies through NCCL's own buffers.
#pragma once

#include <nccl.h>

#include <map>
#include <vector>

#include "base/memory.h"
#include "kernels/cuda/resources.h"

namespace triax::comm {

class NcclLink;

/// ncclMemAlloc and ncclCommRegister came with NCCL 2.19; this program needs no more than 2.18, so they are looked up
/// in the library that runs. ncclMemAlloc gives whole pages of the links' switches, 512 MiB on H100, however little is
/// asked for: so memory is taken in slabs of that size, each registered once, and handed out in pieces.
class NcclRegistration final : public MemoryProvider {
 public:
  /// links: of all communicators; asked at every allocation.
  NcclRegistration(const std::vector<NcclLink*>& links, const kernels::GivesUp& gives_up)
      : links_(&links), gives_up_(&gives_up) {}
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
  struct Slab {
    size_t size_bytes = 0;
    std::map<size_t, size_t> holes{};  ///< offset to bytes
    std::vector<Handle> handles{};
  };
  using Slabs = std::map<std::byte*, Slab>;
  Slabs::iterator add_slab(size_t size_bytes);
  void* take(Slabs::iterator slab, size_t size_bytes);
  using Allocate = ncclResult_t (*)(void**, size_t);
  using Free = ncclResult_t (*)(void*);
  using Register = ncclResult_t (*)(ncclComm_t, void*, size_t, void**);
  using Deregister = ncclResult_t (*)(ncclComm_t, void*);
  const std::vector<NcclLink*>* links_;
  const kernels::GivesUp* gives_up_;
  Allocate allocate_ = nullptr;
  Free free_ = nullptr;
  Register register_ = nullptr;
  Deregister deregister_ = nullptr;
  Slabs slabs_;
};

}  // namespace triax::comm
