#include "io/options/validate.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "io/options/fault_list.h"
#include "io/options/values.h"
#include "parallel/cost_text.h"
#include "parallel/csv_schedule.h"

namespace triax::io {
namespace {

// 0 when tp * cp * pp does not divide the world.
int64_t data_parallel(const RunOptions& options, int world_size) {
  const comm::GridShape& grid = options.parallel.grid;
  const int64_t replica = int64_t{grid.tensor} * grid.context * grid.pipeline;
  return replica > 0 && world_size % replica == 0 ? world_size / replica : 0;
}

}  // namespace

std::string nearest_divisors(int64_t n, int64_t value) {
  if (n <= 0) return "1";
  int64_t below = 1;
  int64_t above = n;
  for (int64_t d = 1; d <= n / d; ++d) {  // divisors come in pairs d, n / d
    if (n % d != 0) continue;
    for (const int64_t one : {d, n / d}) {
      if (one <= value) below = std::max(below, one);
      if (one >= value) above = std::min(above, one);
    }
  }
  if (value >= n) return std::to_string(n);
  return below == above ? std::to_string(below) : fmt::format("{} or {}", below, above);
}

std::string nearest_multiples(int64_t step, int64_t value) {
  if (step <= 0) return "1";
  const int64_t below = value / step * step;
  if (below == 0) return std::to_string(step);
  return below == value ? std::to_string(value) : fmt::format("{} or {}", below, below + step);
}

std::vector<std::string> faults(const RunOptions& options, int world_size, Purpose purpose) {
  FaultList list;
  const int64_t dp = data_parallel(options, world_size);
  check_model(options.model, list);
  if (!check_size(options, dp, list)) return list.take();  // the other rules compute with these products
  check_layout(options, world_size, dp, list);
  check_compression(options, dp, list);
  check_batch(options, dp, list);
  if (purpose == Purpose::Train) {
    check_optimizer(options, dp, list);
    check_run(options, list);
    check_device(options, list);
    check_fp8(options, list);
  }
  return list.take();
}

void resolve(RunOptions& options, int world_size, Purpose purpose) {
  const std::vector<std::string> found = faults(options, world_size, purpose);
  if (found.size() == 1) throw ConfigError(found[0]);
  if (!found.empty()) {
    throw ConfigError(fmt::format("{} faults in the run:\n  {}", found.size(), fmt::join(found, "\n  ")));
  }
  ParallelOptions& parallel = options.parallel;
  BatchOptions& batch = options.batch;
  const int64_t dp = data_parallel(options, world_size);
  parallel.grid.data = static_cast<int>(dp);
  if (parallel.ddp_bucket_size == 0) parallel.ddp_bucket_size = default_bucket_size(dp);
  if (parallel.microbatch_group_size == 0) parallel.microbatch_group_size = parallel.grid.pipeline;
  if (batch.global_batch_size == 0) batch.global_batch_size = batch.micro_batch_size * dp;
  batch.num_micro_batches = batch.global_batch_size / (batch.micro_batch_size * dp);
  if (batch.train_samples > 0) batch.train_iters = batch.train_samples / batch.global_batch_size;
  OptimizerOptions& optimizer = options.optimizer;
  if (batch.train_samples > 0) {
    if (optimizer.lr_decay_samples == 0) optimizer.lr_decay_samples = batch.train_samples;
  } else if (optimizer.lr_decay_iters == 0) {
    optimizer.lr_decay_iters = batch.train_iters;
  }
}

int64_t default_bucket_size(int64_t dp) { return std::max<int64_t>(40'000'000, 1'000'000 * dp); }

parallel::ScheduleOptions schedule_options_of(const RunOptions& options) {
  const ParallelOptions& p = options.parallel;
  if (p.schedule == parallel::ScheduleKind::Csv) {
    std::ifstream file(p.schedule_file);
    std::ostringstream text;
    if (!(text << file.rdbuf())) {
      throw ConfigError(fmt::format("--pipeline-schedule csv:{}: cannot be read", p.schedule_file));
    }
    return parallel::parse_csv_schedule(text.str(), p.schedule_file);
  }
  parallel::ScheduleOptions schedule;
  schedule.kind = p.schedule;
  schedule.pipeline = p.grid.pipeline;
  schedule.chunks = p.chunks;
  schedule.num_micro_batches = static_cast<int>(options.batch.num_micro_batches);
  schedule.group_size = p.microbatch_group_size;
  return schedule;
}

parallel::ShardOptions shard_options_of(const RunOptions& options) {
  const ParallelOptions& p = options.parallel;
  const int dp = p.grid.data;
  parallel::ShardOptions shards;
  shards.stage = dp == 1 ? 0 : p.zero_stage;
  shards.group = shard_group_of(options);
  shards.replicas = dp / shards.group;
  const bool hpz = shards.stage == 3 && p.zero_hpz > 1;
  shards.states = hpz ? parallel::StateSharding::AllOfData : parallel::StateSharding::ShardGroup;
  shards.bucket_size = p.ddp_bucket_size;
  shards.persistence_threshold = p.zero_persistence_threshold;
  const auto kind = p.schedule;
  using parallel::ScheduleKind;
  const bool whole = kind == ScheduleKind::GPipe || kind == ScheduleKind::OneFOneB || kind == ScheduleKind::Interleaved;
  shards.backward = whole ? parallel::BackwardPasses::Whole : parallel::BackwardPasses::Split;
  return shards;
}

int shard_group_of(const RunOptions& options) {
  const ParallelOptions& p = options.parallel;
  if (p.zero_stage == 3 && p.zero_hpz > 1) return p.zero_hpz;
  return p.zero_stage > 0 && p.zero_shard_group > 0 ? p.zero_shard_group : p.grid.data;
}

parallel::UnitOptions unit_options_of(const RunOptions& options) {
  const ParallelOptions& p = options.parallel;
  parallel::UnitOptions units;
  units.prefetch = p.overlap_param_gather ? p.zero_prefetch : 0;
  units.keep = p.zero_keep;
  units.reductions_in_flight = p.overlap_grad_reduce ? 1 : 0;
  units.shards_gradients = p.grid.data > 1 && p.zero_stage >= 2;
  return units;
}

parallel::TimeOptions time_options_of(const RunOptions& options) {
  parallel::TimeOptions time;
  time.jitter = {options.control.jitter, options.control.seed};
  const comm::GridShape& grid = options.parallel.grid;
  for (const std::string& word : options.control.stragglers) {
    if (!word.starts_with("rank=")) {
      time.stragglers.push_back(parallel::parse_straggler(word));
      continue;
    }
    const size_t colon = std::min(word.find(':'), word.size());
    const std::optional<int64_t> rank = parse_integer(word.substr(5, colon - std::min<size_t>(colon, 5)));
    const double factor = colon < word.size() ? parse_real(word.substr(colon + 1)).value_or(0) : 0;
    if (!rank || *rank < 0 || *rank >= grid.world() || !(factor > 0 && factor <= 1e6)) {
      throw ConfigError(
          fmt::format("--straggler {}: must be rank=N:FACTOR with a rank from 0 to {}, for example rank=0:1.5", word,
                      grid.world() - 1));
    }
    const comm::GridCoord coord = comm::coord_of(grid, static_cast<int>(*rank));
    time.stragglers.push_back({{coord.data, coord.pipeline}, factor});
  }
  return time;
}

parallel::LayerMap layer_map_of(const RunOptions& options) {
  const ParallelOptions& p = options.parallel;
  return parallel::make_layer_map(options.model.num_layers, parallel::placement_of(schedule_options_of(options)),
                                  p.decoder_first_num_layers, p.decoder_last_num_layers, p.layer_list);
}

}  // namespace triax::io
