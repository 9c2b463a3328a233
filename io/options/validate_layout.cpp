#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "io/options/fault_list.h"
#include "parallel/cost_text.h"

namespace triax::io {
namespace {

std::string world_fault(const comm::GridShape& grid, int world_size) {
  const int64_t replica = int64_t{grid.tensor} * grid.context * grid.pipeline;
  return fmt::format(
      "--tensor-model-parallel-size {} x --pipeline-model-parallel-size {} = {} ranks per replica: "
      "must divide the {} ranks of the run; use {} ranks, or a product of {}",
      grid.tensor, grid.pipeline, replica, world_size, nearest_multiples(replica, world_size),
      nearest_divisors(world_size, replica));
}

// What t breaks, each as "must divide --hidden-size 64".
std::vector<std::string> broken_rules(const RunOptions& options, int64_t tp) {
  const model::ModelConfig& m = options.model;
  std::vector<std::string> broken;
  const auto must_divide = [&](const char* option, int64_t value) {
    if (value > 0 && value % tp != 0) broken.push_back(fmt::format("must divide --{} {}", option, value));
  };
  must_divide("num-attention-heads", m.num_attention_heads);
  must_divide("hidden-size", m.hidden_size);
  must_divide("ffn-hidden-size", m.ffn_hidden_size);
  if (options.parallel.sequence_parallel) must_divide("seq-length", m.seq_length);
  const int64_t groups = m.num_query_groups;
  if (groups > 0 && groups % tp != 0 && tp % groups != 0) {
    broken.push_back(fmt::format("must divide or be a multiple of --num-query-groups {}", groups));
  }
  return broken;
}

// The values that it names keep every rule, not only the broken ones.
void check_tensor(const RunOptions& options, int world_size, FaultList& faults) {
  const comm::GridShape& grid = options.parallel.grid;
  const std::vector<std::string> broken = broken_rules(options, grid.tensor);
  if (broken.empty()) return;
  const auto legal = [&](int64_t tp) {
    return world_size % (tp * grid.context * grid.pipeline) == 0 && broken_rules(options, tp).empty();
  };
  std::vector<int64_t> values;
  for (int64_t tp = std::min<int64_t>(grid.tensor - 1, world_size); tp >= 1 && values.empty(); --tp) {
    if (legal(tp)) values.push_back(tp);
  }
  for (int64_t tp = grid.tensor + 1; tp <= world_size && values.size() < 2; ++tp) {
    if (legal(tp)) values.push_back(tp);
  }
  faults.add(
      "tensor-model-parallel-size", grid.tensor, fmt::format("{}", fmt::join(broken, ", ")),
      values.empty() ? "other dimensions or another number of ranks" : fmt::format("{}", fmt::join(values, " or ")));
}

void check_stages(const RunOptions& options, FaultList& faults) {
  const ParallelOptions& p = options.parallel;
  using parallel::ScheduleKind;
  if (p.chunks > 1 && p.grid.pipeline == 1) {
    faults.add("num-virtual-stages-per-pipeline-rank", p.chunks, "virtual stages need a pipeline",
               "--pipeline-model-parallel-size of at least 2, or 1 virtual stage");
  } else if (p.chunks > 1 && (p.schedule == ScheduleKind::GPipe || p.schedule == ScheduleKind::OneFOneB)) {
    faults.add("pipeline-schedule", parallel::name_of(p.schedule),
               fmt::format("has one chunk per rank, not {}", p.chunks), "interleaved");
  } else if (p.chunks == 1 && p.schedule == ScheduleKind::Interleaved) {
    faults.add("pipeline-schedule", "interleaved", "needs at least 2 virtual stages per rank",
               "--num-virtual-stages-per-pipeline-rank 2, or 1f1b");
  }
  if (options.model.num_layers <= 0) return;
  try {
    const parallel::LayerMap map = layer_map_of(options);
    const int first = map.position_of(0), last = map.position_of(map.num_virtual_stages() - 1);
    if (options.model.tie_embeddings && first != last && (first != 0 || last != map.pipeline - 1)) {
      faults.text(
          fmt::format("--pipeline-schedule csv:{}: tied embeddings need the first and the last stage on the first "
                      "and the last row, or on one row (now rows {} and {}): reorder the rows, or give "
                      "--untie-embeddings-and-output-weights",
                      p.schedule_file, first + 1, last + 1));
    }
  } catch (const ConfigError& error) {
    faults.text(error.what());
  }
}

void check_recompute(const RunOptions& options, FaultList& faults) {
  const parallel::Recompute& r = options.parallel.recompute;
  if (r.granularity != parallel::RecomputeGranularity::Full || options.model.num_layers <= 0) return;
  int64_t largest = 0;
  try {
    for (const parallel::LayerRange& range : layer_map_of(options).stage_layers) {
      largest = std::max(largest, range.size());
    }
  } catch (const ConfigError&) {
    return;  // reported by check_stages
  }
  if (r.num_layers < 1 || r.num_layers > largest) {
    faults.add("recompute-num-layers", r.num_layers,
               fmt::format("must be from 1 to the {} layers of the largest stage", largest),
               std::to_string(r.num_layers < 1 ? 1 : largest));
  }
}

// A schedule from a file fixes stages, chunks and micro-batches.
void check_listed(const RunOptions& options, const parallel::ScheduleOptions& listed, int64_t micro_batches,
                  FaultList& faults) {
  const ParallelOptions& p = options.parallel;
  const std::string what = fmt::format("{} lists", p.schedule_file);
  if (listed.pipeline != p.grid.pipeline) {
    faults.add("pipeline-model-parallel-size", p.grid.pipeline, fmt::format("{} {} positions", what, listed.pipeline),
               std::to_string(listed.pipeline));
  }
  if (listed.chunks != p.chunks) {
    faults.add("num-virtual-stages-per-pipeline-rank", p.chunks,
               fmt::format("{} {} stages per position", what, listed.chunks), std::to_string(listed.chunks));
  }
  if (listed.num_micro_batches != micro_batches) {
    faults.add("global-batch-size", options.batch.global_batch_size,
               fmt::format("makes {} micro-batches, {} {}", micro_batches, what, listed.num_micro_batches),
               std::to_string(options.batch.global_batch_size / micro_batches * listed.num_micro_batches));
  }
}

void check_schedule_length(const RunOptions& options, int64_t dp, FaultList& faults) {
  const BatchOptions& batch = options.batch;
  const ParallelOptions& p = options.parallel;
  if (dp == 0 || batch.micro_batch_size <= 0) return;
  const int64_t per_pass = batch.micro_batch_size * dp;
  const int64_t global = batch.global_batch_size == 0 ? per_pass : batch.global_batch_size;
  using parallel::ScheduleKind;
  const bool one_chunk = p.schedule == ScheduleKind::GPipe || p.schedule == ScheduleKind::OneFOneB;
  const bool contradicts = (p.chunks > 1 && (one_chunk || p.grid.pipeline == 1)) ||
                           (p.chunks == 1 && p.schedule == ScheduleKind::Interleaved);
  if (global % per_pass != 0 || contradicts) return;  // reported already
  RunOptions resolved = options;
  resolved.batch.num_micro_batches = global / per_pass;
  try {
    const parallel::ScheduleOptions schedule = schedule_options_of(resolved);
    if (p.schedule == ScheduleKind::Csv) check_listed(options, schedule, global / per_pass, faults);
    const std::string fault = parallel::check_schedule(schedule);
    if (!fault.empty()) faults.text(fault);
    if (options.control.clock == "virtual") {
      static_cast<void>(parallel::parse_costs(options.control.cost, schedule.pipeline, schedule.num_micro_batches));
      RunOptions of_replicas = options;
      of_replicas.parallel.grid.data = static_cast<int>(dp);
      static_cast<void>(time_options_of(of_replicas));
    }
  } catch (const ConfigError& error) {
    faults.text(error.what());
  }
}

void check_collectives(const ParallelOptions& p, FaultList& faults) {
  if (!p.fixed_reduction_order) return;
  try {
    comm::parse_collective_algorithms(p.collective_algorithm, comm::SumOrder::Ranks);
  } catch (const ConfigError& error) {
    faults.text(error.what());
  }
}

void check_grad_sync(const RunOptions& options, FaultList& faults) {
  const ParallelOptions& p = options.parallel;
  if (p.grad_sync == GradSync::AllReduce) {
    if (p.max_staleness > 0) {
      faults.add("max-staleness", p.max_staleness, "an all-reduce leaves no update out",
                 "--grad-sync parameter-server, or 0");
    }
    return;
  }
  const auto refuse = [&](const std::string& why, const std::string& legal) {
    faults.add("grad-sync", "parameter-server", why, legal);
  };
  if (p.zero_stage > 0)
    refuse("the server keeps all optimizer states, so that ZeRO has nothing to cut", "--zero-stage 0");
  if (options.control.precision == Precision::Fp16) {
    refuse("the loss scale of fp16 must be known before the next step", "--bf16 or fp32");
  }
  if (options.control.clock == "virtual") refuse("has no virtual time", "--clock real");
  if (options.control.device != "cpu") refuse("works on host memory", "--device cpu");
  if (options.control.check_replicas && p.max_staleness > 0) {
    faults.add("check", "replicas", "replicas differ under --max-staleness", "--max-staleness 0, or no --check");
  }
}

}  // namespace

int data_parallel_size(const comm::GridShape& grid, int world_size) {
  const int64_t replica = int64_t{grid.tensor} * grid.context * grid.pipeline;
  if (world_size % replica != 0) throw ConfigError(world_fault(grid, world_size));
  return static_cast<int>(world_size / replica);
}

void check_zero(const RunOptions& options, int64_t dp, FaultList& faults) {
  const ParallelOptions& p = options.parallel;
  if (p.zero_shard_group > 0 && p.zero_stage == 0) {
    faults.add("zero-shard-group", p.zero_shard_group, "has nothing to shard at --zero-stage 0",
               "--zero-stage 1, 2 or 3, or leave it out");
  } else if (p.zero_shard_group > 0 && dp > 0 && dp % p.zero_shard_group != 0) {
    faults.add("zero-shard-group", p.zero_shard_group, fmt::format("must divide the {} dp ranks", dp),
               nearest_divisors(dp, p.zero_shard_group));
  }
  if (p.zero_keep != parallel::KeepGathered::Forward && p.zero_stage != 3) {
    faults.add("zero-reshard-after", parallel::name_of(p.zero_keep),
               fmt::format("weights are whole all the time at --zero-stage {}", p.zero_stage),
               "--zero-stage 3, or leave it out");
  }
  if (p.zero_quantized_weights && p.zero_stage != 3) {
    faults.text(
        fmt::format("--zero-quantized-weights: --zero-stage {} gathers weights once in a step and keeps them; "
                    "use --zero-stage 3, or leave it out",
                    p.zero_stage));
  }
  if (p.zero_hpz <= 1) return;
  if (p.zero_stage != 3) {
    faults.add("zero-hpz-partition-size", p.zero_hpz,
               fmt::format("shards weights, which --zero-stage {} keeps whole", p.zero_stage),
               "--zero-stage 3, or a size of 1");
  } else if (p.zero_shard_group > 0) {
    faults.add("zero-hpz-partition-size", p.zero_hpz, "says itself over how many ranks weights are sharded",
               "it or --zero-shard-group, not both");
  } else if (dp > 0 && dp % p.zero_hpz != 0) {
    faults.add("zero-hpz-partition-size", p.zero_hpz, fmt::format("must divide the {} dp ranks", dp),
               nearest_divisors(dp, p.zero_hpz));
  }
}

void check_layout(const RunOptions& options, int world_size, int64_t dp, FaultList& faults) {
  if (dp == 0) faults.text(world_fault(options.parallel.grid, world_size));
  check_tensor(options, world_size, faults);
  check_stages(options, faults);
  check_recompute(options, faults);
  check_collectives(options.parallel, faults);
  check_zero(options, dp, faults);
  if (options.control.fake_nodes > world_size) {
    faults.add("fake-nodes", options.control.fake_nodes, "each needs a rank", fmt::format("at most {}", world_size));
  }
  check_grad_sync(options, faults);
  check_schedule_length(options, dp, faults);
}

}  // namespace triax::io
