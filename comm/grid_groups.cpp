#include "comm/grid_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "comm/algorithms/algorithm_comm.h"
#include "comm/ledger_comm.h"
#include "comm/phantom.h"
#include "comm/queued_comm.h"
#include "comm/self_comm.h"

namespace triax::comm {
namespace {

/// End of the name under which a group's algorithm sends: delays may be injected into its messages alone.
constexpr std::string_view kLinks = ".links";

bool one_node(const GroupInfo& group) {
  return std::all_of(group.nodes.begin(), group.nodes.end(), [&](int node) { return node == group.nodes[0]; });
}

Medium medium_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::SharedMemory:
      return Medium::SharedMemory;
    case Algorithm::Direct:
      return Medium::Messages;
    case Algorithm::Library:
      return Medium::Library;
    default:
      return Medium::Best;
  }
}

class PhantomGroups final : public GroupFactory {
 public:
  PhantomGroups(const PhantomRank& phantom, const GridOptions& options, Ledger& ledger)
      : GroupFactory(options, phantom.world_rank, ledger), peers_(phantom.peers) {
    for (int r = 0; r < options.shape.world(); ++r) {
      nodes_.push_back(r / phantom.ranks_per_node);
      hosts_.push_back("phantom" + std::to_string(nodes_.back()));
    }
  }
  MemoryProvider& memory() override { return heap_; }

 protected:
  std::unique_ptr<Communicator> make_bare(const GroupInfo& group, RunsOn, Medium medium) override {
    if (group.size() == 1) return nullptr;
    if (medium == Medium::SharedMemory && !one_node(group)) refuse_shared_memory(group.name);
    return std::make_unique<PhantomCommunicator>(group, heap_, peers_);
  }
  std::unique_ptr<Communicator> make_links(const GroupInfo&, RunsOn) override { return nullptr; }
  std::vector<DeviceGroups::Id> gather_ids(const DeviceGroups::Id&) override { return {}; }

 private:
  PhantomPeers peers_;
  HeapProvider heap_;
};

}  // namespace

GroupFactory::GroupFactory(const GridOptions& options, int world_rank, Ledger& ledger)
    : options_(options), world_rank_(world_rank), delays_(parse_delay_spec(options.delay_spec)), ledger_(&ledger) {}

void refuse_shared_memory(const std::string& group) {
  throw ConfigError(
      fmt::format("--collective-algorithm {}=shared-memory: the ranks of a {} group must stand on one node and share "
                  "its memory; use {}=default, {}=direct or {}=hierarchical",
                  group, group, group, group, group));
}

std::unique_ptr<Communicator> GroupFactory::with_delays(std::unique_ptr<Communicator> comm, const std::string& name) {
  for (const DelayRule& rule : delays_) {
    if (!comm || (rule.group != name && (rule.group != "all" || name.ends_with(kLinks)))) continue;
    comm = std::make_unique<DelayCommunicator>(std::move(comm), rule, world_rank_);
  }
  return comm;
}

/// Every rank makes as many communicators, a lone one too: making them is collective.
std::unique_ptr<Communicator> GroupFactory::make_collectives(const GroupInfo& group, RunsOn runs_on) {
  const Algorithm algorithm = options_.collectives.of(group.name);
  std::unique_ptr<Communicator> comm = make_bare(group, runs_on, medium_of(algorithm));
  if (has_plans(algorithm)) {
    GroupInfo links_group = group;
    links_group.name += kLinks;
    std::unique_ptr<Communicator> links = make_links(links_group, runs_on);
    links = with_delays(std::move(links), links_group.name);
    if (comm) {
      comm = std::make_unique<AlgorithmCommunicator>(std::move(comm), std::move(links), algorithm,
                                                     options_.collectives.order,
                                                     PlanGroup{group.rank, group.size(), group.nodes}, memory());
    }
  }
  comm = with_delays(std::move(comm), group.name);
  return comm ? std::move(comm) : std::make_unique<SelfCommunicator>(group.name, memory());
}

