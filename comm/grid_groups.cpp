#include "comm/grid_groups.h"

#include "comm/ledger_comm.h"
#include "comm/phantom.h"
#include "comm/queued_comm.h"
#include "comm/self_comm.h"

namespace triax::comm {
namespace {

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
  std::unique_ptr<Communicator> make_bare(const GroupInfo& group, RunsOn) override {
    if (group.size() == 1) return nullptr;
    return std::make_unique<PhantomCommunicator>(group, heap_);
  }

 private:
  HeapProvider heap_;
};

}  // namespace

GroupFactory::GroupFactory(const GridOptions& options, int world_rank, Ledger& ledger)
    : options_(options), world_rank_(world_rank), delays_(parse_delay_spec(options.delay_spec)), ledger_(&ledger) {}

std::unique_ptr<Communicator> GroupFactory::make(const std::string& name, const std::vector<int>& ranks,
                                                 RunsOn runs_on) {
  GroupInfo group{name, 0, ranks, {}, options_.timeout_s, &progress_};
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] == world_rank_) group.rank = static_cast<int>(i);
    group.hosts.push_back(hosts_[static_cast<size_t>(ranks[i])]);
  }
  const bool alone = ranks.size() == 1;
  std::unique_ptr<Communicator> comm = make_bare(group, runs_on);
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

std::unique_ptr<GroupFactory> make_phantom_groups(const PhantomRank& phantom, const GridOptions& options,
                                                  Ledger& ledger) {
  return std::make_unique<PhantomGroups>(phantom, options, ledger);
}

}  // namespace triax::comm
