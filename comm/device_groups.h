// Groups whose tensors lie in the memory of a device (NCCL): made by the device's module, from ids that MPI ships.
//
// Their operations are ordered with the device's work by the device itself: what was given to the device before a call
// is done before the operation reads or writes its tensors, and what is given after Work::wait() comes after it. No
// call waits on the host, but each operation has the group's deadline, from when the device comes to it: past it the
// host's next wait for the device throws PeerLost. Tensors of the host are not theirs: ProcessGrid::host() has a group
// of the same ranks for those.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/call_record.h"
#include "comm/communicator.h"
#include "comm/group_info.h"
#include "kernels/cuda_loader.h"

namespace triax::comm {

struct DeviceGroup {
  GroupInfo info;
  Ledger* ledger = nullptr;  ///< gets the seconds of operations, when they are known
  CallRecord record;         ///< notes the operation for which the host, waiting for the device, waits
  int size() const { return info.size(); }
};

/// One direction between two neighbours of a pipeline, for messages of even or of odd tags. Messages of a lane arrive
/// in the order of the calls on both sides; lanes do not wait for each other.
struct Lane {
  int from = 0, to = 0;  ///< ranks of the group
  int parity = 0;        ///< of the tags
};
/// Both directions of every pair of neighbours on the ring, each twice. Every rank makes them in this order.
std::vector<Lane> lanes_of(int ranks);

class DeviceGroups {
 public:
  using Id = std::array<char, 128>;
  virtual ~DeviceGroups() = default;
  virtual kernels::DiscreteDevice& device() = 0;
  /// "NCCL 2.28.9, NCCL_ALGO=Ring": with what the environment sets.
  virtual std::string describe() const = 0;
  virtual Id make_id() = 0;
  /// The device's memory, registered with every group there is when it is allocated: groups then read and write it
  /// without copies of their own. RunTimeError where the library is too old for that.
  virtual MemoryProvider& registered_memory() = 0;
  /// Collective over the group, which has at least two ranks. id: made by its rank 0. Collectives run on a stream of
  /// this group.
  virtual std::unique_ptr<Communicator> make(const DeviceGroup& group, const Id& id) = 0;
  /// Messages alone. ids[i] was made by the sender of lanes_of(size)[i]; those of other ranks' lanes play no part.
  virtual std::unique_ptr<Communicator> make_messages(const DeviceGroup& group, std::span<const Id> ids) = 0;
  /// The seconds of all operations that are done go to their ledgers: all, after synchronize() of the device and a
  /// wait() for each.
  virtual void collect() = 0;
  /// Tells the ledgers when the last member came to each operation since the last call (of each group at most the
  /// first 65536). Collective over every group, in the order of their making, when collect() can take all; 8 bytes an
  /// operation, by the host's group of the same ranks. clock_offset_s: now_s() of this rank less that of the rank by
  /// whose clock all are compared.
  /// From here on meet() begins anew: what collect() has taken so far is left out.
  virtual void skip_meeting() = 0;
  using HostGroup = std::function<Communicator&(const std::string& name)>;
  virtual void meet(const HostGroup& host, double clock_offset_s) = 0;
};

/// From the module that `device` came from. RunTimeError when that was built without NCCL. Belongs to the device, which
/// must outlive it.
std::unique_ptr<DeviceGroups> make_device_groups(kernels::DiscreteDevice& device, kernels::CudaModule module);

}  // namespace triax::comm
