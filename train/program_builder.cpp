#include "train/program_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "comm/phantom.h"
#include "io/options/validate.h"
#include "kernels/null_device.h"
#include "model/stage.h"
#include "train/parameter_gather.h"
#include "train/run_fault.h"
#include "train/save_fault.h"

namespace triax::train {
namespace {

template <class T>
Tensor view(std::vector<T>& values) {
  return Tensor(values.data(), DTypeOf<T>::value, {static_cast<int64_t>(values.size())});
}

/// --inject without the parts that are not about delays.
std::string delays_of(const std::string& inject) {
  std::istringstream parts(inject);
  std::string part;
  std::string delays;
  while (std::getline(parts, part, ',')) {
    if (part.starts_with("skip-sync:") || is_save_fault(part) || is_run_fault(part)) continue;
    delays += (delays.empty() ? "" : ",") + part;
  }
  return delays;
}

/// What one position needs, from the declarations of its parameters: no rank, no memory, no weights.
struct Declared {
  SyncPlan plan;
  parallel::PositionUnits units;
};

Declared declare(const io::RunOptions& options, int position) {
  kernels::ReserveProvider memory;
  Arena arena(memory);
  comm::GroupInfo group;
  group.name = "tp";
  group.world_ranks.resize(static_cast<size_t>(options.parallel.grid.tensor));
  comm::PhantomCommunicator tensor(group, memory);
  parallel::LayerContext context;
  context.arena = &arena;
  context.tensor = &tensor;
  context.sequence_parallel =
      options.parallel.sequence_parallel ? parallel::SequenceParallel::Yes : parallel::SequenceParallel::No;
  model::StageOptions stage{options.model, io::layer_map_of(options), options.parallel.recompute, position};
  // Rotary tables hold no parameters and would be computed for nothing.
  if (stage.model.position == model::PositionType::Rope) stage.model.position = model::PositionType::None;
  parallel::ParameterStore store;
  const auto chunks = model::make_chunks(stage, context, store);
  Declared declared;
  declared.plan = make_sync_plan(store, static_cast<int>(chunks.size()), io::shard_options_of(options));
  for (const parallel::ShardBlock& b : declared.plan.shards.blocks) {
    declared.units.blocks.push_back({b.gathered, b.phase, b.units});
  }
  for (const auto& chunk : chunks) declared.units.walks.push_back(chunk->walk());
  return declared;
}

}  // namespace

comm::GridOptions grid_options(const io::RunOptions& options) {
  comm::GridOptions grid;
  grid.shape = options.parallel.grid;
  grid.shard_group = io::shard_group_of(options);
  const int64_t groups = options.model.num_query_groups;
  grid.kv_replication = groups > 0 ? static_cast<int>(std::max<int64_t>(1, grid.shape.tensor / groups)) : 1;
  grid.timeout_s = options.control.distributed_timeout_min * 60;
  grid.shared_memory = options.control.shared_memory;
  grid.fake_nodes = options.control.fake_nodes;
  grid.delay_spec = delays_of(options.control.inject);
  grid.collectives = comm::parse_collective_algorithms(
      options.parallel.collective_algorithm,
      options.parallel.fixed_reduction_order ? comm::SumOrder::Ranks : comm::SumOrder::Algorithm);
  return grid;
}

parallel::ProgramOptions program_options(const io::RunOptions& options) {
  parallel::ProgramOptions p;
  p.schedule = io::schedule_options_of(options);
  p.layers = io::layer_map_of(options);
  p.tied_embedding = options.model.tie_embeddings;
  const parallel::ShardOptions shards = io::shard_options_of(options);
  // With gradients reduced in every micro-batch, what is left for the end is the sum over replicas of the shards.
  const bool replicas = shards.replicas > 1 && shards.states == parallel::StateSharding::ShardGroup;
  const bool reduces = options.parallel.grid.data > 1 && (!shards.shards_gradients() || replicas);
  for (int position = 0; position < options.parallel.grid.pipeline; ++position) {
    const Declared declared = declare(options, position);
    p.tensor_partial = p.tensor_partial || declared.plan.any_partial();
    const std::vector<parallel::ShardBlock>& blocks = declared.plan.shards.blocks;
    if (reduces) p.bucket_chunks.emplace_back();
    for (const parallel::ShardBlock& block : blocks) {
      if (reduces) p.bucket_chunks.back().push_back(block.chunk);
    }
    if (shards.stage > 0) p.gathered.emplace_back();
    for (const int block : refreshed_blocks(declared.plan.shards)) {
      p.gathered.back().push_back({block, blocks[static_cast<size_t>(block)].chunk});
    }
    if (options.parallel.grid.data > 1) p.units.push_back(declared.units);
  }
  const bool scattered =
      options.parallel.scatter_gather && options.parallel.grid.tensor > 1 && !options.parallel.sequence_parallel;
  p.messages = scattered ? parallel::Messages::Scattered : parallel::Messages::Whole;
  p.gather_time = options.parallel.overlap_param_gather ? parallel::GatherTime::AtStart : parallel::GatherTime::AtEnd;
  if (!p.units.empty()) p.unit_options = io::unit_options_of(options);
  return p;
}

parallel::ShardPlan shard_plan_of(const io::RunOptions& options, int position) {
  return declare(options, position).plan.shards;
}

void check_same_program(const parallel::Program& program, comm::ProcessGrid& grid) {
  std::vector<int64_t> mine{static_cast<int64_t>(parallel::hash_of(program))};
  std::vector<int64_t> all(static_cast<size_t>(grid.world().size()));
  grid.world().all_gather(view(mine), view(all)).wait();
  const auto other = std::find_if(all.begin(), all.end(), [&](int64_t hash) { return hash != all[0]; });
  if (other != all.end()) {
    throw RunTimeError(
        fmt::format("rank {} made program {:016x}, rank 0 made {:016x}: all ranks must be started with "
                    "the same options and the same binary",
                    other - all.begin(), static_cast<uint64_t>(*other), static_cast<uint64_t>(all[0])));
  }
}

}  // namespace triax::train
