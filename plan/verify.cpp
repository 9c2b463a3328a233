#include "plan/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "io/options/options.h"
#include "io/options/validate.h"
#include "io/trace/chrome_trace.h"
#include "train/pipeline_timing.h"
#include "train/program_builder.h"

namespace triax::plan {
namespace {

namespace fs = std::filesystem;
using parallel::IdleCause;

std::string text_of_file(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!(text << file.rdbuf())) throw RunTimeError(path + ": cannot be read; --verify needs the directory of a run");
  return text.str();
}

io::RunOptions options_of_run(const std::string& directory) {
  const auto run = nlohmann::json::parse(text_of_file(directory + "/run.json"), nullptr, false);
  if (!run.is_object() || !run.contains("world_size")) throw RunTimeError(directory + "/run.json: is no run's record");
  io::RunOptions options = io::parse_options({"--config", directory + "/resolved.cfg"}).options;
  io::resolve(options, run["world_size"].get<int>(), io::Purpose::Plan);
  return options;
}

struct Measured {
  double step_s = 0;
  int64_t peak_bytes = 0;
};

Measured metrics_of(const std::string& directory, int warm_up) {
  std::istringstream lines(text_of_file(directory + "/metrics.jsonl"));
  std::vector<double> steps;
  Measured measured;
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object() || !json.contains("step_ms")) continue;
    steps.push_back(json["step_ms"].get<double>() * 1e-3);
    measured.peak_bytes = std::max(measured.peak_bytes, json.value("peak_memory_bytes", int64_t{0}));
  }
  if (steps.empty()) throw RunTimeError(directory + "/metrics.jsonl: holds no iteration");
  if (static_cast<int>(steps.size()) > 2 * warm_up) steps.erase(steps.begin(), steps.begin() + warm_up);
  std::sort(steps.begin(), steps.end());
  const size_t half = steps.size() / 2;
  measured.step_s = steps.size() % 2 == 1 ? steps[half] : (steps[half - 1] + steps[half]) / 2;
  return measured;
}

/// The trace of the latest iteration; empty: there is none.
std::string last_trace(const std::string& directory) {
  std::string path;
  int64_t latest = -1;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(directory + "/trace", none)) {
    const std::string name = entry.path().filename().string();
    int64_t iteration = -1;
    if (std::sscanf(name.c_str(), "measured-%ld.json", &iteration) == 1 && name.ends_with(".json") &&
        iteration > latest) {
      latest = iteration;
      path = entry.path().string();
    }
  }
  return path;
}

std::vector<std::vector<parallel::OpTime>> times_of(const io::Timeline& timeline, const parallel::Program& program) {
  std::vector<std::vector<parallel::OpTime>> times(program.positions.size());
  for (size_t i = 0; i < times.size(); ++i) times[i].resize(program.positions[i].size());
  for (const io::TimelineEvent& event : timeline.events) {
    const auto position = static_cast<size_t>(event.rank % program.pipeline);
    times[position].at(static_cast<size_t>(event.op)) = {event.start_ps, event.stop_ps};
  }
  return times;
}

void compare_categories(const std::string& directory, const Prediction& predicted, Verification& result) {
  const std::string path = last_trace(directory);
  if (path.empty()) {
    result.notes.push_back("no trace/measured-*.json: categories are not compared");
    return;
  }
  const io::Timeline timeline = io::parse_chrome_trace(text_of_file(path), path);
  const parallel::Program& program = predicted.simulated->program;
  const std::string hash = fmt::format("{:016x}", parallel::hash_of(program));
  if (timeline.program_hash != hash) {
    result.notes.push_back(fmt::format("{} is of program {}, the prediction's is {}: categories are not compared", path,
                                       timeline.program_hash, hash));
    return;
  }
  const auto measured = categories_of(program, times_of(timeline, program));
  const auto simulated = categories_of(program, predicted.simulated->simulation.times);
  double step = 0;
  for (const auto& [name, seconds] : measured) step += seconds;
  for (size_t i = 0; i < measured.size(); ++i) {
    result.rows.push_back({measured[i].first, simulated[i].second, measured[i].second,
                           (simulated[i].second - measured[i].second) / step});
  }
  result.notes.push_back(fmt::format("categories: one step, {}; their errors are of that step, {:.6g} s", path, step));
}

}  // namespace

std::vector<std::pair<std::string, double>> categories_of(const parallel::Program& program,
                                                          const std::vector<std::vector<parallel::OpTime>>& times) {
  const train::PipelineTiming timing = train::analyse(program, times);
  double compute = 0, fill = 0, drain = 0, between = 0, sync = 0, optimizer = 0, other = 0;
  const auto share = 1e-12 / static_cast<double>(times.size());
  for (size_t i = 0; i < times.size(); ++i) {
    const parallel::IdleSplit& idle = timing.idle[i];
    compute += share * static_cast<double>(timing.busy_ps[i]);
    fill += share * static_cast<double>(idle[IdleCause::Fill]);
    drain += share * static_cast<double>(idle[IdleCause::Drain]);
    between += share * static_cast<double>(idle[IdleCause::Imbalance] + idle[IdleCause::PeerToPeer]);
    sync += share * static_cast<double>(idle[IdleCause::DataSync]);
    optimizer += share * static_cast<double>(idle[IdleCause::Optimizer]);
    other += share * static_cast<double>(timing.other_ps(i));
  }
  return {{"compute", compute}, {"fill", fill},           {"drain", drain}, {"between", between},
          {"dp_sync", sync},    {"optimizer", optimizer}, {"other", other}};
}

Verification verify_run(const std::string& run, const bench::Hardware& hardware, int warm_up) {
  const std::string directory =
      fs::path(run).filename() == "run.json" ? (fs::path(run).parent_path() / ".").string() : run;
  Verification result;
  result.options = options_of_run(directory);
  const Measured measured = metrics_of(directory, warm_up);
  PredictionOptions what;
  what.exact =
      exact_work(result.options, equivalent_micro_batches(result.options)) < 1e6 ? ExactScope::All : ExactScope::Ends;
  const Prediction predicted = predict(result.options, hardware, what);
  result.rows.push_back({"step", predicted.step_s(), measured.step_s, predicted.step_s() / measured.step_s - 1});
  compare_categories(directory, predicted, result);
  const StagePrediction& fullest = predicted.stages[static_cast<size_t>(predicted.fullest)];
  if (measured.peak_bytes > 0) {
    const auto bytes = static_cast<double>(fullest.bytes() - fullest.runtime_bytes);
    const auto peak = static_cast<double>(measured.peak_bytes);
    result.rows.push_back({"memory", bytes, peak, bytes / peak - 1});
  } else {
    result.notes.push_back("metrics.jsonl has no peak_memory_bytes: memory is not compared");
  }
  return result;
}

}  // namespace triax::plan
