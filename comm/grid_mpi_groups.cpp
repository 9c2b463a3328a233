// The groups of a real job: over shared memory where a group stands on one node, else over MPI messages.
#include <sched.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "comm/algorithms/library_comm.h"
#include "comm/grid_groups.h"
#include "comm/host_comm.h"
#include "comm/mpi_check.h"
#include "comm/mpi_comm.h"

namespace triax::comm {
namespace {

constexpr double kRollCallGrace_s = 2;
constexpr int kSpins = 2000;  // 10 to 20 us

/// What every rank tells all others at the start.
struct Facts {
  std::array<char, 64> host{};
  int host_leader = 0;
  HostMemory::File file;
  cpu_set_t cores{};
};

class MpiGroups final : public GroupFactory {
 public:
  MpiGroups(const MpiSession& session, const GridOptions& options, Ledger& ledger)
      : GroupFactory(options, session.rank(), ledger), session_(&session) {
    world_ = {"world", world_rank_, {}, {}, options.timeout_s, &progress_};
    for (int r = 0; r < session.size(); ++r) world_.world_ranks.push_back(r);
    world_.hosts.assign(static_cast<size_t>(session.size()), "a host not known yet");
    world_.hosts[static_cast<size_t>(session.rank())] = session.host();
    call_the_roll();
    if (options.shared_memory && session.local_size() > 1) {
      host_memory_ = std::make_unique<HostMemory>(session.local_rank(), session.local_size());
    }
    const std::vector<Facts> facts = gather_all(own_facts());
    number_nodes(facts);
    count_cores(facts);
    map_host_memory(facts);
  }

  MemoryProvider& memory() override {
    if (host_memory_) return *host_memory_;
    return heap_;
  }

 protected:
  std::vector<DeviceGroups::Id> gather_ids(const DeviceGroups::Id& mine) override { return gather_all(mine); }
  std::unique_ptr<Communicator> make_bare(const GroupInfo& group, RunsOn runs_on, Medium medium) override {
    struct Wish {
      int64_t region = 0;      ///< in the window, for a group on one node
      int64_t needs_comm = 0;  ///< 1: the group goes through MPI
    };
    const bool alone = group.size() == 1;
    const bool may_share = medium == Medium::Best || medium == Medium::SharedMemory;
    const bool shared = !alone && may_share && host_memory_ && on_one_node(group.world_ranks);
    Wish mine;
    if (shared) mine.region = HostCommunicator::reserve_region(*host_memory_, group.size());
    mine.needs_comm = !alone && !shared ? 1 : 0;
    const std::vector<Wish> wishes = gather_all(mine);
    // Splitting is collective over the world: all take part as soon as one group needs a communicator.
    MpiComm comm;
    if (std::any_of(wishes.begin(), wishes.end(), [](const Wish& wish) { return wish.needs_comm != 0; })) {
      if (medium == Medium::SharedMemory) refuse_shared_memory(group.name);
      const int first = *std::min_element(group.world_ranks.begin(), group.world_ranks.end());
      const int color = mine.needs_comm != 0 ? first : MPI_UNDEFINED;
      TRIAX_MPI(MPI_Comm_split(MPI_COMM_WORLD, color, group.rank, comm.out()));
    }
    if (alone) return nullptr;
    if (!shared) progress_.start_thread();
    if (medium == Medium::Library) return std::make_unique<LibraryCommunicator>(std::move(comm), group, heap_);
    if (!shared) return std::make_unique<MpiCommunicator>(std::move(comm), group, heap_);
    HostMembers members;
    for (const int rank : group.world_ranks) {
      members.local_ranks.push_back(local_rank_of(rank));
      members.regions.push_back(wishes[static_cast<size_t>(rank)].region);
    }
    // The communication thread shares the cores with the computing ones, and so does not spin.
    const bool spin = runs_on == RunsOn::Caller && session_->local_size() <= host_cores_;
    return std::make_unique<HostCommunicator>(*host_memory_, members, group,
                                              EventWait{spin ? kSpins : 0, options_.timeout_s, &progress_});
  }

 private:
  /// `mine` of every world rank.
  template <class T>
  std::vector<T> gather_all(const T& mine) {
    std::vector<T> all(static_cast<size_t>(session_->size()));
    MPI_Request request = MPI_REQUEST_NULL;
    TRIAX_MPI(MPI_Iallgather(&mine, sizeof(T), MPI_BYTE, all.data(), sizeof(T), MPI_BYTE, MPI_COMM_WORLD, &request));
    wait_all({&request, 1}, {}, world_, Operation::AllGather, 0);
    return all;
  }

