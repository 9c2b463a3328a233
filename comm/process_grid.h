// The ranks as a grid of tensor, context, data and pipeline axes, and the communicators along them.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/flight_recorder.h"
#include "comm/algorithms/choice.h"
#include "comm/clock_alignment.h"
#include "comm/communicator.h"
#include "comm/device_groups.h"
#include "comm/ledger.h"
#include "comm/mpi_session.h"

namespace triax::comm {

enum class Axis { Tensor, Context, Data, Pipeline };
/// "tp", "cp", "dp", "pp".
const char* name_of(Axis axis);

/// tp innermost. TpCpDpPp is Megatron's default; TpCpPpDp is --use-tp-pp-dp-mapping.
enum class RankOrder { TpCpDpPp, TpCpPpDp };

struct GridShape {
  int tensor = 1;
  int context = 1;
  int data = 1;
  int pipeline = 1;
  RankOrder order = RankOrder::TpCpDpPp;
  int size_of(Axis axis) const;
  int world() const { return tensor * context * data * pipeline; }
};

struct GridCoord {
  int tensor = 0, context = 0, data = 0, pipeline = 0;
  int along(Axis axis) const;
  bool operator==(const GridCoord&) const = default;
};

/// Pure functions of the shape: world rank <-> coordinates, and the world ranks of the group along `axis` of `rank`.
GridCoord coord_of(const GridShape& shape, int world_rank);
int rank_of(const GridShape& shape, const GridCoord& coord);
std::vector<int> group_of(const GridShape& shape, int world_rank, Axis axis);
/// World ranks of the model replica of `world_rank` (tp x pp), ascending.
std::vector<int> model_parallel_group_of(const GridShape& shape, int world_rank);
/// First and last pipeline stage; the rank alone when pp = 1 or it is in the middle.
std::vector<int> embedding_group_of(const GridShape& shape, int world_rank);
/// dp ranks are cut into runs of `size` consecutive ones, over which ZeRO shards (FSDP's HYBRID_SHARD, arXiv 2304.11277
/// section 3.2.2); size divides dp.
std::vector<int> shard_group_of(const GridShape& shape, int world_rank, int size);
/// The dp ranks with the same index in their shard groups: they hold the same shards.
std::vector<int> replica_group_of(const GridShape& shape, int world_rank, int size);
/// `replication` consecutive tp ranks.
std::vector<int> kv_replica_group_of(const GridShape& shape, int world_rank, int replication);

struct GridOptions {
  GridShape shape;
  int shard_group = 0;        ///< dp ranks over which ZeRO shards; divides dp; 0: all of them
  int kv_replication = 1;     ///< consecutive tp ranks that hold the same KV heads (tp / KV heads when tp is larger)
  double timeout_s = 600;     ///< deadline of every wait
  bool shared_memory = true;  ///< use shared windows inside a host
  int fake_nodes = 0;         ///< 0: real nodes; n: pretend that the host is n nodes (tests)
  std::string delay_spec;     ///< injected delays, empty for none (comm/delay.h)
  FlightRecorder* flight = nullptr;  ///< notes the calls of all groups; null: nothing does
  CollectiveOptions collectives;     ///< algorithm of each group, order of sums
};

/// What the peers of a rank that runs alone are taken to send (comm/phantom.h).
enum class PhantomPeers { Silent, Echo };

/// One rank of a job that does not run: its groups move nothing (comm/phantom.h).
struct PhantomRank {
  int world_rank = 0;
  int ranks_per_node = 8;
  PhantomPeers peers = PhantomPeers::Silent;
};

/// Owns every communicator; all are made in the constructor, in one global order, on every rank alike.
class ProcessGrid {
 public:
  /// device: tp, dp, pp and their parts carry tensors of its memory; world, model_parallel and control the host's.
  /// Null: all carry the host's. ConfigError, on all ranks alike, when two ranks have one GPU.
  ProcessGrid(MpiSession& session, const GridOptions& options, DeviceGroups* device = nullptr);
  /// Without MPI; shared_memory, fake_nodes and timeout_s play no part.
  ProcessGrid(const PhantomRank& phantom, const GridOptions& options);
  ~ProcessGrid();
  ProcessGrid(const ProcessGrid&) = delete;
  ProcessGrid& operator=(const ProcessGrid&) = delete;

  const GridShape& shape() const { return shape_; }
  const GridCoord& coord() const { return coord_; }
  int world_rank() const { return world_rank_; }
  /// Group along an axis. tp works inline on the caller; dp works on the communication thread, so it overlaps.
  Communicator& axis(Axis axis);
  Communicator& tensor() { return axis(Axis::Tensor); }
  Communicator& data() { return axis(Axis::Data); }
  Communicator& pipeline() { return axis(Axis::Pipeline); }
  /// dp ranks that together hold one sharded copy of this rank's part of the model, and those that hold the same shard;
  /// dp itself where one of them is all of dp, then the other is this rank alone. Both run on the communication thread.
  Communicator& shard();
  Communicator& replica();
  /// tp x pp ranks of one model replica: gradient norm and overflow flags.
  Communicator& model_parallel();
  /// First and last pipeline stage of this rank's (tp, dp); size 1 when pp = 1 or the rank is in the middle.
  Communicator& embedding();
  /// tp ranks that hold the same KV heads; size 1 without replication.
  Communicator& kv_replicas();
  Communicator& world();
  /// All ranks again, for a thread beside the one that trains (saving in the background). Not used by that one
  /// meanwhile.
  Communicator& control();
  /// The ranks of `group`, one of those above, for tensors of the host's memory: itself unless it carries a device's.
  Communicator& host(Communicator& group);
  /// Memory that all ranks of the host can reach: collectives on tensors of arenas over it need no copies inside a
  /// host. The heap when there are no peers on this host or shared memory is off. Thread-safe; lives as long as the
  /// grid.
  MemoryProvider& memory();
  /// Node of each world rank.
  const std::vector<int>& nodes() const { return nodes_; }
  /// How far the ranks' clocks stand apart now; collective over world.
  ClockAlignment align_clocks();
  /// The ledger has the seconds of all operations of a device that are done. Not collective.
  void collect_device_seconds();
  /// meet_on_device() is to begin with the operations from here on.
  void skip_meeting_on_device();
  /// The ledger also has how long each waited for its last member (DeviceGroups::meet): after a synchronize() of the
  /// device. Collective over world and all groups; nothing where groups carry the host's tensors.
  void meet_on_device();
  /// Bytes, calls and seconds of all operations of all groups of this rank.
  Ledger& ledger() { return ledger_; }
  /// Of the options; may be null.
  FlightRecorder* flight() const { return flight_; }

 private:
  struct Impl;
  GridShape shape_;
  GridCoord coord_;
  int world_rank_ = 0;
  std::vector<int> nodes_;
  Ledger ledger_;
  FlightRecorder* flight_ = nullptr;
  std::unique_ptr<Impl> impl_;
};

}  // namespace triax::comm
