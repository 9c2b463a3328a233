#include "comm/cuda/nccl_groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <thread>

#include "comm/cuda/nccl_check.h"
#include "comm/cuda/nccl_comm.h"

namespace triax::comm {

namespace {

/// What the environment tells NCCL: "NCCL_ALGO=Ring NCCL_DEBUG=WARN".
std::string settings() {
  std::vector<std::string> found;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::string_view(*entry).starts_with("NCCL_")) found.emplace_back(*entry);
  }
  std::sort(found.begin(), found.end());
  return found.empty() ? "no NCCL_ settings" : fmt::format("{}", fmt::join(found, " "));
}

}  // namespace

NcclGroups::NcclGroups(kernels::CudaDevice& device) : device_(&device), registration_(links_, device.gives_up()) {
  device.set_watch([this] { watch(); });
  device.gives_up().set([this] { abort_all(); });
}

NcclGroups::~NcclGroups() {
  device_->set_watch({});
  device_->gives_up().set({});
}

std::string NcclGroups::describe() const {
  int version = 0;
  TRIAX_NCCL(ncclGetVersion(&version));
  return fmt::format("NCCL {}.{}.{}, {}", version / 10000, version / 100 % 100, version % 100, settings());
}

MemoryProvider& NcclGroups::registered_memory() {
  registration_.look_up();
  return registration_;
}

DeviceGroups::Id NcclGroups::make_id() {
  ncclUniqueId name;
  TRIAX_NCCL(ncclGetUniqueId(&name));
  Id id;
  std::memcpy(id.data(), &name, id.size());
  return id;
}

std::unique_ptr<NcclLink> NcclGroups::make_link(const DeviceGroup& group, const Id& id,
                                                const NcclLink::Members& members) {
  auto link = std::make_unique<NcclLink>(*device_, group, id, members);
  links_.push_back(link.get());
  link->at_end([this, raw = link.get()] { forget(raw); });
  return link;
}

void NcclGroups::forget(NcclLink* link) noexcept {
  registration_.forget(link);
  std::erase(links_, link);
}

std::unique_ptr<Communicator> NcclGroups::make(const DeviceGroup& group, const Id& id) {
  return std::make_unique<NcclCommunicator>(*device_,
                                            make_link(group, id, {group.size(), group.info.rank, std::nullopt}));
}

std::unique_ptr<Communicator> NcclGroups::make_messages(const DeviceGroup& group, std::span<const Id> ids) {
  std::vector<NcclMessages::OwnLane> own;
  const std::vector<Lane> lanes = lanes_of(group.size());
  for (size_t i = 0; i < lanes.size(); ++i) {
    const bool sends = lanes[i].from == group.info.rank;
    if (!sends && lanes[i].to != group.info.rank) continue;
    own.push_back({lanes[i], make_link(group, ids[i], {2, sends ? 0 : 1, sends ? lanes[i].to : lanes[i].from})});
  }
  return std::make_unique<NcclMessages>(group, std::move(own));
}

void NcclGroups::collect() {
  for (NcclLink* link : links_) link->collect();
}

void NcclGroups::skip_meeting() {
  for (NcclLink* link : links_) link->skip_meeting();
}

void NcclGroups::meet(const HostGroup& host, double clock_offset_s) {
  collect();
  for (NcclLink* link : links_) link->meet(host(link->group().info.name), clock_offset_s);
}

/// One after the other would stand still at the first: freeing its memory waits for all that runs on the GPU,
/// operations of the others among it.
void NcclGroups::abort_all() noexcept {
  if (std::ranges::none_of(links_, [](const NcclLink* link) { return link->communicator() != nullptr; })) return;
  std::vector<std::jthread> threads;
  threads.reserve(links_.size());
  for (NcclLink* link : links_) {
    threads.emplace_back([this, link] {
      device_->use_in_this_thread();
      link->abort();
    });
  }
}

void NcclGroups::watch() {
  try {
    for (NcclLink* link : links_) {
      link->check_error();
      link->check_deadline();
    }
  } catch (...) {
    abort_all();
    throw;
  }
}

}  // namespace triax::comm

/// What the loader asks for (comm/device_groups.cpp); the caller owns it. The device came from this module.
extern "C" __attribute__((visibility("default"))) triax::comm::DeviceGroups* triax_make_device_groups(
    triax::kernels::DiscreteDevice* device) {
  return std::make_unique<triax::comm::NcclGroups>(static_cast<triax::kernels::CudaDevice&>(*device)).release();
}
