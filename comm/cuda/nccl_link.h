// An NCCL communicator with the stream that its operations run on.
#pragma once

#include <nccl.h>

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/device_groups.h"
#include "comm/running_time.h"
#include "kernels/cuda/cuda_device.h"

namespace triax::comm {

/// Every operation waits for what the compute stream had to do when it was called; Work::wait() makes the compute
/// stream wait for the operation. The host waits for neither. Seconds are taken from events: of the operation, from its
/// begin on the stream to its end (until the last peer is there included), and of the compute stream's wait. How much
/// of the former was before the last peer came is known after meet().
class NcclLink {
 public:
  /// Who takes part: the whole group, or this rank and one other for messages (which need few multiprocessors).
  struct Members {
    int ranks = 0, rank = 0;   ///< of the communicator
    std::optional<int> other;  ///< the other's rank in the group
  };
  /// Collective over the members; does not block in the library, and throws PeerLost past the deadline.
  NcclLink(kernels::CudaDevice& device, DeviceGroup group, const DeviceGroups::Id& id, const Members& members);
  ~NcclLink();
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;
  const DeviceGroup& group() const { return group_; }
  /// Called first when this ends.
  void at_end(std::function<void()> call) { at_end_ = std::move(call); }
  /// Null once given up.
  ncclComm_t communicator() const { return comm_; }

  /// call(communicator, stream) gives the operation to NCCL and returns its status.
  template <class Call>
  Work run(Operation op, Call call) {
    Slot& slot = begin(op);
    started(call(comm_, stream_.get()), op);
    return end(slot);
  }

  /// Throws when NCCL reports an error of this communicator.
  void check_error();
  /// Throws PeerLost when the operation that runs has run longer than the group's deadline. To be asked at least every
  /// half second. Notes the operation in the group's record until it is done.
  void check_deadline();
  /// Takes back what has been waited for and is done, with its seconds.
  void collect();
  void skip_meeting() { came_.clear(); }
  /// As DeviceGroups::meet, of this link.
  void meet(Communicator& host, double clock_offset_s);
  /// Gives up all operations; nothing works after that.
  void abort() noexcept;

 private:
  /// One operation; its events are used again.
  struct Slot {
    kernels::CudaEvent ready, begin, done, stand, go;
    Operation op = Operation::Barrier;
    int64_t sequence = 0;
    const char* label = nullptr;  ///< of the ledger, at the call
    bool waited = false;
    std::optional<RunningTime> running;  ///< since the host, waiting, first saw it run
  };
  /// When this rank came to an operation.
  struct Came {
    Operation op;
    const char* label;
    double begin_s, busy_s;  ///< begin on the clock of now_s()
  };
  class Pending;
  Slot& begin(Operation op);
  Work end(Slot& slot);
  void meet_members();
  /// NCCL may take its time to take an operation; the events behind it must not come first. Without an operation the
  /// communicator is being made.
  void started(ncclResult_t status, std::optional<Operation> op);
  void wait_until_ready(std::optional<Operation> op);
  [[noreturn]] void throw_lost(std::optional<Operation> op, double waited_s) const;
  void end_wait(Slot& slot);
  std::vector<double> exchange(Communicator& host, const std::vector<double>& mine) const;

  kernels::CudaDevice* device_;
  DeviceGroup group_;
  Members members_;
  ncclComm_t comm_ = nullptr;
  kernels::CudaStream stream_;
  std::deque<Slot> slots_;
  std::vector<Slot*> idle_;
  std::vector<Slot*> in_flight_;  ///< in order
  std::vector<Came> came_;        ///< since meet(), the first ones
  int64_t sequence_ = 0;
  std::function<void()> at_end_;
};

/// The library's name of an element type, and of an operation.
ncclDataType_t nccl_type(DType dtype);
ncclRedOp_t nccl_op(ReduceOp op);

}  // namespace triax::comm