  /// A rank that is missing at the start is named: rank 0 hears from each, then answers each. The first collective
  /// could only say that somebody is missing.
  void call_the_roll() {
    constexpr int kTag = 1;
    const int size = session_->size();
    std::vector<MPI_Request> requests;
    std::vector<int> peers;
    GroupInfo group = world_;
    const auto meet = [&](Operation op) {
      for (const int peer : peers) {
        requests.push_back(MPI_REQUEST_NULL);
        TRIAX_MPI(op == Operation::Recv
                      ? MPI_Irecv(nullptr, 0, MPI_BYTE, peer, kTag, MPI_COMM_WORLD, &requests.back())
                      : MPI_Isend(nullptr, 0, MPI_BYTE, peer, kTag, MPI_COMM_WORLD, &requests.back()));
      }
      wait_all(requests, peers, group, op, 0);
      requests.clear();
    };
    if (world_rank_ == 0) {
      for (int r = 1; r < size; ++r) peers.push_back(r);
      meet(Operation::Recv);
      meet(Operation::Send);
    } else {
      peers.push_back(0);
      group.timeout_s += kRollCallGrace_s;  // rank 0 names the missing one first
      meet(Operation::Send);
      meet(Operation::Recv);
    }
  }

  Facts own_facts() const {
    Facts facts;
    std::strncpy(facts.host.data(), session_->host().c_str(), facts.host.size() - 1);
    facts.host_leader = session_->host_leader();
    if (host_memory_) facts.file = host_memory_->file();
    sched_getaffinity(0, sizeof(facts.cores), &facts.cores);
    return facts;
  }

  void number_nodes(const std::vector<Facts>& facts) {
    std::vector<int> leaders;
    for (const Facts& rank : facts) {
      hosts_.emplace_back(rank.host.data());
      auto found = std::find(leaders.begin(), leaders.end(), rank.host_leader);
      if (found == leaders.end()) found = leaders.insert(leaders.end(), rank.host_leader);
      real_nodes_.push_back(static_cast<int>(found - leaders.begin()));
    }
    world_.hosts = hosts_;
    nodes_ = real_nodes_;
    if (options_.fake_nodes <= 0) return;
    for (size_t r = 0; r < nodes_.size(); ++r) {
      nodes_[r] = static_cast<int>(r * static_cast<size_t>(options_.fake_nodes) / nodes_.size());
    }
  }

  bool on_this_host(size_t rank) const { return real_nodes_[rank] == real_nodes_[static_cast<size_t>(world_rank_)]; }

  /// Cores that the ranks of this host may use together.
  void count_cores(const std::vector<Facts>& facts) {
    cpu_set_t all;
    CPU_ZERO(&all);
    for (size_t r = 0; r < facts.size(); ++r) {
      if (on_this_host(r)) CPU_OR(&all, &all, &facts[r].cores);
    }
    host_cores_ = CPU_COUNT(&all);
  }

  /// Keeps the host's memory only if all ranks of the host can reach it.
  void map_host_memory(const std::vector<Facts>& facts) {
    std::vector<HostMemory::File> files;
    for (size_t r = 0; r < facts.size(); ++r) {
      if (on_this_host(r)) files.push_back(facts[r].file);
    }
    const int mine = !host_memory_ || host_memory_->map_peers(files) ? 1 : 0;
    const std::vector<int> mapped = gather_all(mine);
    for (size_t r = 0; r < mapped.size(); ++r) {
      if (!on_this_host(r) || mapped[r] != 0) continue;
      host_memory_.reset();
      if (session_->local_rank() != 0) continue;
      spdlog::warn(
          "world rank {} on {} cannot map the memory of its peers (memfd through /proc/<pid>/fd): groups "
          "inside this host use MPI messages, which is slower",
          r, session_->host());
    }
  }

  bool on_one_node(const std::vector<int>& ranks) const {
    return std::all_of(ranks.begin(), ranks.end(), [&](int r) {
      return on_this_host(static_cast<size_t>(r)) &&
             nodes_[static_cast<size_t>(r)] == nodes_[static_cast<size_t>(world_rank_)];
    });
  }

  /// Index of a rank of this host among them, which HostMemory counts in world order.
  int local_rank_of(int rank) const {
    return static_cast<int>(
        std::count(real_nodes_.begin(), real_nodes_.begin() + rank, real_nodes_[static_cast<size_t>(world_rank_)]));
  }

  const MpiSession* session_;
  GroupInfo world_;
  int host_cores_ = 1;
  std::vector<int> real_nodes_;
  HeapProvider heap_;
  std::unique_ptr<HostMemory> host_memory_;
};

}  // namespace

std::unique_ptr<GroupFactory> make_mpi_groups(const MpiSession& session, const GridOptions& options, Ledger& ledger) {
  return std::make_unique<MpiGroups>(session, options, ledger);
}

}  // namespace triax::comm
