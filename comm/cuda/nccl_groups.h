// All NCCL communicators of a rank, and the watch over them.
#pragma once

#include <vector>

#include "comm/cuda/nccl_link.h"
#include "comm/cuda/nccl_registration.h"

namespace triax::comm {

/// While the host waits for the device it asks here: an error that NCCL reports, or an operation that runs longer than
/// its group's deadline (from its begin on the device, while this process runs), aborts all communicators, so that the
/// device comes free, and is thrown (ApiError, PeerLost).
class NcclGroups final : public DeviceGroups {
 public:
  explicit NcclGroups(kernels::CudaDevice& device);
  ~NcclGroups() override;
  NcclGroups(const NcclGroups&) = delete;
  NcclGroups& operator=(const NcclGroups&) = delete;
  kernels::DiscreteDevice& device() override { return *device_; }
  std::string describe() const override;
  Id make_id() override;
  MemoryProvider& registered_memory() override;
  std::unique_ptr<Communicator> make(const DeviceGroup& group, const Id& id) override;
  std::unique_ptr<Communicator> make_messages(const DeviceGroup& group, std::span<const Id> ids) override;
  void collect() override;
  void skip_meeting() override;
  void meet(const HostGroup& host, double clock_offset_s) override;

 private:
  std::unique_ptr<NcclLink> make_link(const DeviceGroup& group, const Id& id, const NcclLink::Members& members);
  void forget(NcclLink* link) noexcept;
  void watch();
  void abort_all() noexcept;

  kernels::CudaDevice* device_;
  std::vector<NcclLink*> links_;  ///< not owned: a group that ends, which it does before this, takes its own out
  NcclRegistration registration_;
};

}  // namespace triax::comm
