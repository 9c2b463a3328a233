#include "comm/process_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "base/clock.h"
#include "base/watched_call.h"
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
  using Carries = GroupFactory::Carries;
  Impl(std::unique_ptr<GroupFactory> made, const GridOptions& options, int rank, DeviceGroups* on_device)
      : factory(std::move(made)), device(on_device) {
    // One global order, the same on all ranks.
    const GridShape& shape = options.shape;
    world = factory->make("world", all_ranks(shape), RunsOn::Caller);
    for (const Axis axis : {Axis::Tensor, Axis::Context, Axis::Data, Axis::Pipeline}) {
      const RunsOn runs_on = axis == Axis::Data ? RunsOn::CommThread : RunsOn::Caller;
      const Carries carries = axis == Axis::Pipeline ? Carries::Messages : Carries::Collectives;
      axes[static_cast<size_t>(axis)] = make(name_of(axis), group_of(shape, rank, axis), runs_on, carries);
    }
    const int size = options.shard_group > 0 ? options.shard_group : shape.data;
    ensure(shape.data % size == 0, "process grid: the shard group must divide dp");
    const bool both = size > 1 && size < shape.data;
    if (both) {
      shard = make("dp_shard", shard_group_of(shape, rank, size), RunsOn::CommThread);
      replica = make("dp_replica", replica_group_of(shape, rank, size), RunsOn::CommThread);
    } else {
      (size > 1 ? replica : shard) = make(size > 1 ? "dp_replica" : "dp_shard", {rank}, RunsOn::Caller);
    }
    model_parallel = factory->make("model_parallel", model_parallel_group_of(shape, rank), RunsOn::Caller);
    embedding = make("embedding", embedding_group_of(shape, rank), RunsOn::Caller);
    kv_replicas = make("kv_replicas", kv_replica_group_of(shape, rank, options.kv_replication), RunsOn::Caller);
    control = factory->make(kControlGroup, all_ranks(shape), RunsOn::Caller);
  }
  std::unique_ptr<Communicator> make(const std::string& name, const std::vector<int>& ranks, RunsOn runs_on,
                                     Carries carries = Carries::Collectives) {
    if (device == nullptr) return factory->make(name, ranks, runs_on);
    std::unique_ptr<Communicator> group = factory->make_on_device(*device, name, ranks, carries);
    hosts.emplace_back(group.get(), factory->make(name + ".host", ranks, RunsOn::Caller));
    return group;
  }
  std::unique_ptr<GroupFactory> factory;
  DeviceGroups* device;
  // Of the groups on the device, in the order of making: freeing one is collective.
  std::vector<std::pair<const Communicator*, std::unique_ptr<Communicator>>> hosts;
  std::unique_ptr<Communicator> world;
  std::array<std::unique_ptr<Communicator>, 4> axes;
  std::unique_ptr<Communicator> shard, replica;  // null: dp
  std::unique_ptr<Communicator> model_parallel;
  std::unique_ptr<Communicator> embedding;
  std::unique_ptr<Communicator> kv_replicas;
  std::unique_ptr<Communicator> control;
};

ProcessGrid::ProcessGrid(MpiSession& session, const GridOptions& options, DeviceGroups* device)
    : shape_(options.shape), world_rank_(session.rank()), flight_(options.flight) {
  check_world(shape_, session.size());
  coord_ = coord_of(shape_, world_rank_);
  const WatchedCall call(flight_, "making of MPI communicators");
  std::unique_ptr<GroupFactory> factory = make_mpi_groups(session, options, ledger_);
  if (device != nullptr) {
    if (!options.delay_spec.empty()) {
      throw ConfigError("--inject " + options.delay_spec +
                        ": delays are made by the host, which does not see what the "
                        "GPUs send; use --device cpu");
    }
    factory->refuse_shared_gpus(device->device());
  }
  impl_ = std::make_unique<Impl>(std::move(factory), options, world_rank_, device);
  nodes_ = impl_->factory->nodes();
}

ProcessGrid::ProcessGrid(const PhantomRank& phantom, const GridOptions& options)
    : shape_(options.shape), world_rank_(phantom.world_rank) {
  coord_ = coord_of(shape_, world_rank_);
  impl_ = std::make_unique<Impl>(make_phantom_groups(phantom, options, ledger_), options, world_rank_, nullptr);
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
Communicator& ProcessGrid::host(Communicator& group) {
  const auto found = std::ranges::find(impl_->hosts, &group, [](const auto& pair) { return pair.first; });
  return found == impl_->hosts.end() ? group : *found->second;
}
ClockAlignment ProcessGrid::align_clocks() { return comm::align_clocks(world(), nodes_, now_s); }

void ProcessGrid::collect_device_seconds() {
  if (impl_->device != nullptr) impl_->device->collect();
}

void ProcessGrid::skip_meeting_on_device() {
  if (impl_->device != nullptr) impl_->device->skip_meeting();
}

void ProcessGrid::meet_on_device() {
  if (impl_->device == nullptr) return;
  const auto host = [this](const std::string& name) -> Communicator& {
    const auto found = std::ranges::find_if(impl_->hosts, [&](const auto& pair) { return pair.first->name() == name; });
    ensure(found != impl_->hosts.end(), "ProcessGrid: no host group of the name " + name);
    return *found->second;
  };
  impl_->device->meet(host, align_clocks().offset_s);
}

MemoryProvider& ProcessGrid::memory() { return impl_->factory->memory(); }

}  // namespace triax::comm