GroupInfo GroupFactory::group_info(const std::string& name, const std::vector<int>& ranks) {
  GroupInfo group{name, 0, ranks, {}, options_.timeout_s, &progress_};
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] == world_rank_) group.rank = static_cast<int>(i);
    group.hosts.push_back(hosts_[static_cast<size_t>(ranks[i])]);
    group.nodes.push_back(nodes_[static_cast<size_t>(ranks[i])]);
  }
  return group;
}

std::unique_ptr<Communicator> GroupFactory::make(const std::string& name, const std::vector<int>& ranks,
                                                 RunsOn runs_on) {
  const GroupInfo group = group_info(name, ranks);
  std::unique_ptr<Communicator> comm = make_collectives(group, runs_on);
  const bool queued = runs_on == RunsOn::CommThread && ranks.size() > 1;
  CallRecord record;
  if (options_.flight != nullptr && ranks.size() > 1) {
    record = {options_.flight, FlightLane::Caller, options_.flight->name_index(name)};
  }
  CallRecord inner = record;
  if (queued) inner.lane = FlightLane::CommThread;
  if (name == kControlGroup) inner.lane = FlightLane::Control;
  comm = std::make_unique<LedgerCommunicator>(std::move(comm), *ledger_, queued ? CallTime::Hidden : CallTime::Exposed,
                                              group.nodes, inner);
  if (!queued) return comm;
  if (!thread_) thread_ = std::make_unique<CommThread>();
  return std::make_unique<QueuedCommunicator>(std::move(comm), *thread_, *ledger_, record);
}

void GroupFactory::refuse_shared_gpus(const kernels::DiscreteDevice& device) {
  DeviceGroups::Id mine{};
  const std::string uuid = device.uuid();
  std::copy_n(uuid.begin(), std::min(uuid.size(), mine.size()), mine.begin());
  const std::vector<DeviceGroups::Id> all = gather_ids(mine);
  for (size_t r = 0; r < all.size(); ++r) {
    const auto first = static_cast<size_t>(std::find(all.begin(), all.end(), all[r]) - all.begin());
    if (first == r || hosts_[first] != hosts_[r]) continue;
    throw ConfigError(
        fmt::format("--device cuda: ranks {} and {} on {} have one and the same GPU, and NCCL needs one for each rank: "
                    "start as many ranks per node as there are GPUs (CUDA_VISIBLE_DEVICES, Slurm: --gpus-per-node)",
                    first, r, hosts_[r]));
  }
}

std::unique_ptr<Communicator> GroupFactory::make_on_device(DeviceGroups& device, const std::string& name,
                                                           const std::vector<int>& ranks, Carries carries) {
  DeviceGroup group{group_info(name, ranks), ledger_, {}};
  if (options_.flight != nullptr && ranks.size() > 1) {
    group.record = {options_.flight, FlightLane::Caller, options_.flight->name_index(name)};
  }
  // Every rank takes part in every exchange, a lone one too.
  const auto id_of = [&](int maker) {
    const bool mine = group.size() > 1 && group.info.rank == maker;
    return gather_ids(mine ? device.make_id()
                           : DeviceGroups::Id{})[static_cast<size_t>(ranks[static_cast<size_t>(maker % group.size())])];
  };
  std::unique_ptr<Communicator> comm;
  if (carries == Carries::Collectives) {
    const DeviceGroups::Id id = id_of(0);
    if (group.size() > 1) comm = device.make(group, id);
  } else if (group.size() > 1) {  // all groups of this name have one size
    std::vector<DeviceGroups::Id> ids;
    for (const Lane& lane : lanes_of(group.size())) ids.push_back(id_of(lane.from));
    comm = device.make_messages(group, ids);
  }
  if (!comm) comm = std::make_unique<SelfCommunicator>(name, device.device().memory(), &device.device());
  return std::make_unique<LedgerCommunicator>(std::move(comm), *ledger_, CallTime::OnDevice, group.info.nodes,
                                              group.record);
}

std::unique_ptr<GroupFactory> make_phantom_groups(const PhantomRank& phantom, const GridOptions& options,
                                                  Ledger& ledger) {
  return std::make_unique<PhantomGroups>(phantom, options, ledger);
}

}  // namespace triax::comm
