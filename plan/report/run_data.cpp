#include "plan/report/run_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/error.h"
#include "io/options/options.h"
#include "io/options/validate.h"
#include "io/report/run_directory.h"

namespace triax::plan {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::string text_in(const Json& json, const char* key) {
  return json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : std::string();
}

double number_in(const Json& json, const char* key) {
  return json.contains(key) && json[key].is_number() ? json[key].get<double>() : kNone;
}

void take_run_json(const Json& json, RunData& run) {
  const std::pair<const char*, std::string*> texts[] = {
      {"version", &run.version},           {"commit", &run.commit},       {"compiler", &run.compiler},
      {"started", &run.started},           {"model", &run.model},         {"device", &run.device},
      {"program_hash", &run.program_hash}, {"data_hash", &run.data_hash}, {"tokenizer_hash", &run.tokenizer_hash},
      {"slurm_job_id", &run.slurm_job_id}};
  for (const auto& [key, field] : texts) *field = text_in(json, key);
  run.world_size = json.value("world_size", 1);
  run.parameters = json.value("parameters", 0.0);
  run.peak_tflops = json.value("peak_tflops", 0.0);
  run.command_line = json.value("command_line", std::vector<std::string>());
  run.hosts = json.value("hosts", std::vector<std::string>());
  run.libraries = json.value("libraries", std::map<std::string, std::string>());
  run.environment = json.value("environment", std::map<std::string, std::string>());
  if (!json.contains("options")) return;
  for (const auto& [name, option] : json["options"].items()) {
    run.options[name] = {text_in(option, "value"), text_in(option, "origin")};
  }
}

/// Iterations as columns; evaluations apart.
void take_metrics(const std::string& path, RunData& run) {
  std::ifstream file(path);
  std::vector<Json> lines;
  std::set<std::string> keys;
  for (std::string line; std::getline(file, line);) {
    Json json = Json::parse(line, nullptr, false);
    if (!json.is_object() || !json.contains("iteration")) continue;
    if (json.contains("split")) {
      run.evaluations.push_back({number_in(json, "iteration"), number_in(json, "lm_loss"), text_in(json, "split")});
      continue;
    }
    for (const auto& [key, value] : json.items()) {
      if (value.is_number() || value.is_boolean()) keys.insert(key);
    }
    lines.push_back(std::move(json));
  }
  for (const std::string& key : keys) {
    std::vector<double>& column = run.columns[key];
    for (const Json& line : lines) {
      const bool flag = line.contains(key) && line[key].is_boolean();
      column.push_back(flag ? (line[key].get<bool>() ? 1 : 0) : number_in(line, key.c_str()));
    }
  }
}

void take_summary(const Json& json, RunData& run) {
  if (!json.is_object()) return;
  run.ended = text_in(json, "ended");
  if (!json.contains("communication")) return;
  for (const Json& row : json["communication"]) {
    run.traffic.push_back({text_in(row, "group"), text_in(row, "kind"), text_in(row, "operation"),
                           row.value("calls", 0.0), row.value("sent_bytes", 0.0), row.value("busy_ms", 0.0),
                           row.value("exposed_ms", 0.0), row.value("converted", false)});
  }
}

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The newest picture of a recorded step.
std::string newest_picture(const std::string& directory) {
  fs::path newest;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory + "/trace", error)) {
    if (entry.path().extension() != ".svg") continue;
    if (newest.empty() || entry.last_write_time(error) > fs::last_write_time(newest, error)) newest = entry.path();
  }
  if (newest.empty() || fs::file_size(newest, error) > 2'000'000) return {};
  const std::string text = read_text(newest);
  const size_t begin = text.find("<svg");
  return begin == std::string::npos ? std::string() : text.substr(begin);
}

void take_resolved(RunData& run) {
  const std::string path = run.directory + "/resolved.cfg";
  if (!fs::exists(path)) return;
  try {
    io::ParsedOptions parsed = io::parse_options({"--config", path});
    io::resolve(parsed.options, run.world_size, io::Purpose::Plan);
    run.resolved = parsed.options;
  } catch (const std::exception&) {
    run.resolved.reset();  // of another version: the page goes without the drawing
  }
}

}  // namespace

std::string RunData::option(const std::string& option_name) const {
  const auto found = options.find(option_name);
  return found == options.end() ? std::string() : found->second.value;
}

size_t RunData::iterations() const {
  const auto found = columns.find("iteration");
  return found == columns.end() ? 0 : found->second.size();
}

std::vector<double> RunData::counted(const std::string& column) const {
  constexpr size_t kWarmup = 3;
  const auto found = columns.find(column);
  if (found == columns.end()) return {};
  const size_t skip = found->second.size() >= 2 * kWarmup ? kWarmup : 0;
  std::vector<double> values;
  for (size_t i = skip; i < found->second.size(); ++i) {
    if (std::isfinite(found->second[i])) values.push_back(found->second[i]);
  }
  return values;
}

double RunData::last(const std::string& column) const {
  const auto found = columns.find(column);
  if (found == columns.end()) return kNone;
  for (auto value = found->second.rbegin(); value != found->second.rend(); ++value) {
    if (std::isfinite(*value)) return *value;
  }
  return kNone;
}

RunData read_run(const std::string& given) {
  RunData run;
  fs::path path = fs::path(given).lexically_normal();
  if (path.filename() == "run.json") path = path.parent_path().empty() ? fs::path(".") : path.parent_path();
  if (path.has_relative_path() && path.filename().empty()) path = path.parent_path();
  run.directory = path.string();
  run.name = fs::absolute(path).filename().string();
  const Json json = io::read_json(run.directory + "/run.json");
  if (!json.is_object()) {
    throw ConfigError(
        fmt::format("report {}: {}; name the directory of a run (with run.json) or of a sweep (with points/)", given,
                    fs::exists(run.directory + "/run.json") ? "its run.json cannot be parsed" : "holds no run.json"));
  }
  take_run_json(json, run);
  const std::string elsewhere = run.option("metrics-file");
  take_metrics(!elsewhere.empty() && fs::is_regular_file(elsewhere) ? elsewhere : run.directory + "/metrics.jsonl",
               run);
  take_summary(io::read_json(run.directory + "/summary.json"), run);
  take_resolved(run);
  run.picture = newest_picture(run.directory);
  return run;
}

}  // namespace triax::plan
