// Builds the communicators of a ProcessGrid.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/comm_thread.h"
#include "comm/delay.h"
#include "comm/device_groups.h"
#include "comm/process_grid.h"
#include "comm/progress.h"
#include "comm/wait.h"

namespace triax::comm {

/// On which thread a group's collectives run.
enum class RunsOn { Caller, CommThread };

/// The group of ProcessGrid::control().
inline constexpr const char* kControlGroup = "control";

/// What carries a bare communicator. Best: shared memory on one node, else messages.
enum class Medium { Best, SharedMemory, Messages, Library };

/// Makes one group after the other; every rank must ask for the same names in the same order.
class GroupFactory {
 public:
  virtual ~GroupFactory() = default;
  /// `ranks`: world ranks of this rank's group, ascending along the axis. Groups of all ranks are disjoint.
  std::unique_ptr<Communicator> make(const std::string& name, const std::vector<int>& ranks, RunsOn runs_on);
  /// The same for tensors of a device: collectives, or messages alone.
  enum class Carries { Collectives, Messages };
  std::unique_ptr<Communicator> make_on_device(DeviceGroups& device, const std::string& name,
                                               const std::vector<int>& ranks, Carries carries);
  /// Collective over the world: ConfigError, on all ranks alike, when two of them compute on one GPU.
  void refuse_shared_gpus(const kernels::DiscreteDevice& device);
  virtual MemoryProvider& memory() = 0;
  const std::vector<int>& nodes() const { return nodes_; }
  /// An error is unwinding this rank: nothing of it shall wait any longer.
  void cancel() { progress_.cancel(); }

 protected:
  GroupFactory(const GridOptions& options, int world_rank, Ledger& ledger);
  /// The bare communicator; null for a group of one rank, which takes part all the same. ConfigError, on all ranks
  /// alike, where shared memory is asked for and a group cannot have it.
  virtual std::unique_ptr<Communicator> make_bare(const GroupInfo& group, RunsOn runs_on, Medium medium) = 0;
  /// What the plans of the group's algorithm send over; null where nothing moves.
  virtual std::unique_ptr<Communicator> make_links(const GroupInfo& group, RunsOn runs_on) {
    return make_bare(group, runs_on, Medium::Best);
  }

  /// Of every world rank.
  virtual std::vector<DeviceGroups::Id> gather_ids(const DeviceGroups::Id& mine) = 0;

  GridOptions options_;
  int world_rank_;
  Progress progress_;
  std::vector<int> nodes_;          ///< of each world rank
  std::vector<std::string> hosts_;  ///< of each world rank

 private:
  GroupInfo group_info(const std::string& name, const std::vector<int>& ranks);
  std::unique_ptr<Communicator> make_collectives(const GroupInfo& group, RunsOn runs_on);
  std::unique_ptr<Communicator> with_delays(std::unique_ptr<Communicator> comm, const std::string& name);
  std::vector<DelayRule> delays_;
  Ledger* ledger_;
  std::unique_ptr<CommThread> thread_;
};

/// Throws ConfigError: this group cannot have the shared memory that --collective-algorithm asks for.
[[noreturn]] void refuse_shared_memory(const std::string& group);

/// Over MPI, with shared memory inside a host. Collective over MPI_COMM_WORLD.
std::unique_ptr<GroupFactory> make_mpi_groups(const MpiSession& session, const GridOptions& options, Ledger& ledger);
/// Without MPI: groups that move nothing.
std::unique_ptr<GroupFactory> make_phantom_groups(const PhantomRank& phantom, const GridOptions& options,
                                                  Ledger& ledger);

}  // namespace triax::comm
