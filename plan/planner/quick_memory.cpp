#include "plan/planner/quick_memory.h"

#include <algorithm>

#include "io/options/validate.h"
#include "plan/compression_state.h"

namespace triax::plan {
namespace {

using parallel::Op;

model::ActivationShape activations_of(const Layout& layout, const StepShape& shape, int64_t statistic_bytes) {
  model::ActivationShape a;
  a.micro_batch = layout.micro_batch;
  a.tensor_parallel = layout.tensor;
  a.sequence_parallel = layout.sequence_parallel ? parallel::SequenceParallel::Yes : parallel::SequenceParallel::No;
  a.element_bytes = shape.element_bytes;
  a.statistic_bytes = statistic_bytes;
  return a;
}

}  // namespace

QuickMemory::QuickMemory(const io::RunOptions& base)
    : base_(base),
      model_(base.model),
      widths_(state_widths(base, GradientStorage::Wide)),
      statistic_bytes_(static_cast<int64_t>(size_of(io::state_dtype(base.control.precision)))),
      bucket_(base.parallel.ddp_bucket_size),
      prefetch_(base.parallel.overlap_param_gather ? base.parallel.zero_prefetch : 0),
      recompute_(base.parallel.recompute) {}

const QuickMemory::InFlight& QuickMemory::in_flight(const Layout& layout, int64_t micro_batches) {
  // A longer step repeats the steady state.
  const int64_t group = layout.pipeline;
  const bool repeats = layout.schedule != parallel::ScheduleKind::GPipe;
  const int64_t m = repeats ? std::min(micro_batches, micro_batches % group + 4 * group) : micro_batches;
  const auto [at, fresh] = in_flight_.try_emplace({layout.schedule, layout.pipeline, layout.chunks, m});
  if (!fresh) return at->second;
  parallel::ScheduleOptions schedule;
  schedule.kind = layout.schedule;
  schedule.pipeline = layout.pipeline;
  schedule.chunks = layout.chunks;
  schedule.num_micro_batches = static_cast<int>(m);
  const parallel::LayerMap map = parallel::placement_of(schedule);
  const auto count = [&](int position) {
    Live live, peak;
    for (const Op& op : parallel::compute_order(schedule, position)) {
      const int sign = is_forward(op.kind) ? 1 : is_backward_weight(op.kind) ? -1 : 0;
      const int stage = map.virtual_stage(position, op.chunk);
      live.all += sign;
      if (stage == 0) live.first += sign;
      if (stage + 1 == map.num_virtual_stages()) live.last += sign;
      if (live.all > peak.all || (live.all == peak.all && live.first + live.last > peak.first + peak.last)) peak = live;
    }
    return peak;
  };
  at->second.first = count(0);
  at->second.last = count(layout.pipeline - 1);
  return at->second;
}

double QuickMemory::bytes_of(const Position& position, const Layout& layout, const StepShape& shape) const {
  const ShapeParameters of = parameters_of(shape);
  const double word = static_cast<double>(shape.vocab * shape.hidden) / layout.tensor;
  double parameters = of.layer * static_cast<double>(position.layers) + (position.first ? of.embedding : 0) +
                      (position.last ? of.head : 0);
  // Where both ends are on one of several positions, a tied head is no second table.
  if (position.first && position.last && shape.tied && layout.pipeline > 1) parameters -= word;
  model::ZeroSharding zero;
  zero.stage = shape.zero;
  zero.data_parallel = layout.data;
  zero.shard_group = layout.shard_group;
  double bytes = static_cast<double>(model::state_bytes(static_cast<int64_t>(parameters), widths_, zero).total());

  bytes += compression_state_bytes(base_, shape, {position.layers, position.first, position.last});
  const model::ActivationShape a = activations_of(layout, shape, statistic_bytes_);
  parallel::Recompute recompute = recompute_;
  recompute.granularity = layout.recompute;
  parallel::LayerMap chunk;
  const int64_t of_chunk = (position.layers + layout.chunks - 1) / layout.chunks;
  // A middle stage, so that it has no ends; these are counted by their own live chunks.
  chunk.pipeline = 3;
  chunk.stage_layers = {{0, 0}, {0, of_chunk}, {of_chunk, of_chunk}};
  const model::ChunkActivations inner = model::chunk_activations(model_, a, recompute, chunk, 1);
  const int64_t first_end = model::chunk_activations(model_, a, recompute, chunk, 0).ends;
  const int64_t last_end = model::chunk_activations(model_, a, recompute, chunk, 2).ends;
  bytes += static_cast<double>(inner.layers * position.live.all + inner.working + first_end * position.live.first +
                               last_end * position.live.last);

  const double message = static_cast<double>(shape.element_bytes * shape.tokens() * shape.hidden) /
                         (layout.sequence_parallel ? layout.tensor : 1);
  if (layout.pipeline > 1) bytes += 2 * message;
  const int64_t bucket = bucket_ > 0 ? bucket_ : io::default_bucket_size(layout.data);
  if (shape.zero == 2) {
    bytes += 2 * static_cast<double>(widths_.gradients) * std::min(static_cast<double>(bucket), parameters);
  }
  if (shape.zero == 3 && layout.shard_group > 1) {
    const double unit = std::max(of.layer, position.first || position.last ? word : 0.0);
    bytes += static_cast<double>(widths_.weights * (1 + prefetch_) + widths_.gradients) * unit;
  }
  return bytes;
}

double QuickMemory::bytes(const Layout& layout, const StepShape& shape) {
  const InFlight& live = in_flight(layout, shape.num_micro_batches);
  const bool v_shape = layout.schedule == parallel::ScheduleKind::ZeroBubbleV;
  const bool one = layout.pipeline == 1;
  const Position first{true, one || v_shape, layers_of_position(shape, 0), live.first};
  if (one) return bytes_of(first, layout, shape);
  const Position last{false, !v_shape, layers_of_position(shape, layout.pipeline - 1), live.last};
  return std::max(bytes_of(first, layout, shape), bytes_of(last, layout, shape));
}

}  // namespace triax::plan
