#include "train/data_traffic.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/compression.h"

namespace triax::train {
namespace {

using parallel::OpKind;
using parallel::StateSharding;
using parallel::UnitOpKind;

double part_sent(int ranks) { return static_cast<double>(ranks - 1) / ranks; }

/// Of one rank, for one block over the shard group.
double gather_sent(const parallel::ShardPlan& plan, int block, const TrafficWidths& widths) {
  const int64_t piece = plan.blocks[static_cast<size_t>(block)].range.size() / plan.options.group;
  kernels::CodeSegment coded;
  coded.count = coded.row_length = piece;
  coded.block_length = widths.code_block;
  const int64_t bytes =
      widths.code_block > 0 ? kernels::packed_bytes(kernels::Codec::Int8, coded) : piece * widths.weight;
  return static_cast<double>(bytes * (plan.options.group - 1));
}

}  // namespace

DataTraffic data_traffic(const parallel::Program& program, const parallel::ShardPlan& plan, int position,
                         const TrafficWidths& widths) {
  const parallel::ShardOptions& o = plan.options;
  const bool all_of_data = o.stage > 0 && o.states == StateSharding::AllOfData;
  const auto elements = [&](int block) {
    return static_cast<double>(plan.blocks[static_cast<size_t>(block)].range.size());
  };
  const double shard = part_sent(o.group);
  // Of a block, what is done over the replicas of a shard.
  const double replica = part_sent(o.replicas) / o.group;
  const auto gradient = static_cast<double>(widths.gradient);
  const auto weight = static_cast<double>(widths.weight);
  DataTraffic sum;
  for (const parallel::Op& op : program.positions[static_cast<size_t>(position)]) {
    if (op.kind == OpKind::ReduceGradients) {
      const double once = o.stage == 0 ? 2 * part_sent(o.group * o.replicas) : (o.stage == 1 ? shard : 0) + 2 * replica;
      sum.gradients += once * elements(op.bucket) * gradient;
    }
    if (op.kind == OpKind::GatherParameters) {
      const bool resident = !plan.blocks[static_cast<size_t>(op.bucket)].gathered;
      sum.weights += ((all_of_data ? replica : 0) + (resident ? shard : 0)) * elements(op.bucket) * weight;
    }
  }
  if (!o.shards_gradients()) return sum;
  for (const auto& list : parallel::unit_ops(program, position)) {
    for (const parallel::UnitOp& op : list) {
      if (op.kind == UnitOpKind::Gather) sum.weights += gather_sent(plan, op.block, widths);
      if (op.kind == UnitOpKind::Reduce) {
        sum.gradients += (shard + (all_of_data ? replica : 0)) * elements(op.block) * gradient;
      }
    }
  }
  return sum;
}

std::string describe_data_parallelism(const Trainer& trainer, const io::RunOptions& options, int position) {
  const parallel::ShardPlan& plan = trainer.gradient_sync().plan().shards;
  const parallel::ShardOptions& o = plan.options;
  const int dp = options.parallel.grid.data;
  if (dp == 1) {
    return options.parallel.zero_stage == 0
               ? std::string()
               : fmt::format("--zero-stage {}: nothing to share with one dp rank", options.parallel.zero_stage);
  }
  TrafficWidths widths;
  widths.gradient = static_cast<int64_t>(size_of(io::state_dtype(options.control.precision)));
  widths.weight = static_cast<int64_t>(size_of(io::compute_dtype(options.control.precision)));
  if (options.parallel.zero_quantized_weights) widths.code_block = options.parallel.compression.block();
  const DataTraffic sent = data_traffic(trainer.program(), plan, position, widths);
  std::string text = fmt::format("ZeRO {} over {} dp ranks", o.stage, dp);
  if (o.states == StateSharding::AllOfData && o.stage == 3) {
    text += fmt::format(", weights cut over {} (hpZ)", o.group);
  } else if (o.stage > 0 && o.replicas > 1) {
    text += fmt::format(" in shard groups of {}", o.group);
  }
  const bool coded = options.parallel.compression.method != comm::CompressionMethod::None;
  const bool served = options.parallel.grad_sync == io::GradSync::ParameterServer;
  if (!served) {
    text += fmt::format(": a rank sends {:.3f} MB of gradients{} and {:.3f} MB of weights per step",
                        sent.gradients * 1e-6, coded ? " (before --grad-compression)" : "", sent.weights * 1e-6);
  }
  if (o.stage == 3) {
    const bool gathers = std::any_of(plan.blocks.begin(), plan.blocks.end(), [](const auto& b) { return b.gathered; });
    if (!gathers) {
      text +=
          "; all weights stay whole: no tensor has --zero-param-persistence-threshold elements, or the shard group is "
          "one rank";
    } else if (widths.code_block > 0) {
      text += fmt::format("; weights travel as int8 with a scale per {} elements", widths.code_block);
    }
  }
  const int64_t m = options.batch.num_micro_batches;
  if (o.shards_gradients() && m > 1) {
    text +=
        fmt::format("; gradients{} travel in each of the {} micro-batches{}",
                    o.stage == 3 && options.parallel.zero_keep != parallel::KeepGathered::Step ? " and weights" : "", m,
                    o.stage == 3 ? " (--zero-reshard-after step: weights once)" : " (--zero-stage 1: once)");
  }
  return text;
}

}  // namespace triax::train
