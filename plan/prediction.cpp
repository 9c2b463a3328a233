#include "plan/prediction.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "io/options/validate.h"
#include "parallel/program_print.h"
#include "plan/step_time.h"
#include "train/program_builder.h"

namespace triax::plan {
namespace {

using parallel::OpKind;

/// Text of the `index`-th compute op of a position.
std::string compute_op_text(const parallel::Program& program, int position, int index) {
  int seen = -1;
  for (const parallel::Op& op : program.positions[static_cast<size_t>(position)]) {
    if (is_compute(op.kind) && ++seen == index) return parallel::text_of(program.layers, position, op);
  }
  return {};
}

void add_memory(const io::RunOptions& options, const bench::Hardware& hardware, const PredictionOptions& what,
                Prediction& result) {
  const std::vector<model::StageMemory> memory = memory_by_formula(options, memory_terms_of(options));
  for (size_t i = 0; i < memory.size(); ++i) {
    StagePrediction& stage = result.stages[i];
    stage.memory = memory[i];
    stage.runtime_bytes = std::llround(runtime_bytes_of(hardware));
    if (result.simulated) {
      stage.peak_op = compute_op_text(result.simulated->program, static_cast<int>(i), memory[i].peak_op);
    }
  }
  if (what.exact != ExactScope::None) {
    for (ExactStage& exact : exact_memory(options, equivalent_micro_batches(options), what.exact).stages) {
      result.stages[static_cast<size_t>(exact.position)].exact = std::move(exact.forecast);
    }
  }
  result.memory_limit_bytes = hardware.memory_bytes.value;
  for (size_t i = 1; i < result.stages.size(); ++i) {
    if (result.stages[i].bytes() > result.stages[static_cast<size_t>(result.fullest)].bytes()) {
      result.fullest = static_cast<int>(i);
    }
  }
}

void add_counts(const io::RunOptions& options, const bench::Hardware& hardware, const PredictionOptions& what,
                Prediction& result) {
  const parallel::LayerMap layers = io::layer_map_of(options);
  const int64_t vocab = options.model.padded_vocab_size(options.parallel.grid.tensor);
  const auto flops = [&](model::AttentionCount attention) {
    return model::step_flops(options.model, options.batch.global_batch_size, vocab, attention,
                             options.parallel.recompute.granularity,
                             model::recomputed_layers(options.parallel.recompute, layers));
  };
  result.flops_dense = flops(model::AttentionCount::Dense);
  result.flops_causal = flops(model::AttentionCount::CausalHalf);
  result.ranks = options.parallel.grid.world();
  result.tokens_per_step = static_cast<double>(options.batch.global_batch_size * options.model.seq_length);
  result.train_tokens = what.train_tokens;
  result.peak_dtype = io::compute_dtype(options.control.precision);
  const auto peak = hardware.peak_flops.find(result.peak_dtype);
  if (peak == hardware.peak_flops.end()) {
    std::vector<std::string_view> known;
    for (const auto& [dtype, rate] : hardware.peak_flops) known.push_back(name_of(dtype));
    throw ConfigError(fmt::format("--hw {}: has no peak for {}; it has {}", hardware.name, name_of(result.peak_dtype),
                                  known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", "))));
  }
  result.peak_flops = peak->second.value;
  if (!(result.peak_flops > 0)) {
    throw ConfigError(
        fmt::format("--hw {}: its peak for {} must be above 0", hardware.name, name_of(result.peak_dtype)));
  }
  if (!(hardware.memory_bytes.value > 0)) {
    throw ConfigError(fmt::format("--hw {}: memory_bytes, the memory of a device, must be above 0", hardware.name));
  }
}

void simulate_step(const parallel::Program& program, int replicas, const Costs& costs, const PredictionOptions& what,
                   Prediction& result) {
  SimulatedStep step{program, costs.table, {}, costs.stages};
  parallel::SimulationOptions simulation;
  simulation.replicas = replicas;
  simulation.time = what.time;
  simulation.recorded_replica = what.recorded_replica;
  step.simulation = parallel::simulate(step.program, step.table, simulation);
  result.step_ps = step.simulation.makespan_ps;
  result.bubble_of_total = step.simulation.bubble_of_total;
  const std::vector<TimeSplit> splits =
      split_step(step.program, step.simulation.times, step.table, costs.stages, result.step_ps);
  for (size_t i = 0; i < splits.size(); ++i) result.stages[i].time = splits[i];
  result.time = mean_of(splits);
  result.simulated = std::move(step);
}

