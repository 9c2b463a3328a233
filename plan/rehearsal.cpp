#include "plan/rehearsal.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "io/options/validate.h"

namespace triax::plan {
namespace {

using Entries = train::StepCommunication::Entries;

/// Layer passes that take about five seconds.
constexpr double kQuickWork = 2e6;

int rank_at(const io::RunOptions& options, int position) {
  comm::GridCoord coord;
  coord.pipeline = position;
  return comm::rank_of(options.parallel.grid, coord);
}

int chosen_rank(const RehearsalRequest& request) {
  const comm::GridShape& grid = request.options.parallel.grid;
  if (request.rank < 0) return rank_at(request.options, grid.pipeline - 1);
  if (request.rank >= grid.world()) {
    throw ConfigError(fmt::format("--rehearse-rank {}: the job has {} ranks; use 0 to {}", request.rank, grid.world(),
                                  grid.world() - 1));
  }
  return request.rank;
}

/// Ranges of the flat arrays, whose padding follows no power of the widths: over dp, of tied copies, sums over tp.
bool carries_arrays(const comm::Ledger::Key& key) {
  const auto& [group, op] = key;
  return group.starts_with("dp") || group == "embedding" || group == "kv_replicas" ||
         (group == "tp" && op == comm::Operation::AllReduce);
}

void check_executed(RehearsalReport& report) {
  if (report.executed.program != report.announced.program) {
    report.faults.push_back(fmt::format("the executed rank's program is {:016x}, the full-width simulation's {:016x}",
                                        report.executed.program, report.announced.program));
    return;
  }
  for (std::string& line : compare_traffic(report.announced.traffic, report.scaled, report.arrays)) {
    report.faults.push_back(std::move(line));
  }
}

/// The machine with nodes of another size: links inside a node join as many ranks as there are.
bench::Hardware with_nodes_of(bench::Hardware hardware, int ranks) {
  for (bench::Link& link : hardware.links) {
    if (link.ranks == hardware.devices_per_node) link.ranks = ranks;
  }
  hardware.devices_per_node = ranks;
  return hardware;
}

}  // namespace

int64_t most_bytes(const RehearsalReport& report) {
  int64_t most = 0;
  for (const ExactStage& stage : report.memory.stages) {
    most = std::max(most, stage.forecast.ledger.peak_total);
  }
  return most + (report.prediction ? report.prediction->stages.front().runtime_bytes : 0);
}

bool fits(const RehearsalReport& report) {
  return !report.prediction || static_cast<double>(most_bytes(report)) <= report.prediction->memory_limit_bytes;
}

RehearsalReport rehearse(const RehearsalRequest& request) {
  const io::RunOptions& options = request.options;
  RehearsalReport report;
  report.request = request;
  report.rank = chosen_rank(request);
  const comm::GridShape& grid = options.parallel.grid;
  for (int r = 0; r < grid.world(); ++r) report.nodes.push_back(r / request.ranks_per_node);
  const auto step_of = [&](const io::RunOptions& run, int rank, train::Rehearsal how) {
    return train::rehearse_step(run, {rank, request.ranks_per_node}, how);
  };
  const double work = exact_work(options, options.batch.num_micro_batches);
  const bool all = work <= kQuickWork;
  for (int position = 0; position < grid.pipeline; ++position) {
    if (!all && position != 0 && position != grid.pipeline - 1) continue;
    const int rank = rank_at(options, position);
    report.stages.push_back({position, rank, step_of(options, rank, train::Rehearsal::Simulated)});
  }
  report.memory = exact_memory(options, equivalent_micro_batches(options), all ? ExactScope::All : ExactScope::Ends);
  const int64_t vocabulary = options.model.padded_vocab_size(grid.tensor);
  const auto flops = [&](model::AttentionCount attention) {
    const parallel::Recompute& recompute = options.parallel.recompute;
    return model::step_flops(options.model, options.batch.global_batch_size, vocabulary, attention,
                             recompute.granularity, model::recomputed_layers(recompute, io::layer_map_of(options)));
  };
  report.flops = flops(model::AttentionCount::CausalHalf);
  report.dense_flops = flops(model::AttentionCount::Dense);

  if (request.hardware) {
    report.prediction = predict(options, with_nodes_of(*request.hardware, request.ranks_per_node));
  }

  const Simulate simulate = [&](const io::RunOptions& run) {
    return step_of(run, report.rank, train::Rehearsal::Simulated);
  };
  report.announced = simulate(options);
  report.shrinking = find_shrinking(options, simulate);
  const bool padded = report.shrinking.padding + report.announced.alignment > 0;
  const bool compressed =
      options.parallel.compression.method != comm::CompressionMethod::None || options.parallel.zero_quantized_weights;
  report.arrays = compressed ? ArrayPayload::Unknown : padded ? ArrayPayload::CallsAlone : ArrayPayload::Exact;
  report.small = shrink_to_program(options, report.shrinking.divisors, 1, 1, report.announced.program, simulate);
  report.executed = step_of(report.small, report.rank, train::Rehearsal::Executed);
  report.scaled = scale_traffic(options, report.shrinking.divisors, report.executed, simulate);
  check_executed(report);
  return report;
}

std::vector<std::string> compare_traffic(const Entries& announced, const Scaled& scaled, ArrayPayload arrays) {
  if (!scaled.fault.empty()) return {"the traffic cannot be scaled: " + scaled.fault};
  std::vector<std::string> faults;
  for (const auto& [key, entry] : announced) {
    const std::string name = fmt::format("{} {}", key.first, comm::name_of(key.second));
    if (arrays == ArrayPayload::Unknown && carries_arrays(key)) continue;
    const auto found = scaled.entries.find(key);
    if (found == scaled.entries.end()) {
      faults.push_back(name + ": announced, not executed (or not as often at all widths)");
      continue;
    }
    if (found->second.calls != entry.calls) {
      faults.push_back(fmt::format("{}: {} calls announced, {} executed", name, entry.calls, found->second.calls));
    }
    const bool padded = arrays == ArrayPayload::CallsAlone && carries_arrays(key);
    if (!padded && found->second.payload_bytes != entry.payload_bytes) {
      faults.push_back(fmt::format("{}: {} bytes announced, {} by the executed rank, scaled", name, entry.payload_bytes,
                                   found->second.payload_bytes));
    }
  }
  for (const auto& [key, entry] : scaled.entries) {
    if (announced.contains(key) || (arrays == ArrayPayload::Unknown && carries_arrays(key))) continue;
    faults.push_back(fmt::format("{} {}: executed, not announced", key.first, comm::name_of(key.second)));
  }
  return faults;
}

}  // namespace triax::plan
