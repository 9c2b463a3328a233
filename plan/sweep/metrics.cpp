// What a finished point measured, from the files that it left.
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/median.h"
#include "io/report/run_directory.h"
#include "io/trace/chrome_trace.h"
#include "io/trace/trace_summary.h"
#include "plan/sweep/record.h"

namespace triax::plan {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Metrics = std::map<std::string, double>;

/// From summary.json, from the lines of metrics.jsonl, from the result of `triax program time`.
constexpr std::array kSummary = {"step_ms",         "tokens_per_s",    "model_tflops", "mfu",
                                 "bubble_fraction", "exposed_comm_ms", "data_wait_ms", "peak_memory_bytes",
                                 "last_lm_loss",    "last_iteration",  "iterations"};
constexpr std::array kIteration = {"hardware_tflops", "global_batch_size", "memory_bytes"};
constexpr std::array kTime = {"makespan", "span", "bubble_of_total", "bubble_of_ideal"};
constexpr std::array kGroupSuffixes = {"_sent_bytes", "_across_bytes", "_exposed_ms"};

template <size_t n>
void take_numbers(const Json& json, const std::array<const char*, n>& keys, Metrics& metrics) {
  for (const char* key : keys) {
    if (json.contains(key) && json[key].is_number()) metrics[key] = json[key];
  }
}

// Bytes and exposed time of each group, all operations together; parts of a group by kind of layer stay out.
void take_communication(const Json& summary, Metrics& metrics) {
  if (!summary.contains("communication")) return;
  for (const Json& row : summary["communication"]) {
    const std::string group = row.value("group", ""), kind = row.value("kind", "");
    const std::string name = kind.empty() ? group : group + "_" + kind;
    metrics[name + "_sent_bytes"] += row.value("sent_bytes", 0.0);
    metrics[name + "_across_bytes"] += row.value("across_bytes", 0.0);
    metrics[name + "_exposed_ms"] += row.value("exposed_ms", 0.0);
  }
}

/// Median of the iterations' comm_bytes, and what the last one says of the others.
void take_iterations(const std::string& path, Metrics& metrics) {
  std::ifstream file(path);
  std::vector<double> bytes;
  for (std::string line; std::getline(file, line);) {
    const Json json = Json::parse(line, nullptr, false);
    if (!json.is_object() || !json.contains("comm_bytes") || !json["comm_bytes"].is_number()) continue;
    bytes.push_back(json["comm_bytes"]);
    take_numbers(json, kIteration, metrics);
  }
  if (!bytes.empty()) metrics["comm_bytes"] = median(bytes);
}

/// Bubble and span of the newest trace of `source` ("measured" or "virtual"), the span in its ps.
void take_trace(const std::string& directory, const std::string& source, Metrics& metrics) {
  fs::path newest;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory + "/trace", error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(source + "-") || entry.path().extension() != ".json") continue;
    if (newest.empty() || name.size() > newest.filename().string().size() ||
        (name.size() == newest.filename().string().size() && name > newest.filename().string())) {
      newest = entry.path();
    }
  }
  if (newest.empty()) return;
  std::ifstream file(newest);
  std::ostringstream text;
  text << file.rdbuf();
  const io::TraceSummary summary = io::summarize(io::parse_chrome_trace(text.str(), newest.string()));
  metrics["trace_bubble_fraction"] = summary.bubble_of_total;
  metrics["trace_span_s"] = static_cast<double>(summary.span_ps) * 1e-12;
}

/// The result of triax sim, under the names of a run's metrics.
void take_prediction(const Json& json, Metrics& metrics) {
  take_numbers(json, std::array{"tokens_per_s"}, metrics);
  metrics["step_ms"] = json.value("step_s", 0.0) * 1e3;
  metrics["bubble_fraction"] = json.value("bubble_of_total", 0.0);
  const auto part = [&json](const char* object, const char* key) {
    return json.contains(object) && json[object].is_object() ? json[object].value(key, 0.0) : 0.0;
  };
  metrics["model_tflops"] = part("tflops", "model_causal");
  metrics["mfu"] = part("mfu", "causal");
  metrics["peak_memory_bytes"] = part("memory", "bytes");
  metrics["memory_limit_bytes"] = part("memory", "limit");
  for (const char* group : {"tp", "pp", "dp", "zero"}) {
    metrics[std::string(group) + "_exposed_ms"] = part("exposed", group) * 1e3;
    metrics["exposed_comm_ms"] += part("exposed", group) * 1e3;
    metrics["comm_bytes"] += part("traffic", group);
  }
}

bool read_simulated(const std::string& directory, Metrics& metrics) {
  const Json json = io::read_json(directory + "/time.json");
  if (!json.is_object()) return false;
  if (json.value("schema", "") == "triax-sim") return take_prediction(json, metrics), true;
  take_numbers(json, kTime, metrics);
  metrics["bubble_fraction"] = json.value("bubble_of_total", 0.0);
  if (json.contains("closed_form") && json["closed_form"].is_object()) {
    metrics["formula_bubble_fraction"] = json["closed_form"].value("bubble_of_total", 0.0);
    metrics["formula_span"] = json["closed_form"].value("span", 0.0);
  }
  for (const Json& peak : json.value("in_flight_micro_batches", Json::array())) {
    metrics["in_flight_micro_batches"] = std::max(metrics["in_flight_micro_batches"], peak.get<double>());
  }
  return true;
}

}  // namespace

std::vector<std::string> metric_names(SweepMode mode) {
  std::vector<std::string> names;
  const auto add = [&names](const auto& list) { names.insert(names.end(), list.begin(), list.end()); };
  if (mode == SweepMode::Simulated) {
    add(kTime);
    add(std::array{"bubble_fraction", "formula_bubble_fraction", "formula_span", "in_flight_micro_batches", "step_ms",
                   "tokens_per_s", "model_tflops", "mfu", "peak_memory_bytes", "memory_limit_bytes", "exposed_comm_ms",
                   "comm_bytes"});
    return names;
  }
  add(kSummary);
  add(kIteration);
  add(std::array{"comm_bytes", "trace_bubble_fraction", "trace_span_s"});
  return names;
}

bool is_metric(const std::string& name, SweepMode mode) {
  const std::vector<std::string> names = metric_names(mode);
  return std::ranges::find(names, name) != names.end() ||
         std::ranges::any_of(kGroupSuffixes, [&name](const char* suffix) {
           return name.ends_with(suffix) && name.size() > std::string(suffix).size();
         });
}

bool read_metrics(const std::string& directory, SweepMode mode, Metrics& metrics) {
  if (mode == SweepMode::Simulated) return read_simulated(directory, metrics);
  const Json summary = io::read_json(directory + "/summary.json");
  if (!summary.is_object() || summary.value("ended", "") == "failed" || !summary.contains("step_ms")) return false;
  take_numbers(summary, kSummary, metrics);
  take_communication(summary, metrics);
  take_iterations(directory + "/metrics.jsonl", metrics);
  take_trace(directory, mode == SweepMode::Virtual ? "virtual" : "measured", metrics);
  if (mode == SweepMode::Virtual && metrics.contains("trace_bubble_fraction")) {
    metrics["bubble_fraction"] = metrics["trace_bubble_fraction"];
  }
  return true;
}

}  // namespace triax::plan
