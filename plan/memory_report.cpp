#include "plan/memory_report.h"

#include <algorithm>
#include <span>

#include "comm/process_grid.h"
#include "io/options/validate.h"
#include "parallel/schedule.h"
#include "plan/compression_state.h"
#include "plan/prediction.h"

namespace triax::plan {
namespace {

using parallel::Op;

/// Most chunks between F and W (or B) on each position.
std::vector<int> in_flight(const parallel::ScheduleOptions& schedule) {
  std::vector<int> peaks;
  for (int position = 0; position < schedule.pipeline; ++position) {
    int live = 0;
    int peak = 0;
    for (const Op& op : parallel::compute_order(schedule, position)) {
      if (is_forward(op.kind)) peak = std::max(peak, ++live);
      if (is_backward_weight(op.kind)) --live;
    }
    peaks.push_back(peak);
  }
  return peaks;
}

/// One step of `micro_batches`, with a learning rate that needs no length of the run: memory depends on neither.
io::RunOptions one_step(const io::RunOptions& options, int64_t micro_batches) {
  io::RunOptions step = options;
  step.batch.num_micro_batches = micro_batches;
  step.batch.global_batch_size = micro_batches * options.batch.micro_batch_size * options.parallel.grid.data;
  step.batch.train_samples = 0;
  step.batch.train_iters = 1;
  io::OptimizerOptions& o = step.optimizer;
  o.lr = o.min_lr = 1;
  o.lr_decay_style = io::LrDecayStyle::Constant;
  o.lr_scaling = io::LrScaling::None;
  o.lr_decay_iters = 1;
  o.lr_decay_samples = o.lr_warmup_iters = o.lr_warmup_samples = 0;
  o.lr_warmup_fraction = 0;
  return step;
}

}  // namespace

MemoryTerms memory_terms_of(const io::RunOptions& options) {
  const io::ParallelOptions& p = options.parallel;
  MemoryTerms terms;
  terms.zero.stage = p.zero_stage;
  terms.zero.data_parallel = p.grid.data;
  terms.zero.shard_group = p.zero_shard_group > 0 ? p.zero_shard_group : p.grid.data;
  if (p.zero_hpz > 1) terms.zero.parameter_group = p.zero_hpz;
  return terms;
}

model::StateWidths state_widths(const io::RunOptions& options, GradientStorage gradients) {
  const auto weight = static_cast<int64_t>(size_of(io::compute_dtype(options.control.precision)));
  const auto state = static_cast<int64_t>(size_of(io::state_dtype(options.control.precision)));
  const io::OptimizerOptions& o = options.optimizer;
  const int64_t moments = o.kind == io::OptimizerKind::Adam ? 2 : o.sgd_momentum > 0 ? 1 : 0;
  return {weight, gradients == GradientStorage::Bf16 ? 2 : state, (weight < state ? state : 0) + moments * state};
}

std::vector<model::StageMemory> memory_by_formula(const io::RunOptions& options, const MemoryTerms& terms) {
  const io::ParallelOptions& p = options.parallel;
  model::MemoryRequest request;
  request.layers = io::layer_map_of(options);
  request.recompute = p.recompute;
  request.activations.micro_batch = options.batch.micro_batch_size;
  request.activations.tensor_parallel = p.grid.tensor;
  request.activations.sequence_parallel =
      p.sequence_parallel ? parallel::SequenceParallel::Yes : parallel::SequenceParallel::No;
  request.activations.attention = terms.attention;
  request.widths = state_widths(options, terms.gradients);
  request.activations.element_bytes = request.widths.weights;
  request.activations.statistic_bytes = static_cast<int64_t>(size_of(io::state_dtype(options.control.precision)));
  request.zero = terms.zero;
  request.prefetch = io::unit_options_of(options).prefetch;
  request.bucket_parameters = p.ddp_bucket_size;
  const parallel::ScheduleOptions schedule = io::schedule_options_of(options);
  const StepShape shape = shape_of(options);
  const int end = request.layers.num_virtual_stages() - 1;
  std::vector<model::StageMemory> stages;
  for (int position = 0; position < p.grid.pipeline; ++position) {
    stages.push_back(
        model::stage_memory(options.model, request, parallel::compute_order(schedule, position), position));
    HeldParts held{0, position == request.layers.position_of(0), position == request.layers.position_of(end)};
    for (int chunk = 0; chunk < request.layers.chunks; ++chunk) {
      const int stage = request.layers.virtual_stage(position, chunk);
      held.layers += request.layers.stage_layers[static_cast<size_t>(stage)].size();
    }
    stages.back().states.optimizer += static_cast<int64_t>(compression_state_bytes(options, shape, held));
  }
  return stages;
}

int64_t equivalent_micro_batches(const io::RunOptions& options) {
  const parallel::ScheduleOptions schedule = io::schedule_options_of(options);
  const int64_t m = schedule.num_micro_batches;
  if (schedule.kind == parallel::ScheduleKind::Csv) return m;
  const std::vector<int> wanted = in_flight(schedule);
  const int64_t group = std::max(schedule.group_size, schedule.pipeline);
  // The same remainder of the last group, so that the order stays legal; two groups more than the warm-up needs.
  for (int64_t shorter = m % group + 4 * group; shorter < m; shorter += shorter / group * group) {
    parallel::ScheduleOptions candidate = schedule;
    candidate.num_micro_batches = static_cast<int>(shorter);
    if (parallel::check_schedule(candidate).empty() && in_flight(candidate) == wanted) return shorter;
  }
  return m;
}

double exact_work(const io::RunOptions& options, int64_t micro_batches) {
  const auto m = static_cast<double>(micro_batches);
  const double p = options.parallel.grid.pipeline;
  const double ops = p * m * options.parallel.chunks;
  return 3 * m * static_cast<double>(options.model.num_layers) + 2 * p * ops;
}

ExactMemory exact_memory(const io::RunOptions& options, int64_t micro_batches, ExactScope scope) {
  ExactMemory exact;
  exact.micro_batches = micro_batches;
  exact.work = exact_work(options, micro_batches);
  if (scope == ExactScope::None) return exact;
  const io::RunOptions step = one_step(options, micro_batches);
  const int last = options.parallel.grid.pipeline - 1;
  for (int position = 0; position <= last; ++position) {
    if (scope == ExactScope::Ends && position != 0 && position != last) continue;
    comm::GridCoord coord;
    coord.pipeline = position;
    const int rank = comm::rank_of(options.parallel.grid, coord);
    exact.stages.push_back({position, train::forecast_memory(step, rank)});
  }
  return exact;
}

DeviceRoom room_on(const bench::Hardware& hardware, const std::vector<model::StageMemory>& formula,
                   const std::vector<ExactStage>& exact) {
  std::vector<int64_t> bytes;
  for (const model::StageMemory& m : formula) bytes.push_back(m.total());
  for (const ExactStage& e : exact) bytes.at(static_cast<size_t>(e.position)) = e.forecast.ledger.peak_total;
  DeviceRoom room{hardware.name, static_cast<int64_t>(hardware.memory_bytes.value),
                  static_cast<int64_t>(runtime_bytes_of(hardware))};
  room.needed_bytes = *std::max_element(bytes.begin(), bytes.end()) + room.runtime_bytes;
  return room;
}

}  // namespace triax::plan
