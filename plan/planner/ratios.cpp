#include <algorithm>

#include "io/options/validate.h"
#include "plan/planner/reasons.h"

namespace triax::plan {
namespace {

/// Bus bandwidth of a large all-reduce over a group.
double bus_bandwidth(const Pricing& pricing, const GroupPlace& place) {
  constexpr double kBytes = 256.0 * (1 << 20);
  if (place.ranks <= 1) return 0;
  const double n = place.ranks;
  return 2 * (n - 1) / n * kBytes / pricing.collectives.time_s(comm::Operation::AllReduce, place, kBytes);
}

}  // namespace

Ratios ratios_of(const PlanQuestion& question, const Layout& layout) {
  io::RunOptions options = options_of(question.base, layout);
  io::resolve(options, layout.tensor * layout.pipeline * layout.data, io::Purpose::Plan);
  const StepShape shape = shape_of(options);
  const Pricing pricing(question.hardware, *find_software("triax"), shape.dtype);
  const StepTime time = step_time(pricing, shape);

  Ratios r;
  r.flops = step_flops_of(shape, FlopCount::Model) / shape.ranks() / time.compute_s;
  r.tensor = std::max(2, layout.tensor);
  r.pipeline = std::max(2, layout.pipeline);
  r.data = std::max(2, layout.data);
  const int per_node = question.hardware.devices_per_node;
  const int world = shape.ranks();
  r.tensor_bytes_per_s = bus_bandwidth(pricing, place_of(r.tensor, 1, per_node, std::max(world, r.tensor)));
  const bool dp_first = layout.order == comm::RankOrder::TpCpDpPp;
  const int data_stride = dp_first ? layout.tensor : layout.tensor * layout.pipeline;
  r.data_bytes_per_s = bus_bandwidth(pricing, place_of(r.data, data_stride, per_node, world));
  // Where there is no pipeline: that of two stages in place of half of the replicas.
  const int replicas = layout.pipeline > 1 ? layout.data : std::max(1, layout.data / r.pipeline);
  const int pipe_stride = dp_first ? layout.tensor * replicas : layout.tensor;
  const bool across = pipe_stride * r.pipeline > per_node;
  constexpr double kMessage = 64.0 * (1 << 20);
  r.pipeline_bytes_per_s = kMessage / pricing.collectives.message_s(across, kMessage, std::min(per_node, world));

  const auto h = static_cast<double>(shape.hidden);
  const auto e = static_cast<double>(shape.element_bytes);
  StepShape whole = shape;
  whole.tensor = 1;
  const double layer = parameters_of(whole).layer;
  r.tp = 8 * (r.tensor - 1) * e * h * r.flops / (6 * layer * r.tensor_bytes_per_s);
  r.pp = 2 * e * h * r.pipeline * layout.tensor * r.flops /
         (6 * layer * static_cast<double>(shape.layers) * r.pipeline_bytes_per_s);
  const double tokens_of_replica = static_cast<double>(shape.tokens() * shape.num_micro_batches);
  r.dp = 2 * static_cast<double>(shape.gradient_bytes) * r.flops / (6 * r.data_bytes_per_s * tokens_of_replica);
  r.zero3_tokens = e * r.flops / (2 * r.data_bytes_per_s);
  r.tokens = static_cast<double>(shape.tokens());
  return r;
}

}  // namespace triax::plan
