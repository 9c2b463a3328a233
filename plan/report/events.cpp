#include "plan/report/events.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/median.h"
#include "plan/sweep/record.h"

namespace triax::plan {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr size_t kMostOfAKind = 5;

void add_starts(const RunData& run, std::vector<RunEvent>& events) {
  int number = 1;
  for (;; ++number) {
    std::ifstream file(fmt::format("{}/run-{}.json", run.directory, number));
    if (!file) break;
    const Json json = Json::parse(file, nullptr, false);
    events.push_back({-1, fmt::format("{} {}", number == 1 ? "started" : "restarted",
                                      json.is_object() ? json.value("started", "") : "")});
  }
  events.push_back({-1, fmt::format("{} {}", number == 1 ? "started" : "restarted", run.started)});
}

/// Lines of steps that a restart made again were moved to metrics.jsonl.replaced-N.
void add_replaced(const RunData& run, std::vector<RunEvent>& events) {
  for (int number = 1;; ++number) {
    std::ifstream file(fmt::format("{}/metrics.jsonl.replaced-{}", run.directory, number));
    if (!file) break;
    double first = -1;
    int count = 0;
    for (std::string line; std::getline(file, line); ++count) {
      const Json json = Json::parse(line, nullptr, false);
      if (first < 0 && json.is_object()) first = json.value("iteration", -1.0);
    }
    events.push_back({first, fmt::format("a restart made {} {} again from iteration {:.0f} on", count,
                                         count == 1 ? "line" : "lines", first)});
  }
}

/// Iterations for which `column` holds something; the first few by number.
void add_flagged(const RunData& run, const std::vector<size_t>& places, const std::string& what,
                 std::vector<RunEvent>& events) {
  if (places.empty()) return;
  const std::vector<double>& iteration = run.columns.at("iteration");
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(places.size(), kMostOfAKind); ++i) {
    names.push_back(fmt::format("{:.0f}", iteration[places[i]]));
  }
  if (places.size() > kMostOfAKind) names.push_back("...");
  events.push_back({iteration[places[0]], fmt::format("{} {}: {}", places.size(), what, fmt::join(names, ", ")), true});
}

template <class Test>
std::vector<size_t> where(const RunData& run, const char* column, Test test) {
  std::vector<size_t> places;
  const auto found = run.columns.find(column);
  if (found == run.columns.end()) return places;
  for (size_t i = 0; i < found->second.size(); ++i) {
    if (test(found->second[i])) places.push_back(i);
  }
  return places;
}

void add_steps(const RunData& run, std::vector<RunEvent>& events) {
  if (run.iterations() == 0) return;
  add_flagged(run, where(run, "skipped", [](double x) { return x == 1; }), "skipped steps (overflow), iterations",
              events);
  add_flagged(run, where(run, "lm_loss", [](double x) { return !std::isfinite(x); }), "steps without a finite loss",
              events);
  const double usual = median(run.counted("step_ms"));
  std::vector<size_t> slow = where(run, "step_ms", [usual](double x) { return x > 3 * usual; });
  std::erase_if(slow, [](size_t i) { return i < 3; });
  add_flagged(run, slow, "steps took more than three times the median, iterations", events);
  for (const RunEvaluation& evaluation : run.evaluations) {
    events.push_back({evaluation.iteration, fmt::format("{} loss {:.4f}", evaluation.split, evaluation.loss)});
  }
}

/// Who was at fault, by the flight recorder.
void add_failure(const RunData& run, std::vector<RunEvent>& events) {
  std::ifstream file(run.directory + "/flight/failure.json");
  if (!file) return;
  const Json json = Json::parse(file, nullptr, false);
  if (!json.is_object()) return;
  const double last = run.last("iteration");
  events.push_back({std::isfinite(last) ? last : 0, fmt::format("at fault: {}", json.value("reason", "")), true});
}

void add_end(const RunData& run, std::vector<RunEvent>& events) {
  const double at = run.last("iteration");
  const double last = std::isfinite(at) ? at : 0;
  const std::string asked = run.option("train-iters");
  if (!run.ended.empty()) {
    events.push_back({last,
                      fmt::format("ended: {} at iteration {:.0f}{}", run.ended, last,
                                  asked.empty() ? "" : fmt::format(" of {}", asked)),
                      run.ended != "finished"});
  } else {
    events.push_back({last,
                      fmt::format("no summary.json: the run goes on, was killed or crashed; last metrics of "
                                  "iteration {:.0f}{}",
                                  last, asked.empty() ? "" : fmt::format(" of {}", asked)),
                      true});
  }
  const auto record = read_record(run.directory);
  if (record && record->state != PointState::Done) {
    events.push_back({last, fmt::format("the sweep says: {}: {}", name_of(record->state), record->reason), true});
  }
}

/// Lines of events.jsonl, where a run has one: {"iteration": N, "event" or "kind": text, ...}.
void add_logged(const RunData& run, std::vector<RunEvent>& events) {
  std::ifstream file(run.directory + "/events.jsonl");
  for (std::string line; std::getline(file, line);) {
    const Json json = Json::parse(line, nullptr, false);
    if (!json.is_object()) continue;
    std::string text;
    for (const auto& [key, value] : json.items()) {
      if (key == "iteration" || key == "time") continue;
      const bool name = key == "event" || key == "kind" || key == "message" || key == "text";
      const std::string shown = value.is_string() ? value.get<std::string>() : value.dump();
      text += (text.empty() ? "" : " ") + (name ? shown : fmt::format("{} {}", key, shown));
    }
    const bool has = json.contains("iteration") && json["iteration"].is_number();
    events.push_back({has ? json["iteration"].get<double>() : -1, text});
  }
}

}  // namespace

std::vector<RunEvent> events_of(const RunData& run) {
  std::vector<RunEvent> events;
  add_starts(run, events);
  add_replaced(run, events);
  add_steps(run, events);
  add_logged(run, events);
  add_failure(run, events);
  add_end(run, events);
  std::stable_sort(events.begin(), events.end(),
                   [](const RunEvent& a, const RunEvent& b) { return a.iteration < b.iteration; });
  return events;
}

}  // namespace triax::plan
