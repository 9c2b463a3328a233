// ZeRO stages: bytes sent against the formula, model states against the formula, peak memory, step time.
#include <fmt/format.h>

#include <cmath>

#include "io/options/validate.h"
#include "model/counts.h"
#include "model/memory_formulas.h"
#include "plan/ablation/common.h"
#include "plan/memory_report.h"

namespace triax::plan {
namespace {

std::vector<Setting> zero_settings(int stage) { return {{"zero-stage", std::to_string(stage)}}; }

std::vector<PointRequest> zero_points() {
  std::vector<PointRequest> all;
  for (int stage = 0; stage <= 3; ++stage) {
    std::vector<std::string> more = {"--micro-batch-size", "2", "--data-parallel-size", "2", "--num-microbatches", "2"};
    // Buckets of about a layer: a bucket as large as the model would hide what stage 2 saves.
    if (stage < 3) more.insert(more.end(), {"--ddp-bucket-size", "800000"});
    if (stage == 3) more.insert(more.end(), {"--zero-param-persistence-threshold", "0"});
    all.push_back(real_point(zero_settings(stage), more));
  }
  return all;
}

/// Bytes that a rank sends per step, psi parameters, w and g bytes of weight and gradient, m micro-batches, n ranks:
/// (n-1)/n times 2 g psi; (g + w) psi; (m g + w) psi; stage 3: m g psi + 2 m w psi - m w (embedding + head), since the
/// embedding's backward needs no weights and the head's are still there (docs/zero.md).
double zero_formula_bytes(const io::RunOptions& o) {
  const double psi =
      static_cast<double>(model::rank_parameters(o.model, o.parallel.grid.tensor, io::layer_map_of(o), 0));
  const double n = o.parallel.grid.data, m = static_cast<double>(o.batch.num_micro_batches);
  const double w = static_cast<double>(size_of(io::compute_dtype(o.control.precision)));
  const double g = static_cast<double>(size_of(io::state_dtype(o.control.precision)));
  const double layers = static_cast<double>(model::layer_parameters(o.model) * o.model.num_layers);
  switch (o.parallel.zero_stage) {
    case 0:
      return (n - 1) / n * 2 * g * psi;
    case 1:
      return (n - 1) / n * (g + w) * psi;
    case 2:
      return (n - 1) / n * (m * g + w) * psi;
    default:
      return (n - 1) / n * (m * g * psi + m * w * (psi + layers));
  }
}

double sent_bytes(const AblationRow& one) {
  double sum = 0;
  for (const char* name : {"dp_sent_bytes", "dp_shard_sent_bytes", "dp_replica_sent_bytes"}) {
    const double value = one.row.mean(name);
    if (std::isfinite(value)) sum += value;
  }
  return sum;
}

struct States {
  double formula = 0, allocated = 0, peak = 0;
};
/// Model states by formula, and as the trainer's own code allocates them (its forecast's peak equals the run's).
States states_of(const io::RunOptions& o) {
  States states;
  const int64_t psi = model::rank_parameters(o.model, o.parallel.grid.tensor, io::layer_map_of(o), 0);
  const model::ZeroSharding zero{o.parallel.zero_stage, o.parallel.grid.data, io::shard_group_of(o), 0};
  states.formula = static_cast<double>(model::state_bytes(psi, state_widths(o, GradientStorage::Wide), zero).total());
  const train::MemoryForecast forecast = train::forecast_memory(o, 0);
  for (const MemoryCategory category :
       {MemoryCategory::Parameters, MemoryCategory::Gradients, MemoryCategory::Optimizer}) {
    states.allocated += static_cast<double>(forecast.ledger.live[static_cast<size_t>(category)]);
  }
  states.peak = static_cast<double>(forecast.ledger.peak_total);
  return states;
}

AblationResult conclude_zero(const AblationData& data) {
  AblationResult result;
  io::Figure bytes{.name = "zero-traffic",
                   .title = "ZeRO: bytes that a rank sends per step",
                   .x_label = "ZeRO stage",
                   .y_label = "MB sent per rank and step",
                   .categories = {"0", "1", "2", "3"}};
  io::Figure memory{.name = "zero-memory",
                    .title = "ZeRO: memory of a rank",
                    .x_label = "ZeRO stage",
                    .y_label = "MiB per rank",
                    .categories = {"0", "1", "2", "3"}};
  io::Series measured{.label = "measured", .look = io::SeriesLook::Bars},
      formula{.label = "formula", .look = io::SeriesLook::Bars};
  io::Series peak{.label = "peak, measured", .look = io::SeriesLook::Bars};
  io::Series allocated{.label = "model states, allocated", .look = io::SeriesLook::Bars},
      by_formula{.label = "model states, formula", .look = io::SeriesLook::Bars};
  std::string traffic, states_text, time;
  bool exact = true;
  for (int stage = 0; stage <= 3; ++stage) {
    const AblationRow* one = data.find(zero_settings(stage));
    if (one == nullptr || !one->options || one->row.done == 0) continue;
    const double sent = sent_bytes(*one), wanted = zero_formula_bytes(*one->options);
    measured.x.push_back(stage);
    measured.y.push_back(sent * 1e-6);
    formula.x.push_back(stage);
    formula.y.push_back(wanted * 1e-6);
    traffic +=
        fmt::format("{}stage {} {} ({})", traffic.empty() ? "" : ", ", stage, mb_text(sent), against(sent, wanted));
    const States states = states_of(*one->options);
    add_point(peak, stage, one, "peak_memory_bytes", 1.0 / 1048576);
    allocated.x.push_back(stage);
    allocated.y.push_back(states.allocated / 1048576);
    by_formula.x.push_back(stage);
    by_formula.y.push_back(states.formula / 1048576);
    states_text += fmt::format("{}stage {} {:.2f} ({})", states_text.empty() ? "" : ", ", stage,
                               states.allocated / 1048576, against(states.allocated, states.formula));
    exact = exact && states.peak == one->row.mean("peak_memory_bytes");
    time += fmt::format("{}stage {} {}", time.empty() ? "" : ", ", stage, ms_text(one->row.mean("step_ms")));
  }
  bytes.series = {measured, formula};
  memory.series = {peak, allocated, by_formula};
  result.lines = {
      fmt::format("Sent, measured (against the formula): {}.", traffic),
      fmt::format(
          "Model states in MiB, allocated (against the formula): {}; the forecast's peak {} each run's to the byte.",
          states_text, exact ? "equals" : "does not equal"),
      fmt::format("Step: {}.", time)};
  bytes.notes = {result.lines[0], result.lines[2]};
  memory.notes = {result.lines[1]};
  result.figures = {bytes, memory};
  return result;
}

}  // namespace

Ablation zero_ablation() {
  return {
      "zero", "ZeRO stages 0 to 3: traffic and memory, measured against the formulas",
      "(n-1)/n times 2 g psi, (g+w) psi, (m g + w) psi, m g psi + 2 m w psi less; states 16 psi ... 16 psi / n (arXiv "
      "1910.02054; docs/zero.md)",
      zero_points, conclude_zero};
}

}  // namespace triax::plan
