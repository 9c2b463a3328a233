#include "comm/cuda/nccl_groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "comm/cuda/nccl_check.h"
#include "comm/cuda/nccl_comm.h"

namespace triax::comm {

NcclGroups::NcclGroups(kernels::CudaDevice& device) : device_(&device) {
  device.set_watch([this](double waited_s) { watch(waited_s); });
}

NcclGroups::~NcclGroups() { device_->set_watch({}); }

std::string NcclGroups::describe() const {
  int version = 0;
  TRIAX_NCCL(ncclGetVersion(&version));
  return fmt::format("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

DeviceGroups::Id NcclGroups::make_id() {
  ncclUniqueId name;
  TRIAX_NCCL(ncclGetUniqueId(&name));
  Id id;
  std::memcpy(id.data(), &name, id.size());
  return id;
}

std::unique_ptr<NcclLink> NcclGroups::make_link(const DeviceGroup& group, const Id& id, int ranks, int rank,
                                                NcclLink::Width width) {
  auto link = std::make_unique<NcclLink>(*device_, group, id, ranks, rank, width);
  links_.push_back(link.get());
  shortest_timeout_s_ = links_.size() == 1 ? group.timeout_s : std::min(shortest_timeout_s_, group.timeout_s);
  return link;
}

std::unique_ptr<Communicator> NcclGroups::make(const DeviceGroup& group, const Id& id) {
  return std::make_unique<NcclCommunicator>(*device_,
                                            make_link(group, id, group.size(), group.rank, NcclLink::Width::Full));
}

std::unique_ptr<Communicator> NcclGroups::make_messages(const DeviceGroup& group, std::span<const Id> ids) {
  std::vector<NcclMessages::OwnLane> own;
  const std::vector<Lane> lanes = lanes_of(group.size());
  for (size_t i = 0; i < lanes.size(); ++i) {
    if (lanes[i].from != group.rank && lanes[i].to != group.rank) continue;
    const int rank = lanes[i].from == group.rank ? 0 : 1;
    own.push_back({lanes[i], make_link(group, ids[i], 2, rank, NcclLink::Width::Narrow)});
  }
  return std::make_unique<NcclMessages>(group, std::move(own));
}

void NcclGroups::abort_all() noexcept {
  for (NcclLink* link : links_) link->abort();
}

void NcclGroups::watch(double waited_s) {
  try {
    for (NcclLink* link : links_) link->check_error();
  } catch (...) {
    abort_all();
    throw;
  }
  if (links_.empty() || waited_s <= shortest_timeout_s_) return;
  for (NcclLink* link : links_) {
    const std::string operation = link->stuck();
    if (operation.empty()) continue;
    const DeviceGroup group = link->group();
    abort_all();
    throw PeerLost(
        fmt::format("peer lost: {} waited {:.1f} s on {} rank {} ({}); no answer from a member of world "
                    "ranks {}",
                    operation, waited_s, group.name, group.rank, group.hosts[static_cast<size_t>(group.rank)],
                    fmt::join(group.world_ranks, " ")));
  }
}

}  // namespace triax::comm

/// What the loader asks for (comm/device_groups.cpp); the caller owns it. The device came from this module.
extern "C" __attribute__((visibility("default"))) triax::comm::DeviceGroups* triax_make_device_groups(
    triax::kernels::DiscreteDevice* device) {
  return std::make_unique<triax::comm::NcclGroups>(static_cast<triax::kernels::CudaDevice&>(*device)).release();
}
