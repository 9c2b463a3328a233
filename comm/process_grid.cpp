#include "comm/process_grid.h"

#include <fmt/format.h>

#include <exception>

#include "comm/grid_groups.h"

namespace triax::comm {
namespace {

std::vector<int> all_ranks(const GridShape& shape) {
  std::vector<int> ranks;
  for (int r = 0; r < shape.world(); ++r) ranks.push_back(r);
  return ranks;
}

void check_world(const GridShape& shape, int world) {
  if (shape.tensor < 1 || shape.context < 1 || shape.data < 1 || shape.pipeline < 1 || shape.world() != world) {
    throw ConfigError(
        fmt::format("process grid: tp {} x cp {} x dp {} x pp {} is {} ranks, but the job has {}; start {} ranks",
                    shape.tensor, shape.context, shape.data, shape.pipeline, shape.world(), world, shape.world()));
  }
}

}  // namespace

/// The factory outlives the communicators: it owns their memory and thread.
struct ProcessGrid::Impl {
  Impl(std::unique_ptr<GroupFactory> made, const GridOptions& options, int rank) : factory(std::move(made)) {
    // One global order, the same on all ranks.
    const GridShape& shape = options.shape;
    world = factory->make("world", all_ranks(shape), RunsOn::Caller);
    for (const Axis axis : {Axis::Tensor, Axis::Context, Axis::Data, Axis::Pipeline}) {
      const RunsOn runs_on = axis == Axis::Data ? RunsOn::CommThread : RunsOn::Caller;
      axes[static_cast<size_t>(axis)] = factory->make(name_of(axis), group_of(shape, rank, axis), runs_on);
    }
    const int size = options.shard_group > 0 ? options.shard_group : shape.data;
    ensure(shape.data % size == 0, "process grid: the shard group must divide dp");
    const bool both = size > 1 && size < shape.data;
    if (both) {
      shard = factory->make("dp_shard", shard_group_of(shape, rank, size), RunsOn::CommThread);
      replica = factory->make("dp_replica", replica_group_of(shape, rank, size), RunsOn::CommThread);
    } else {
      (size > 1 ? replica : shard) = factory->make(size > 1 ? "dp_replica" : "dp_shard", {rank}, RunsOn::Caller);
    }
    model_parallel = factory->make("model_parallel", model_parallel_group_of(shape, rank), RunsOn::Caller);
    embedding = factory->make("embedding", embedding_group_of(shape, rank), RunsOn::Caller);
    kv_replicas =
        factory->make("kv_replicas", kv_replica_group_of(shape, rank, options.kv_replication), RunsOn::Caller);
    control = factory->make(kControlGroup, all_ranks(shape), RunsOn::Caller);
  }
  std::unique_ptr<GroupFactory> factory;
  std::unique_ptr<Communicator> world;
  std::array<std::unique_ptr<Communicator>, 4> axes;
  std::unique_ptr<Communicator> shard, replica;  // null: dp
  std::unique_ptr<Communicator> model_parallel;
  std::unique_ptr<Communicator> embedding;
  std::unique_ptr<Communicator> kv_replicas;
  std::unique_ptr<Communicator> control;
};

ProcessGrid::ProcessGrid(MpiSession& session, const GridOptions& options)
    : shape_(options.shape), world_rank_(session.rank()), flight_(options.flight) {
  check_world(shape_, session.size());
  coord_ = coord_of(shape_, world_rank_);
  const UnguardedCall call(flight_, "making of MPI communicators");
  impl_ = std::make_unique<Impl>(make_mpi_groups(session, options, ledger_), options, world_rank_);
  nodes_ = impl_->factory->nodes();
}

ProcessGrid::ProcessGrid(const PhantomRank& phantom, const GridOptions& options)
    : shape_(options.shape), world_rank_(phantom.world_rank) {
  coord_ = coord_of(shape_, world_rank_);
  impl_ = std::make_unique<Impl>(make_phantom_groups(phantom, options, ledger_), options, world_rank_);
  nodes_ = impl_->factory->nodes();
}

ProcessGrid::~ProcessGrid() {
  // The communication thread may wait for a peer that will never come; the job is about to be aborted.
  if (std::uncaught_exceptions() > 0) impl_->factory->cancel();
}

Communicator& ProcessGrid::axis(Axis axis) { return *impl_->axes[static_cast<size_t>(axis)]; }
Communicator& ProcessGrid::shard() { return impl_->shard ? *impl_->shard : data(); }
Communicator& ProcessGrid::replica() { return impl_->replica ? *impl_->replica : data(); }
Communicator& ProcessGrid::model_parallel() { return *impl_->model_parallel; }
Communicator& ProcessGrid::embedding() { return *impl_->embedding; }
Communicator& ProcessGrid::kv_replicas() { return *impl_->kv_replicas; }
Communicator& ProcessGrid::control() { return *impl_->control; }
Communicator& ProcessGrid::world() { return *impl_->world; }
MemoryProvider& ProcessGrid::memory() { return impl_->factory->memory(); }

}  // namespace triax::comm
