#include "plan/cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "io/options/validate.h"
#include "plan/step_time.h"
#include "train/program_builder.h"

namespace triax::plan {
namespace {

/// A step has up to millions of ops and 2^63 ps are 107 days: an op of more than a day is a wrong description.
int64_t picoseconds(double seconds) {
  if (!(seconds < 86400)) {
    throw ConfigError(fmt::format(
        "--hw: by its description one op of the step takes {:.3g} days; an op must take less than one; look "
        "for a speed that is too small, or cut the model over more ranks",
        seconds / 86400));
  }
  return static_cast<int64_t>(std::llround(seconds * 1e12));
}

void add(OpParts& sum, const OpParts& part, double times) {
  sum.gemm_s += times * part.gemm_s;
  sum.attention_s += times * part.attention_s;
  sum.elementwise_s += times * part.elementwise_s;
  sum.launch_s += times * part.launch_s;
  sum.tensor_s += times * part.tensor_s;
  sum.gather_s += times * part.gather_s;
}

void add(StageParts& sum, const PassTimes& pass, double times) {
  add(sum.forward, pass.forward, times);
  add(sum.backward_input, pass.backward_input, times);
  add(sum.backward_weight, pass.backward_weight, times);
}

/// What the host adds where it is slower than the device, spread over the passes like the device's time.
void add_host(const Software& software, StageParts& stage, double host_s) {
  OpParts* const passes[] = {&stage.forward, &stage.backward_input, &stage.backward_weight, &stage.recompute};
  double device = 0;
  for (const OpParts* pass : passes) device += pass->total();
  if (device <= 0) return;
  const double factor = with_host(software, device, host_s) / device;
  for (OpParts* pass : passes) pass->launch_s += pass->total() * (factor - 1);
}

StageParts stage_parts(const Pricing& p, const StepShape& s, const LayerCosts& costs, const parallel::LayerMap& map,
                       int position, int chunk) {
  const auto layers = static_cast<double>(map.layers(position, chunk).size());
  const int stage = map.virtual_stage(position, chunk);
  StageParts parts;
  add(parts, costs.layer, layers);
  const bool full = s.recompute == parallel::RecomputeGranularity::Full;
  const double again = full ? std::min(layers, static_cast<double>(s.recomputed_layers)) : layers;
  add(parts.recompute, costs.layer.recompute, again);
  const LayerCosts::Unit shards = shard_times(p, s, costs, layers, stage, map.num_virtual_stages());
  parts.forward.gather_s += shards.forward_s;
  parts.backward_weight.gather_s += shards.backward_s;
  if (stage == 0) add(parts, costs.embedding, 1);
  if (stage == map.num_virtual_stages() - 1) add(parts, costs.head, 1);
  const double host = p.software.micro_batch_s.value / s.chunks +
                      layers * (costs.layer.host_forward_s + costs.layer.host_backward_s) +
                      (full ? again * costs.layer.host_forward_s : 0);
  add_host(p.software, parts, host);
  return parts;
}

double position_parameters(const StepShape& s, const parallel::LayerMap& map, int position) {
  const ShapeParameters each = parameters_of(s);
  double sum = 0;
  for (int chunk = 0; chunk < s.chunks; ++chunk) {
    sum += each.layer * static_cast<double>(map.layers(position, chunk).size());
    const int stage = map.virtual_stage(position, chunk);
    if (stage == 0) sum += each.embedding;
    if (stage == map.num_virtual_stages() - 1) sum += each.head;
  }
  return sum;
}

/// Norms and row-parallel biases under sequence parallelism: partial sums of each tp rank.
double tensor_partial_s(const Pricing& p, const StepShape& s, double layers) {
  if (!s.sequence_parallel) return 0;
  const double norms = (s.norm == model::NormType::LayerNorm ? 4 : 2) + (s.biases ? 2 : 0);
  const double bytes = layers * norms * static_cast<double>(s.hidden) * static_cast<double>(s.gradient_bytes);
  return p.collectives.time_s(comm::Operation::AllReduce, tensor_place(p, s), bytes);
}

parallel::PositionCost position_cost(const Pricing& p, const StepShape& s, const parallel::ProgramOptions& program,
                                     int position) {
  const parallel::LayerMap& map = program.layers;
  const double parameters = position_parameters(s, map, position);
  const auto index = static_cast<size_t>(position);
  double layers = 0;
  for (int chunk = 0; chunk < s.chunks; ++chunk) layers += static_cast<double>(map.layers(position, chunk).size());
  parallel::PositionCost cost;
  cost.tensor_partial_ps = picoseconds(tensor_partial_s(p, s, layers));
  cost.optimizer_ps = picoseconds(optimizer_time(p, s, parameters) + p.software.step_s.value);
  if (index < program.bucket_chunks.size() && !program.bucket_chunks[index].empty()) {
    const auto buckets = static_cast<double>(program.bucket_chunks[index].size());
    cost.reduce_ps = {picoseconds(reduce_time(p, s, parameters / buckets))};
  }
  if (index < program.gathered.size() && !program.gathered[index].empty()) {
    const auto blocks = static_cast<double>(program.gathered[index].size());
    cost.gather_ps = {picoseconds(gather_time(p, s, parameters / blocks))};
  }
  if (s.scatter_gather) {
    const double bytes = p.device.element_bytes() * static_cast<double>(s.tokens()) * static_cast<double>(s.hidden);
    cost.message_gather_ps = picoseconds(p.collectives.time_s(comm::Operation::AllGather, tensor_place(p, s), bytes));
  }
  return cost;
}

/// All pairs of positions: inside a node where their ranks are.
std::vector<parallel::LinkCost> links_of(const Pricing& p, const StepShape& s) {
  const int stride = s.order == comm::RankOrder::TpCpDpPp ? s.tensor * s.data : s.tensor;
  const int senders = std::min(p.devices_per_node, s.ranks());
  const auto link = [&](bool across) {
    const double none = p.collectives.message_s(across, 1, senders);
    const double some = p.collectives.message_s(across, 1e9, senders);
    return parallel::LinkCost{picoseconds(none + p.software.message_s.value), (1e9 - 1) / (some - none)};
  };
  const parallel::LinkCost inside = link(false);
  if (s.ranks() <= p.devices_per_node) return {inside};
  const parallel::LinkCost across = link(true);
  std::vector<parallel::LinkCost> links;
  for (int from = 0; from < s.pipeline; ++from) {
    for (int to = 0; to < s.pipeline; ++to) {
      const bool same = from * stride / p.devices_per_node == to * stride / p.devices_per_node;
      links.push_back(same ? inside : across);
    }
  }
  return links;
}

}  // namespace

Costs costs_of(const io::RunOptions& options, const bench::Hardware& hardware) {
  return costs_of(options, hardware, train::program_options(options));
}

Costs costs_of(const io::RunOptions& options, const bench::Hardware& hardware,
               const parallel::ProgramOptions& program) {
  const StepShape s = shape_of(options);
  const Pricing p(hardware, *find_software("triax"), s.dtype);
  const LayerCosts layer = layer_costs(p, s);
  Costs costs;
  costs.table.pipeline = s.pipeline;
  costs.table.chunks = s.chunks;
  for (int position = 0; position < s.pipeline; ++position) {
    for (int chunk = 0; chunk < s.chunks; ++chunk) {
      const StageParts parts = stage_parts(p, s, layer, program.layers, position, chunk);
      // A recomputation that the program does not show as an op of its own is part of the backward.
      const bool separate = program.recompute == parallel::RecomputeOps::Separate;
      const double again = parts.recompute.total();
      costs.table.stages.push_back({picoseconds(parts.forward.total()),
                                    picoseconds(parts.backward_input.total() + (separate ? 0 : again)),
                                    picoseconds(parts.backward_weight.total()), picoseconds(separate ? again : 0)});
      costs.stages.push_back(parts);
    }
    costs.table.positions.push_back(position_cost(p, s, program, position));
  }
  costs.table.links = links_of(p, s);
  const bool sliced = s.scatter_gather || s.sequence_parallel;
  costs.table.message_bytes = s.element_bytes * s.tokens() * s.hidden / (sliced ? s.tensor : 1);
  costs.table.tied_ps = picoseconds(tied_time(p, s));
  costs.table.norm_ps = picoseconds(
      p.collectives.time_s(comm::Operation::AllReduce, place_of(s.ranks(), 1, p.devices_per_node, s.ranks()), 8));
  return costs;
}

}  // namespace triax::plan
