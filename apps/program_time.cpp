// `triax program time`: what a step costs in time before anything runs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "apps/program_request.h"
#include "base/error.h"
#include "base/version.h"
#include "io/trace/chrome_trace.h"
#include "io/trace/gantt.h"
#include "parallel/closed_form.h"
#include "parallel/cost_text.h"
#include "parallel/memory_effects.h"

namespace triax::apps {
namespace {

using nlohmann::ordered_json;
using parallel::IdleCause;
using parallel::Simulation;

constexpr const char* kTimeDescription =
    "Times are in the unit of --cost. One line or element per pipeline position.\n"
    "makespan            end of the last op, optimizer included\n"
    "span                longest of the positions' times from first F to last W (or B)\n"
    "bubble_of_total     1 - m (F + I + W) / span, mean over positions\n"
    "bubble_of_ideal     span / (m (F + I + W)) - 1\n"
    "closed_form         the same three from the schedule's formula; null where none is known to hold\n"
    "busy                time in F, I, W, B, R, LOAD\n"
    "idle                makespan - busy, the sum of the six causes in idle_split:\n"
    "  fill              waits before the first backward\n"
    "  drain             waits after the last forward, and for the other positions at the end\n"
    "  imbalance         waits between: another position is slower\n"
    "  p2p_wait          part of any wait in which the message was on the wire\n"
    "  dp_sync           gradient sums that nothing hides\n"
    "  optimizer         norm and optimizer step\n"
    "in_flight           most chunk activations between F and W (v = 1: micro-batches)\n"
    "in_flight_micro_batches  in_flight / v\n";

struct TimeResult {
  const ProgramRequest& request;
  Simulation simulation;
  double unit_ps;
  std::optional<double> closed_span;
  double ideal = 0;  ///< m (F + I + W), mean over positions

