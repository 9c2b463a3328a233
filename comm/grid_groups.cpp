#include "comm/grid_groups.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "comm/host_comm.h"
#include "comm/ledger_comm.h"
#include "comm/mpi_check.h"
#include "comm/mpi_comm.h"
#include "comm/phantom.h"
#include "comm/queued_comm.h"
#include "comm/self_comm.h"

namespace triax::comm {
namespace {

constexpr int kSpins = 2000;  // 10 to 20 us

/// Cores that the ranks of `local` may use together.
int cores_of(MPI_Comm local, const GroupInfo& group) {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  MPI_Request request = MPI_REQUEST_NULL;
  TRIAX_MPI(MPI_Iallreduce(MPI_IN_PLACE, &set, sizeof(set), MPI_BYTE, MPI_BOR, local, &request));
  wait_all({&request, 1}, {}, group, Operation::AllReduce, 0);
  return CPU_COUNT(&set);
}

class MpiGroups final : public GroupFactory {
 public:
  MpiGroups(const MpiSession& session, const GridOptions& options, Ledger& ledger)
      : GroupFactory(options, session.rank(), ledger), session_(&session) {
    find_hosts();
    TRIAX_MPI(MPI_Comm_dup(MPI_COMM_WORLD, world_.out()));
    if (!options.shared_memory || session.local_size() == 1) return;
    MpiComm local;
    TRIAX_MPI(MPI_Comm_split_type(world_.get(), MPI_COMM_TYPE_SHARED, world_rank_, MPI_INFO_NULL, local.out()));
    GroupInfo group;
    group.name = "host";
    group.rank = session.local_rank();
    group.timeout_s = options.timeout_s;
    for (int r = 0; r < session.size(); ++r) {
      if (real_nodes_[static_cast<size_t>(r)] != real_nodes_[static_cast<size_t>(world_rank_)]) continue;
      group.world_ranks.push_back(r);
      group.hosts.push_back(session.host());
    }
    host_cores_ = cores_of(local.get(), group);
    host_memory_ = HostMemory::create(local.get(), group);
  }

  MemoryProvider& memory() override {
    if (host_memory_) return *host_memory_;
    return heap_;
  }

 protected:
  std::unique_ptr<Communicator> make_bare(const GroupInfo* group, RunsOn runs_on) override {
    MpiComm comm;
    const int color = group == nullptr ? MPI_UNDEFINED : *std::min_element(group->world_ranks.begin(),
                                                                           group->world_ranks.end());
    TRIAX_MPI(MPI_Comm_split(world_.get(), color, group == nullptr ? 0 : group->rank, comm.out()));
    if (group == nullptr) return nullptr;
    if (host_memory_ && on_one_node(group->world_ranks)) {
      // The communication thread shares the cores with the computing ones.
      const bool spin = runs_on == RunsOn::Caller && session_->local_size() <= host_cores_;
      const EventWait wait{spin ? kSpins : 0, options_.timeout_s, &progress_};
      return std::make_unique<HostCommunicator>(comm.get(), *group, *host_memory_, local_ranks_of(group->world_ranks),
                                                wait);
    }
    return std::make_unique<MpiCommunicator>(std::move(comm), *group, heap_, progress_);
  }

 private:
  /// Fills hosts_ (names) and the nodes: a node is named by its lowest world rank, then numbered in order.
  void find_hosts() {
    constexpr size_t kName = 64;
    const auto n = static_cast<size_t>(session_->size());
    std::array<char, kName> name{};
    std::strncpy(name.data(), session_->host().c_str(), kName - 1);
    std::vector<char> names(n * kName);
    MpiComm local;
    TRIAX_MPI(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, world_rank_, MPI_INFO_NULL, local.out()));
    int leader = world_rank_;
    std::vector<int> leaders(n);
    GroupInfo world{"world", world_rank_, {}, {}, options_.timeout_s};
    for (size_t r = 0; r < n; ++r) {
      world.world_ranks.push_back(static_cast<int>(r));
      world.hosts.emplace_back(r == static_cast<size_t>(world_rank_) ? session_->host() : "?");
    }
    MPI_Request request = MPI_REQUEST_NULL;
    TRIAX_MPI(MPI_Ibcast(&leader, 1, MPI_INT, 0, local.get(), &request));
    wait_all({&request, 1}, {}, world, Operation::Broadcast, 0);
    std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    TRIAX_MPI(MPI_Iallgather(name.data(), kName, MPI_CHAR, names.data(), kName, MPI_CHAR, MPI_COMM_WORLD,
                             &requests[0]));
    TRIAX_MPI(MPI_Iallgather(&leader, 1, MPI_INT, leaders.data(), 1, MPI_INT, MPI_COMM_WORLD, &requests[1]));
    wait_all(requests, {}, world, Operation::AllGather, 0);
    std::vector<int> distinct;
    for (size_t r = 0; r < n; ++r) {
      hosts_.emplace_back(&names[r * kName]);
      auto found = std::find(distinct.begin(), distinct.end(), leaders[r]);
      if (found == distinct.end()) found = distinct.insert(distinct.end(), leaders[r]);
      real_nodes_.push_back(static_cast<int>(found - distinct.begin()));
    }
    nodes_ = real_nodes_;
    if (options_.fake_nodes <= 0) return;
    for (size_t r = 0; r < n; ++r) nodes_[r] = static_cast<int>(r * static_cast<size_t>(options_.fake_nodes) / n);
  }

