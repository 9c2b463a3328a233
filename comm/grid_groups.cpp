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

std::unique_ptr<Communicator> GroupFactory::make(const std::string& name, const std::vector<int>& ranks,
                                                 RunsOn runs_on) {
  GroupInfo group{name, 0, ranks, {}, options_.timeout_s, &progress_};
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] == world_rank_) group.rank = static_cast<int>(i);
    group.hosts.push_back(hosts_[static_cast<size_t>(ranks[i])]);
    group.nodes.push_back(nodes_[static_cast<size_t>(ranks[i])]);
  }
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

std::unique_ptr<GroupFactory> make_phantom_groups(const PhantomRank& phantom, const GridOptions& options,
                                                  Ledger& ledger) {
  return std::make_unique<PhantomGroups>(phantom, options, ledger);
}

}  // namespace triax::comm
