// An NCCL communicator with the stream that its operations run on.
#pragma once

#include <nccl.h>

#include <deque>
#include <string>
#include <vector>

#include "comm/device_groups.h"
#include "kernels/cuda/cuda_device.h"

namespace triax::comm {

/// Every operation waits for what the compute stream had to do when it was called; Work::wait() makes the compute
/// stream wait for the operation. The host waits for neither. Seconds are taken from events: of the operation, from its
/// begin on the stream to its end (until the last peer is there included), and of the compute stream's wait.
class NcclLink {
 public:
  /// How many multiprocessors it may take: messages need few.
  enum class Width { Full, Narrow };
  /// Collective over `ranks` ranks; does not block in the library, and throws PeerLost past the deadline.
  NcclLink(kernels::CudaDevice& device, DeviceGroup group, const DeviceGroups::Id& id, int ranks, int rank,
           Width width);
  ~NcclLink();
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;
  const DeviceGroup& group() const { return group_; }

  /// call(communicator, stream) gives the operation to NCCL and returns its status.
  template <class Call>
  Work run(Operation op, Call call) {
    Slot& slot = begin(op);
    started(call(comm_, stream_.get()), op);
    return end(slot);
  }

  /// Throws when NCCL reports an error of this communicator.
  void check_error();
  /// Words about the operation that runs and does not end; empty when there is none.
  std::string stuck();
  /// Gives up all operations; nothing works after that.
  void abort() noexcept;

 private:
  /// One operation; its events are used again.
  struct Slot {
    kernels::CudaEvent ready, begin, done, stand, go;
    Operation op = Operation::Barrier;
    int64_t sequence = 0;
    bool waited = false;
  };
  class Pending;
  Slot& begin(Operation op);
  Work end(Slot& slot);
  /// NCCL may take its time to take an operation; the events behind it must not come first.
  void started(ncclResult_t status, Operation op);
  void wait_until_ready(const char* what);
  void collect();

  kernels::CudaDevice* device_;
  DeviceGroup group_;
  ncclComm_t comm_ = nullptr;
  kernels::CudaStream stream_;
  std::deque<Slot> slots_;
  std::vector<Slot*> idle_;
  std::deque<Slot*> in_flight_;  ///< in order
  int64_t sequence_ = 0;
};

/// The library's name of an element type, and of an operation.
ncclDataType_t nccl_type(DType dtype);
ncclRedOp_t nccl_op(ReduceOp op);

}  // namespace triax::comm