  bool on_one_node(const std::vector<int>& ranks) const {
    const auto place = [&](int r) {
      return std::pair(nodes_[static_cast<size_t>(r)], real_nodes_[static_cast<size_t>(r)]);
    };
    return std::all_of(ranks.begin(), ranks.end(), [&](int r) { return place(r) == place(ranks[0]); });
  }

  /// Index of each rank among the ranks of this host, which HostMemory counts in world order.
  std::vector<int> local_ranks_of(const std::vector<int>& ranks) const {
    std::vector<int> local;
    for (const int rank : ranks) {
      const auto end = real_nodes_.begin() + rank;
      local.push_back(static_cast<int>(std::count(real_nodes_.begin(), end, real_nodes_[static_cast<size_t>(rank)])));
    }
    return local;
  }

  const MpiSession* session_;
  int host_cores_ = 0;
  std::vector<int> real_nodes_;
  MpiComm world_;
  HeapProvider heap_;
  std::unique_ptr<HostMemory> host_memory_;
  Progress progress_;
};

class PhantomGroups final : public GroupFactory {
 public:
  PhantomGroups(const PhantomRank& phantom, const GridOptions& options, Ledger& ledger)
      : GroupFactory(options, phantom.world_rank, ledger) {
    for (int r = 0; r < options.shape.world(); ++r) {
      nodes_.push_back(r / phantom.ranks_per_node);
      hosts_.push_back("phantom" + std::to_string(nodes_.back()));
    }
  }
  MemoryProvider& memory() override { return heap_; }

 protected:
  std::unique_ptr<Communicator> make_bare(const GroupInfo* group, RunsOn) override {
    return group == nullptr ? nullptr : std::make_unique<PhantomCommunicator>(*group, heap_);
  }

 private:
  HeapProvider heap_;
};

}  // namespace

GroupFactory::GroupFactory(const GridOptions& options, int world_rank, Ledger& ledger)
    : options_(options), world_rank_(world_rank), delays_(parse_delay_spec(options.delay_spec)), ledger_(&ledger) {}

std::unique_ptr<Communicator> GroupFactory::make(const std::string& name, const std::vector<int>& ranks,
                                                 RunsOn runs_on) {
  GroupInfo group{name, 0, ranks, {}, options_.timeout_s};
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] == world_rank_) group.rank = static_cast<int>(i);
    group.hosts.push_back(hosts_[static_cast<size_t>(ranks[i])]);
  }
  const bool alone = ranks.size() == 1;
  std::unique_ptr<Communicator> comm = make_bare(alone ? nullptr : &group, runs_on);
  if (alone) comm = std::make_unique<SelfCommunicator>(name, memory());
  for (const DelayRule& rule : delays_) {
    if (alone || (rule.group != "all" && rule.group != name)) continue;
    comm = std::make_unique<DelayCommunicator>(std::move(comm), rule, world_rank_);
  }
  const bool queued = runs_on == RunsOn::CommThread && !alone;
  comm = std::make_unique<LedgerCommunicator>(std::move(comm), *ledger_, queued ? CallTime::Hidden : CallTime::Exposed);
  if (!queued) return comm;
  if (!thread_) thread_ = std::make_unique<CommThread>();
  return std::make_unique<QueuedCommunicator>(std::move(comm), *thread_, *ledger_);
}

std::unique_ptr<GroupFactory> make_mpi_groups(const MpiSession& session, const GridOptions& options, Ledger& ledger) {
  return std::make_unique<MpiGroups>(session, options, ledger);
}

std::unique_ptr<GroupFactory> make_phantom_groups(const PhantomRank& phantom, const GridOptions& options,
                                                  Ledger& ledger) {
  return std::make_unique<PhantomGroups>(phantom, options, ledger);
}

}  // namespace triax::comm
