// ZeRO: what the data-parallel ranks share among themselves.
#include "io/options/entries.h"

namespace triax::io {
namespace {

constexpr OptionGroup kZeroGroup = OptionGroup::Parallel;

OptionEntry zero_stage() {
  OptionEntry entry = integer_option(
      "zero-stage", kZeroGroup, {0, 3}, [](auto& o) -> auto& { return o.parallel.zero_stage; },
      "what dp ranks share: 0 nothing, 1 optimizer states, 2 gradients too, 3 weights too");
  return other_names(entry, "zero_optimization.stage", "");
}

}  // namespace

std::vector<OptionEntry> zero_entries() {
  return {
      zero_stage(),
      derived_option("use-distributed-optimizer", ValueKind::Switch, kZeroGroup, "", "the same as --zero-stage 1"),
      derived_option("use-torch-fsdp2", ValueKind::Switch, kZeroGroup, "", "the same as --zero-stage 3"),
      derived_option("use-megatron-fsdp", ValueKind::Switch, kZeroGroup, "",
                     "the stage that --data-parallel-sharding-strategy names; alone the same as --zero-stage 3"),
      derived_option("data-parallel-sharding-strategy", ValueKind::Value, kZeroGroup,
                     "no_shard|optim|optim_grads|optim_grads_params", "the same as --zero-stage 0, 1, 2, 3"),
      other_names(integer_option(
                      "zero-shard-group", kZeroGroup, {1, kMostRanks},
                      [](auto& o) -> auto& { return o.parallel.zero_shard_group; },
                      "shard over groups of N consecutive dp ranks and replicate across them; default all dp ranks"),
                  "mics_shard_size", "parallelism.data_parallel_shard_degree"),
      other_names(integer_option(
                      "zero-hpz-partition-size", kZeroGroup, {1, kMostRanks},
                      [](auto& o) -> auto& { return o.parallel.zero_hpz; },
                      "stage 3: weights sharded over groups of N dp ranks, states over all (1: off)"),
                  "zero_optimization.zero_hpz_partition_size", ""),
      other_names(integer_option(
                      "zero-param-persistence-threshold", kZeroGroup, {0, kMostCount},
                      [](auto& o) -> auto& { return o.parallel.zero_persistence_threshold; },
                      "stage 3: tensors of fewer elements stay whole on every rank"),
                  "zero_optimization.stage3_param_persistence_threshold", ""),
      integer_option(
          "zero-prefetch", kZeroGroup, {0, kMostLayers}, [](auto& o) -> auto& { return o.parallel.zero_prefetch; },
          "stage 3: gather weights this many units (layers) ahead"),
      other_names(choice_option<parallel::KeepGathered>(
                      "zero-reshard-after", kZeroGroup,
                      {{"forward", parallel::KeepGathered::Forward},
                       {"backward", parallel::KeepGathered::Backward},
                       {"step", parallel::KeepGathered::Step}},
                      [](auto& o) -> auto& { return o.parallel.zero_keep; },
                      "stage 3: gathered weights are freed after each use, after the micro-batch's backward, or after "
                      "the last use in the step: memory against traffic"),
                  "", "parallelism.fsdp_reshard_after_forward"),
      other_names(
          switch_option(
              "zero-quantized-weights", kZeroGroup, [](auto& o) -> auto& { return o.parallel.zero_quantized_weights; },
              "stage 3: weights are gathered as int8 with one scale per --grad-compression-block elements "
              "(ZeRO++ qwZ); shards and masters stay exact"),
          "zero_optimization.zero_quantized_weights", ""),
      other_names(
          switch_option(
              "overlap-param-gather", kZeroGroup, [](auto& o) -> auto& { return o.parallel.overlap_param_gather; },
              "gather weights while the forward and backward passes run (on unlike Megatron)"),
          "zero_optimization.overlap_comm", ""),
  };
}

}  // namespace triax::io
