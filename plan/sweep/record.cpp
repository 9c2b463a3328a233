#include "plan/sweep/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "io/report/run_directory.h"

namespace triax::plan {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kStates = {PointState::Missing,    PointState::Done,        PointState::Refused,
                                PointState::Infeasible, PointState::OutOfMemory, PointState::TimedOut,
                                PointState::Failed};

bool says_out_of_memory(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  constexpr std::array kWords = {"bad_alloc",  "out of memory",   "out_of_memory",     "oom-kill",
                                 "oom killer", "cannot allocate", "not enough memory", "cudaerrormemoryallocation"};
  return std::any_of(kWords.begin(), kWords.end(), [&](const char* w) { return text.find(w) != std::string::npos; });
}

// Lines that tell of a fault: the first of our own, else the last line that is not the launcher's epilogue.
struct Fault {
  std::string line;
  bool out_of_memory = false;
};

bool is_epilogue(const std::string& line) {
  return line.empty() || line.starts_with("=") || line.find_first_not_of(" =\t") == std::string::npos;
}

Fault fault_in(const std::string& path) {
  Fault fault;
  std::string last;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (says_out_of_memory(line)) {
      if (!fault.out_of_memory) fault.line = line;
      fault.out_of_memory = true;
    }
    // The flight recorder's verdict says more than what the other ranks saw.
    if (line.starts_with("at fault: ") && !fault.out_of_memory) fault.line = line;
    if (fault.line.empty() && (line.starts_with("triax: ") || line.starts_with("rank "))) fault.line = line;
    if (!is_epilogue(line)) last = line;
  }
  if (fault.line.empty()) fault.line = last;
  if (fault.line.starts_with("triax: ")) fault.line.erase(0, 7);
  return fault;
}

}  // namespace

const char* name_of(PointState state) {
  constexpr std::array kNames = {"missing", "done", "refused", "infeasible", "out of memory", "timed out", "failed"};
  return kNames[static_cast<size_t>(state)];
}

std::optional<PointRecord> read_record(const std::string& directory) {
  std::ifstream file(directory + "/point.json");
  if (!file) return std::nullopt;
  const Json json = Json::parse(file, nullptr, false);
  if (!json.is_object() || json.value("schema", "") != "triax.point/1") return std::nullopt;
  PointRecord record;
  const std::string state = json.value("state", "");
  for (const PointState one : kStates) {
    if (state == name_of(one)) record.state = one;
  }
  record.reason = json.value("reason", "");
  record.exit_code = json.value("exit_code", 0);
  record.ranks = json.value("ranks", 1);
  record.repeat = json.value("repeat", 1);
  record.wall_s = json.value("wall_s", 0.0);
  record.mode = json.value("mode", "");
  record.started = json.value("started", "");
  record.host = json.value("host", "");
  record.version = json.value("version", "");
  record.commit = json.value("commit", "");
  record.command = json.value("command", std::vector<std::string>());
  if (json.contains("settings")) {
    for (const auto& [name, value] : json["settings"].items()) record.settings.emplace_back(name, value);
  }
  if (json.contains("metrics")) {
    for (const auto& [name, value] : json["metrics"].items()) {
      if (value.is_number()) record.metrics[name] = value;
    }
  }
  return record;
}

void write_record(const std::string& directory, const PointRecord& record) {
  Json settings = Json::object();
  for (const auto& [name, value] : record.settings) settings[name] = value;
  const Json json = {{"schema", "triax.point/1"}, {"state", name_of(record.state)},
                     {"reason", record.reason},   {"exit_code", record.exit_code},
                     {"mode", record.mode},       {"settings", settings},
                     {"repeat", record.repeat},   {"ranks", record.ranks},
                     {"wall_s", record.wall_s},   {"started", record.started},
                     {"host", record.host},       {"version", record.version},
                     {"commit", record.commit},   {"command", record.command},
                     {"metrics", record.metrics}};
  io::write_text_file(directory + "/point.json", json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void judge(const ProcessResult& result, const std::string& stderr_path, PointRecord& record) {
  record.exit_code = result.exit_code;
  record.wall_s = result.wall_s;
  if (result.exit_code == 0 && !result.timed_out) {
    record.state = PointState::Done;
    return;
  }
  const Fault fault = fault_in(stderr_path);
  const bool killed = result.signal == SIGKILL || result.exit_code == 128 + SIGKILL || result.exit_code == SIGKILL;
  record.reason = fault.line;
  if (result.timed_out) {
    record.state = PointState::TimedOut;
    record.reason = fmt::format("stopped after {:.1f} s", result.wall_s);
  } else if (result.exit_code == 2) {
    record.state = PointState::Refused;
  } else if (result.exit_code == 3) {
    record.state = PointState::Infeasible;
  } else if (fault.out_of_memory || killed) {
    record.state = PointState::OutOfMemory;
    if (!fault.out_of_memory) record.reason = "killed (SIGKILL), as the system does when memory runs out";
  } else {
    record.state = PointState::Failed;
  }
  const std::string how =
      result.signal != 0 ? fmt::format("signal {}", result.signal) : fmt::format("exit code {}", result.exit_code);
  if (record.reason.empty()) record.reason = how;
  if (record.state == PointState::Failed) record.reason = fmt::format("{} ({})", record.reason, how);
}

}  // namespace triax::plan
