#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/units.h"
#include "comm/group_nodes.h"
#include "io/options/validate.h"
#include "io/report/run_directory.h"
#include "plan/rehearsal.h"

namespace triax::plan {
namespace {

using Entries = train::StepCommunication::Entries;
using comm::Axis;

std::string row(const char* what, const std::string& text) { return fmt::format("{:<11} {}\n", what, text); }

const char* recompute_text(parallel::RecomputeGranularity granularity) {
  using parallel::RecomputeGranularity;
  if (granularity == RecomputeGranularity::None) return "no recomputation";
  return granularity == RecomputeGranularity::Full ? "layers recomputed" : "attention recomputed";
}

std::string layout_text(const RehearsalReport& report) {
  const io::RunOptions& o = report.request.options;
  const io::ParallelOptions& p = o.parallel;
  const comm::GridShape& grid = p.grid;
  std::string text = fmt::format("{} ranks on {} nodes of {}: tensor {}{} x pipeline {} x data {}, order {}",
                                 grid.world(), report.nodes.back() + 1, report.request.ranks_per_node, grid.tensor,
                                 p.sequence_parallel ? " (sequence parallel)" : "", grid.pipeline, grid.data,
                                 grid.order == comm::RankOrder::TpCpDpPp ? "tp-cp-dp-pp" : "tp-cp-pp-dp");
  if (p.chunks > 1) text += fmt::format(", {} virtual stages per rank", p.chunks);
  text += fmt::format(", ZeRO {}", p.zero_stage);
  if (p.zero_stage > 0) text += fmt::format(" over {}", io::shard_group_of(o));
  return text;
}

std::string batch_text(const RehearsalReport& report) {
  const io::RunOptions& o = report.request.options;
  const io::BatchOptions& b = o.batch;
  return fmt::format("{} sequences of {} = {} tokens per step; {} micro-batches of {} per replica, {}, {}",
                     b.global_batch_size, o.model.seq_length, b.global_batch_size * o.model.seq_length,
                     b.num_micro_batches, b.micro_batch_size, parallel::name_of(o.parallel.schedule),
                     recompute_text(o.parallel.recompute.granularity));
}

std::string flops_text(const RehearsalReport& report) {
  return fmt::format("{:.3e} per step, {:.3e} per rank (causal half); {:.3e} with full squares; {:.3e} computed",
                     report.flops.model, report.flops.model / report.request.options.parallel.grid.world(),
                     report.dense_flops.model, report.flops.hardware);
}

const ExactStage& fullest(const ExactMemory& memory) {
  return *std::max_element(memory.stages.begin(), memory.stages.end(), [](const ExactStage& a, const ExactStage& b) {
    return a.forecast.ledger.peak_total < b.forecast.ledger.peak_total;
  });
}

std::string memory_line(const RehearsalReport& report) {
  const ExactStage& stage = fullest(report.memory);
  return fmt::format("{:.2f} GiB per rank at most (stage {})",
                     static_cast<double>(stage.forecast.ledger.peak_total) / kGiB, stage.position);
}

std::string fit_text(const RehearsalReport& report) {
  if (!report.prediction) return memory_line(report);
  return fmt::format("{}; with {:.2f} GiB of libraries {} {:.0f} GiB of {}", memory_line(report),
                     static_cast<double>(report.prediction->stages.front().runtime_bytes) / kGiB,
                     fits(report) ? "fits into" : "DOES NOT FIT into", report.prediction->memory_limit_bytes / kGiB,
                     report.request.hardware->name);
}

std::string time_text(const RehearsalReport& report) {
  if (!report.prediction) return "not predicted: --hw names no machine";
  const Prediction& p = *report.prediction;
  return fmt::format("{:.3f} s predicted on {} ({}), {:.0f} tokens/s, MFU {:.3f}, bubble {:.3f}", p.step_s(),
                     report.request.hardware->name, report.request.hardware->description.substr(0, 21),
                     p.tokens_per_s(), p.utilization(p.flops_causal.model), p.bubble_of_total);
}

std::string loss_text(const RehearsalReport& report) {
  return fmt::format("{:.3f} expected", model::expected_first_loss(report.request.options.model));
}

std::string summary_text(const RehearsalReport& report) {
  const io::RunOptions& o = report.request.options;
  return fmt::format(
      "{} {} b{}: {} tokens/step, {:.3e} FLOPs/step, {}{}, {}, first loss {}", o.model.name, io::layout_name(o),
      o.batch.micro_batch_size, o.batch.global_batch_size * o.model.seq_length, report.flops.model, memory_line(report),
      fits(report) ? "" : " (does not fit)",
      report.prediction ? fmt::format("{:.3f} s/step on {}", report.prediction->step_s(), report.request.hardware->name)
                        : std::string("time not predicted"),
      loss_text(report));
}

std::string short_layers(const parallel::LayerMap& map, int position) {
  std::vector<std::string> parts;
  for (int chunk = 0; chunk < map.chunks; ++chunk) {
    const parallel::LayerRange& range = map.layers(position, chunk);
    if (range.size() > 0) parts.push_back(fmt::format("{}-{}", range.begin, range.end - 1));
  }
  if (parts.size() > 4) parts = {parts[0], parts[1], "..", parts.back()};
  return parts.empty() ? "-" : fmt::format("{}", fmt::join(parts, " "));
}

std::string groups_text(const RehearsalReport& report) {
  std::string text;
  for (const Axis axis : {Axis::Tensor, Axis::Data, Axis::Pipeline}) {
    const auto groups = comm::group_nodes(report.request.options.parallel.grid, axis, report.nodes);
    text += fmt::format("  {:<4} {:>5} of {:>4} ranks, {:<34} {}\n", comm::name_of(axis), groups.size(),
                        groups.front().ranks.size(), comm::ranks_text(groups.front().ranks),
                        comm::describe_crossing(groups));
  }
  return text;
}

std::string memory_table(const RehearsalReport& report) {
  std::string text =
      fmt::format("  {:>5} {:<22} {:>12} {:>9} {:>9} {:>9} {:>11} {:>9} {:>7} {:>8}\n", "stage", "layers", "parameters",
                  "weights", "gradients", "optimizer", "activations", "buffers", "other", "peak GiB");
  const parallel::LayerMap map = io::layer_map_of(report.request.options);
  for (const ExactStage& stage : report.memory.stages) {
    const MemoryLedger& ledger = stage.forecast.ledger;
    const auto peak = [&](MemoryCategory c) { return static_cast<double>(ledger.peak[static_cast<size_t>(c)]) / kGiB; };
    fmt::format_to(std::back_inserter(text),
                   "  {:>5} {:<22} {:>12} {:>9.2f} {:>9.2f} {:>9.2f} {:>11.2f} {:>9.2f} {:>7.2f} {:>8.2f}\n",
                   stage.position, short_layers(map, stage.position), stage.forecast.parameters,
                   peak(MemoryCategory::Parameters), peak(MemoryCategory::Gradients), peak(MemoryCategory::Optimizer),
                   peak(MemoryCategory::Activations), peak(MemoryCategory::Communication),
                   peak(MemoryCategory::Workspace) + peak(MemoryCategory::Staging),
                   static_cast<double>(ledger.peak_total) / kGiB);
  }
  return text;
}

/// Sent by one rank in a step: tp, pp, dp (with its shard and replica groups), the rest.
std::array<double, 4> sent_by_axis(const Entries& entries) {
  std::array<double, 4> sent{};
  for (const auto& [key, entry] : entries) {
    const std::string& group = key.first;
    const size_t axis = group == "tp" || group == "kv_replicas" ? 0
                        : group == "pp" || group == "embedding" ? 1
                        : group.starts_with("dp")               ? 2
                                                                : 3;
    sent[axis] += entry.sent_bytes;
  }
  return sent;
}

std::string traffic_table(const RehearsalReport& report) {
  std::string text = fmt::format("  {:>5} {:>6} {:>14} {:>14} {:>14} {:>14} {:>14}\n", "stage", "rank", "tp", "pp",
                                 "dp", "other", "total");
  for (const RehearsedStage& stage : report.stages) {
    const auto sent = sent_by_axis(stage.step.traffic);
    fmt::format_to(std::back_inserter(text), "  {:>5} {:>6} {:>14.0f} {:>14.0f} {:>14.0f} {:>14.0f} {:>14.0f}\n",
                   stage.position, stage.rank, sent[0], sent[1], sent[2], sent[3],
                   sent[0] + sent[1] + sent[2] + sent[3]);
  }
  return text;
}

std::string rank_table(const RehearsalReport& report) {
  std::string text = fmt::format("  {:<15} {:<15} {:>9} {:>16} {:>16}\n", "group", "operation", "calls",
                                 "payload bytes", "sent bytes");
  for (const auto& [key, entry] : report.announced.traffic) {
    if (entry.sent_bytes == 0) continue;
    fmt::format_to(std::back_inserter(text), "  {:<15} {:<15} {:>9} {:>16} {:>16.0f}\n", key.first,
                   comm::name_of(key.second), entry.calls, entry.payload_bytes, entry.sent_bytes);
  }
  return text;
}

std::string executed_text(const RehearsalReport& report) {
  const comm::GridCoord c = comm::coord_of(report.request.options.parallel.grid, report.rank);
  const model::ModelConfig& m = report.small.model;
  std::string text = fmt::format(
      "rank {} (tp {} pp {} dp {}) on the CPU with hidden {}, ffn {}, vocabulary {}, {} tokens per sequence: {:.2f} "
      "s\n",
      report.rank, c.tensor, c.pipeline, c.data, m.hidden_size, m.ffn_hidden_size, m.vocab_size, m.seq_length,
      report.executed.elapsed_s);
  text += fmt::format("            program {:016x}, full width {:016x}: {}\n", report.executed.program,
                      report.announced.program,
                      report.executed.program == report.announced.program ? "equal" : "DIFFERENT");
  int64_t calls = 0;
  for (const auto& [key, entry] : report.executed.traffic) calls += entry.calls;
  if (!report.faults.empty()) {
    for (const std::string& fault : report.faults) text += fmt::format("            FAULT: {}\n", fault);
    text.pop_back();
    return text;
  }
  return text +
         fmt::format("            its ledger, {} calls in {} rows, scaled to full width: equal to the table above{}",
                     calls, report.executed.traffic.size(),
                     report.arrays == ArrayPayload::Exact     ? ""
                     : report.arrays == ArrayPayload::Unknown ? " (but for gradients and weights, which are compressed)"
                                                              : " (of gradients and weights the calls alone: their "
                                                                "arrays are padded)");
}

}  // namespace

std::string rehearsal_text(const RehearsalReport& report) {
  const io::RunOptions& o = report.request.options;
  std::string text = row("rehearsal", "nothing is trained, nothing is written");
  text += row("model", fmt::format("{}: {} parameters, {}, gradients and optimizer state {}", o.model.name,
                                   model::parameter_count(o.model), name_of(io::compute_dtype(o.control.precision)),
                                   name_of(io::state_dtype(o.control.precision))));
  text += row("layout", layout_text(report));
  text += row("batch", batch_text(report));
  text += row("FLOPs", flops_text(report));
  text += row("memory", fit_text(report));
  text += row("step time", time_text(report));
  text += row("first loss", loss_text(report));
  text += fmt::format("\ngroups\n{}", groups_text(report));
  text += fmt::format("\nmemory per rank, GiB\n{}", memory_table(report));
  text += fmt::format("\ntraffic per rank and step, bytes sent\n{}", traffic_table(report));
  text += fmt::format("\nrank {}, per step\n{}", report.rank, rank_table(report));
  text += fmt::format("\n{}{}", row("executed", executed_text(report)), row("summary", summary_text(report)));
  return text;
}

}  // namespace triax::plan
