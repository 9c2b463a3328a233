// One validation for train and plan: all that can be checked before any data is read, all faults in one message.
#pragma once

#include <string>
#include <vector>

#include "io/run_options.h"
#include "parallel/shard_plan.h"
#include "parallel/time_model.h"

namespace triax::io {

/// Plan needs neither data nor a learning rate.
enum class Purpose { Train, Plan };

/// Every fault of a run on `world_size` ranks: option, value, rule, nearest legal values. Empty: the run is legal.
std::vector<std::string> faults(const RunOptions& options, int world_size, Purpose purpose = Purpose::Train);

/// Of these those alone that GPUs' options have on a CPU, for commands that train nothing.
std::vector<std::string> gpu_option_faults(const RunControl& control);

/// Throws ConfigError with all faults; else fills what is derived: data parallel size, global batch, micro-batches,
/// train_iters from train_samples, decay length, bucket size, group size. Calling it twice changes nothing.
void resolve(RunOptions& options, int world_size, Purpose purpose = Purpose::Train);

/// world / (tp cp pp); throws ConfigError where that is no whole number.
int data_parallel_size(const comm::GridShape& grid, int world_size);

/// Parameters in a gradient bucket when none are given: max(40e6, 1e6 dp), Megatron-LM's default.
int64_t default_bucket_size(int64_t data_parallel_size);

/// The schedule of resolved options; reads the file of csv:FILE. Throws ConfigError where it cannot be read or parsed.
parallel::ScheduleOptions schedule_options_of(const RunOptions& options);

/// How the flat arrays of resolved options are sharded over dp, and what happens inside ops for it. With one dp rank
/// there is nothing to shard: stage 0.
parallel::ShardOptions shard_options_of(const RunOptions& options);
parallel::UnitOptions unit_options_of(const RunOptions& options);
/// dp ranks of a shard group: --zero-shard-group, or --zero-hpz-partition-size, or all.
int shard_group_of(const RunOptions& options);

/// --jitter with --seed, --straggler R:I:X or rank=N:X (the lane of world rank N). Throws ConfigError naming the word.
parallel::TimeOptions time_options_of(const RunOptions& options);

/// The layer map of resolved options.
parallel::LayerMap layer_map_of(const RunOptions& options);

}  // namespace triax::io