/// The closed form of the slowest stage, in whole picoseconds.
void estimate_step(const io::RunOptions& options, const bench::Hardware& hardware, Prediction& result) {
  const StepShape shape = shape_of(options);
  const Pricing pricing(hardware, *find_software("triax"), shape.dtype);
  const LayerCosts costs = layer_costs(pricing, shape);
  const StepTime step = step_time(pricing, shape, costs);
  OpParts layer;
  for (const OpParts* pass : {&costs.layer.forward, &costs.layer.backward_input, &costs.layer.backward_weight}) {
    layer.gemm_s += pass->gemm_s;
    layer.attention_s += pass->attention_s;
    layer.elementwise_s += pass->elementwise_s;
  }
  const double computing = layer.gemm_s + layer.attention_s + layer.elementwise_s;
  std::array<double, kNumTimeParts> weights{};
  const auto set = [&](TimePart part, double seconds) { weights[static_cast<size_t>(part)] = seconds; };
  set(TimePart::Gemm, step.compute_s * layer.gemm_s / computing);
  set(TimePart::Attention, step.compute_s * layer.attention_s / computing);
  set(TimePart::Elementwise, step.compute_s * layer.elementwise_s / computing);
  set(TimePart::Launch, step.host_s);
  set(TimePart::Recompute, step.recompute_s);
  set(TimePart::TensorComm, step.tensor_s);
  set(TimePart::ZeroGather, step.gather_s);
  set(TimePart::DataReduce, step.data_s);
  set(TimePart::PipelineComm, step.message_s);
  set(TimePart::BubbleFill, step.bubble_s);
  set(TimePart::Optimizer, step.optimizer_s);
  result.step_ps = std::llround(step.step_s * 1e12);
  const std::vector<int64_t> shares = apportion(result.step_ps, weights);
  std::copy(shares.begin(), shares.end(), result.time.ps.begin());
  result.bubble_of_total = step.bubble_s / (step.step_s - step.data_s - step.optimizer_s);
}

Prediction predict_full(const io::RunOptions& options, const bench::Hardware& hardware, Costs costs,
                        const parallel::ProgramOptions& program, const PredictionOptions& what) {
  Prediction result;
  add_counts(options, hardware, what, result);
  result.stages.resize(static_cast<size_t>(options.parallel.grid.pipeline));
  simulate_step(parallel::make_training_program(program), options.parallel.grid.data, costs, what, result);
  result.traffic = traffic_of(options, hardware, result.simulated->program, costs.table.message_bytes);
  add_memory(options, hardware, what, result);
  return result;
}

}  // namespace

double runtime_bytes_of(const bench::Hardware& hardware) {
  const auto found = hardware.constants.find("runtime_bytes");
  return found == hardware.constants.end() ? 0 : found->second.value;
}

int64_t StagePrediction::bytes() const {
  const int64_t counted = exact ? exact->ledger.peak_total : memory.total();
  return counted + runtime_bytes;
}

bool Prediction::fits() const {
  return static_cast<double>(stages[static_cast<size_t>(fullest)].bytes()) <= memory_limit_bytes;
}

Prediction predict(const io::RunOptions& options, const bench::Hardware& hardware, const PredictionOptions& what) {
  if (what.detail == Detail::Full) {
    const parallel::ProgramOptions program = train::program_options(options);
    return predict_full(options, hardware, costs_of(options, hardware, program), program, what);
  }
  Prediction result;
  add_counts(options, hardware, what, result);
  result.stages.resize(static_cast<size_t>(options.parallel.grid.pipeline));
  estimate_step(options, hardware, result);
  add_memory(options, hardware, what, result);
  return result;
}

Prediction predict(const io::RunOptions& options, const bench::Hardware& hardware, Costs costs,
                   const PredictionOptions& what) {
  return predict_full(options, hardware, std::move(costs), train::program_options(options), what);
}

}  // namespace triax::plan