  /// In units of --cost. What the last picosecond leaves of thirds is rounded away.
  double units(int64_t ps) const {
    const double digits = unit_ps / 1000;
    const double value = static_cast<double>(ps) / unit_ps;
    return digits < 1 ? value : std::round(value * digits) / digits;
  }
};

template <class T>
bool all_equal(const std::vector<T>& list) {
  return std::adjacent_find(list.begin(), list.end(), std::not_equal_to<>()) == list.end();
}

std::optional<double> closed_span(const ProgramRequest& r, const parallel::UniformCosts& c, double unit_ps) {
  const bool uniform = all_equal(c.forward_ps) && all_equal(c.backward_input_ps) && all_equal(c.backward_weight_ps) &&
                       all_equal(c.latency_ps) && c.recompute_ps.empty() && c.tensor_partial_ps.empty() &&
                       c.load_ps.empty() && c.bytes_per_s.empty() && !r.time.varies();
  if (!uniform) return std::nullopt;
  const auto span =
      parallel::closed_form_span_ps(r.schedule, {c.forward_ps[0], c.backward_input_ps[0], c.backward_weight_ps[0], 0},
                                    c.latency_ps.empty() ? 0 : c.latency_ps[0]);
  if (!span) return std::nullopt;
  return static_cast<double>(*span) / unit_ps;
}

TimeResult compute(const ProgramRequest& r) {
  const parallel::TextCosts text = parallel::parse_costs(r.cost, r.schedule.pipeline, r.schedule.num_micro_batches);
  const parallel::CostTable table = make_cost_table(text.costs, r.program.pipeline, r.program.chunks);
  parallel::SimulationOptions options;
  options.replicas = r.replicas;
  options.time = r.time;
  options.recorded_replica = static_cast<int>(r.replica);
  TimeResult result{r, simulate(r.program, table, options), static_cast<double>(text.unit_ps), {}};
  result.closed_span = closed_span(r, text.costs, result.unit_ps);
  for (const parallel::StageTimes& stage : result.simulation.stages) {
    result.ideal += static_cast<double>(stage.busy_ps) / result.unit_ps / r.program.pipeline;
  }
  return result;
}

ordered_json json_of(const TimeResult& result) {
  const ProgramRequest& r = result.request;
  const Simulation& s = result.simulation;
  ordered_json json;
  json["schema"] = "triax-program-time";
  json["version"] = 1;
  json["commit"] = build_info().commit;
  json["program_hash"] = hash_text(r.program);
  json["schedule"] = r.program.schedule;
  json["pipeline"] = r.program.pipeline;
  json["chunks"] = r.program.chunks;
  json["num_microbatches"] = r.program.num_micro_batches;
  json["tensor_parallel"] = r.parsed.options.parallel.grid.tensor;
  json["data_parallel"] = r.replicas;
  json["makespan"] = result.units(s.makespan_ps);
  json["span"] = result.units(s.span_ps);
  json["bubble_of_total"] = s.bubble_of_total;
  json["bubble_of_ideal"] = s.bubble_of_ideal;
  if (result.closed_span) {
    json["closed_form"] = {{"span", *result.closed_span},
                           {"bubble_of_total", 1 - result.ideal / *result.closed_span},
                           {"bubble_of_ideal", *result.closed_span / result.ideal - 1}};
  } else {
    json["closed_form"] = nullptr;
  }
  for (const char* key : {"busy", "idle"}) json[key] = ordered_json::array();
  for (const parallel::StageTimes& stage : s.stages) {
    json["busy"].push_back(result.units(stage.busy_ps));
    json["idle"].push_back(result.units(stage.idle.total()));
  }
  for (int c = 0; c < parallel::kNumIdleCauses; ++c) {
    ordered_json list = ordered_json::array();
    for (const parallel::StageTimes& stage : s.stages)
      list.push_back(result.units(stage.idle[static_cast<IdleCause>(c)]));
    json["idle_split"][name_of(static_cast<IdleCause>(c))] = list;
  }
  json["in_flight"] = in_flight_peaks(r.program);
  json["in_flight_micro_batches"] = ordered_json::array();
  for (const int peak : in_flight_peaks(r.program)) {
    json["in_flight_micro_batches"].push_back(static_cast<double>(peak) / r.program.chunks);
  }
  return json;
}

std::string percent(double share) { return fmt::format("{:.2f} %", 100 * share); }

std::string time_headline(const TimeResult& result) {
  const ProgramRequest& r = result.request;
  const Simulation& s = result.simulation;
  const std::string closed = result.closed_span
                                 ? fmt::format("closed form {} and {}", percent(1 - result.ideal / *result.closed_span),
                                               percent(*result.closed_span / result.ideal - 1))
                                 : std::string("no closed form");
  return fmt::format(
      "{}, p {}, v {}, m {}, t {}, d {}, program {}\n"
      "bubble {} of total, {} of ideal ({}); span {:.10g}, makespan {:.10g}\n",
      r.program.schedule, r.program.pipeline, r.program.chunks, r.program.num_micro_batches,
      r.parsed.options.parallel.grid.tensor, r.replicas, hash_text(r.program), percent(s.bubble_of_total),
      percent(s.bubble_of_ideal), closed, result.units(s.span_ps), result.units(s.makespan_ps));
}

std::string table_of(const TimeResult& result) {
  std::string text = fmt::format("{:>8} {:>10} {:>10}", "position", "busy", "idle");
  for (int c = 0; c < parallel::kNumIdleCauses; ++c) text += fmt::format(" {:>10}", name_of(static_cast<IdleCause>(c)));
  text += fmt::format(" {:>10}\n", "in_flight");
  const std::vector<int> in_flight = in_flight_peaks(result.request.program);
  for (size_t i = 0; i < result.simulation.stages.size(); ++i) {
    const parallel::StageTimes& stage = result.simulation.stages[i];
    text += fmt::format("{:>8} {:>10.6g} {:>10.6g}", i, result.units(stage.busy_ps), result.units(stage.idle.total()));
    for (const int64_t ps : stage.idle.ps) text += fmt::format(" {:>10.6g}", result.units(ps));
    text += fmt::format(" {:>10}\n", in_flight[i]);
  }
  return text;
}

std::string csv_of(const TimeResult& result) {
  std::string text = "position,busy,idle";
  for (int c = 0; c < parallel::kNumIdleCauses; ++c) text += fmt::format(",{}", name_of(static_cast<IdleCause>(c)));
  text += ",in_flight\n";
  const std::vector<int> in_flight = in_flight_peaks(result.request.program);
  for (size_t i = 0; i < result.simulation.stages.size(); ++i) {
    const parallel::StageTimes& stage = result.simulation.stages[i];
    text += fmt::format("{},{},{}", i, result.units(stage.busy_ps), result.units(stage.idle.total()));
    for (const int64_t ps : stage.idle.ps) text += fmt::format(",{}", result.units(ps));
    text += fmt::format(",{}\n", in_flight[i]);
  }
  return text;
}

void write_pictures(const TimeResult& result, const io::Timeline& timeline) {
  const ProgramRequest& r = result.request;
  if (!r.chrome.empty()) write_file(r.chrome, chrome_trace(timeline));
  if (r.svg.empty()) return;
  io::SvgGanttOptions options;
  options.title = fmt::format("{}, p {}, v {}, m {}: bubble {} of total, {} of ideal", r.program.schedule,
                              r.program.pipeline, r.program.chunks, r.program.num_micro_batches,
                              percent(result.simulation.bubble_of_total), percent(result.simulation.bubble_of_ideal));
  options.unit_ps = result.unit_ps;
  options.unit_name = "units of --cost";
  write_file(r.svg, svg_gantt(timeline, options));
}

}  // namespace

int program_time(const ProgramRequest& r) {
  if (r.describe) {
    fmt::print("{}", kTimeDescription);
    return 0;
  }
  const TimeResult result = compute(r);
  const bool drawn = r.format == Format::Table || !r.svg.empty() || !r.chrome.empty();
  io::Timeline timeline;
  if (drawn) timeline = io::make_timeline(r.program, result.simulation.times, "simulated", static_cast<int>(r.replica));
  write_pictures(result, timeline);
  std::string text;
  if (r.format == Format::Json) text = json_of(result).dump(2) + "\n";
  if (r.format == Format::Csv) text = csv_of(result);
  if (r.format == Format::Table) {
    const int columns = terminal_width();
    const int width = r.width > 0 ? static_cast<int>(r.width) : columns > 20 ? columns - 8 : 100;
    const io::Colour colour = columns > 0 && r.out.empty() ? io::Colour::Yes : io::Colour::No;
    text = time_headline(result) + table_of(result) + text_gantt(timeline, {width, colour});
  }
  write_result(r.out, text);
  return 0;
}

}  // namespace triax::apps
