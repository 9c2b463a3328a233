#include "io/report/run_directory.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/flight_file.h"

namespace triax::io {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

bool tells_of_a_finished_run(const std::string& summary_path) {
  const Json summary = read_json(summary_path);
  return summary.is_object() && summary.value("ended", "") == "finished";
}

bool holds_a_run(const std::string& path) { return fs::exists(path + "/run.json"); }

/// Options, of one value each, that change when a run stops, saves, evaluates and speaks, and nothing that it computes.
constexpr std::array kFree = {"exit-interval", "exit-duration-in-mins", "eval-iters",
                              "eval-interval", "save-interval",         "log-interval"};

/// The command line without them.
std::vector<std::string> what_it_computes(const std::vector<std::string>& words) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < words.size(); ++i) {
    std::string name = words[i].substr(0, words[i].find('='));
    std::ranges::replace(name, '_', '-');
    const bool is_free =
        std::ranges::any_of(kFree, [&name](const char* one) { return name == fmt::format("--{}", one); });
    if (!is_free) {
      kept.push_back(words[i]);
    } else if (words[i].find('=') == std::string::npos) {
      ++i;  // its value
    }
  }
  return kept;
}

// Only a requeued or repeated step of the same Slurm job goes on, or a repeated command that resumes, which may be in
// another job (where jobs are submitted again, not requeued): another command of the same job is another run, and so is
// the same command after it has finished.
bool is_restart(const std::string& path, const RunOptions& options, const RunFacts& facts) {
  const bool resumes = !options.control.save.empty() && options.control.load == options.control.save;
  const Json run = read_json(path + "/run.json");
  if (!run.is_object()) return false;
  const bool same_job = !facts.slurm_job_id.empty() && run.value("slurm_job_id", "") == facts.slurm_job_id;
  if (!same_job && !resumes) return false;
  const Json words = run.value("command_line", Json());
  if (!words.is_array() || !std::ranges::all_of(words, [](const Json& word) { return word.is_string(); })) return false;
  if (what_it_computes(words.get<std::vector<std::string>>()) != what_it_computes(facts.command_line)) return false;
  // Without its marker a finished run was killed while it wrote its last files.
  return !(tells_of_a_finished_run(path + "/summary.json") && fs::exists(path + "/" + kCompletionMarker));
}

void create(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error)
    throw ConfigError(
        fmt::format("--run-dir {}: cannot be made ({}); name a directory that can be", path, error.message()));
}

std::string default_path(const RunOptions& options, const RunFacts& facts) {
  std::string model = options.model.name;
  for (char& c : model) c = c == '/' || c == ' ' ? '_' : c;
  const std::string when = facts.slurm_job_id.empty()
                               ? fmt::format("{:%Y%m%d-%H%M%S}", fmt::localtime(std::time(nullptr)))
                               : facts.slurm_job_id;
  return fmt::format("runs/{}-{}-{}", model, layout_name(options), when);
}

}  // namespace

std::string layout_name(const RunOptions& options) {
  const ParallelOptions& p = options.parallel;
  std::string name = fmt::format("tp{}-pp{}-dp{}", p.grid.tensor, p.grid.pipeline, p.grid.data);
  if (p.chunks > 1) name += fmt::format("-v{}", p.chunks);
  return name;
}

RunDirectory open_run_directory(const RunOptions& options, const RunFacts& facts) {
  if (!options.control.run_dir.empty()) {
    const std::string& path = options.control.run_dir;
    const bool restart = is_restart(path, options, facts);
    if (holds_a_run(path) && !restart) {
      throw ConfigError(
          fmt::format("--run-dir {}: holds another run (run.json), which is never overwritten; name a new "
                      "directory, or leave --run-dir out",
                      path));
    }
    create(path);
    return {path, restart};
  }
  const std::string base = default_path(options, facts);
  std::string path = base;
  for (int number = 2; fs::exists(path); ++number) {
    if (is_restart(path, options, facts)) return {path, true};
    path = fmt::format("{}-{}", base, number);
  }
  create(path);
  return {path, false};
}

nlohmann::ordered_json read_json(const std::string& path) {
  std::ifstream file(path);
  if (!file) return nullptr;
  return nlohmann::ordered_json::parse(file, nullptr, false);
}

void write_text_file(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".tmp";
  errno = 0;
  std::ofstream file(temporary, std::ios::trunc | std::ios::binary);
  file << text;
  file.close();
  std::error_code error;
  if (file) {
    fs::rename(temporary, path, error);
  } else {
    error.assign(errno != 0 ? errno : EIO, std::generic_category());
  }
  if (error) throw RunTimeError(fmt::format("{}: cannot be written: {}", path, error.message()));
}

void write_summary(const RunDirectory& directory, const std::string& json, int64_t steps) {
  const std::string path = directory.file("summary.json");
  if (steps > 0 || !tells_of_a_finished_run(path)) write_text_file(path, json);
}

void mark_ended(const RunDirectory& directory, EndReason reason, int64_t iteration) {
  const char* marker = reason == EndReason::ExitInterval ? kPauseMarker : kCompletionMarker;
  write_text_file(directory.file(marker), fmt::format("iteration {}\n", iteration));
}

void set_records_aside(const RunDirectory& directory) {
  for (const char* marker : {kCompletionMarker, kPauseMarker}) {
    std::error_code error;
    fs::remove(directory.file(marker), error);
    if (error) throw RunTimeError(fmt::format("{}: cannot be removed", directory.file(marker)));
  }
  const std::string flight = flight_directory(directory.path);
  if (!fs::exists(flight)) return;
  int number = 1;
  while (fs::exists(fmt::format("{}-{}", flight, number))) ++number;
  fs::rename(flight, fmt::format("{}-{}", flight, number));
}

void write_run_files(const RunDirectory& directory, const ParsedOptions& parsed, const RunFacts& facts) {
  const std::string path = directory.file("run.json");
  if (fs::exists(path)) {
    int number = 1;
    while (fs::exists(directory.file(fmt::format("run-{}.json", number)))) ++number;
    // Copied, not renamed: a run that is killed here must find itself again.
    fs::copy_file(path, directory.file(fmt::format("run-{}.json", number)));
  }
  write_text_file(path, run_json(parsed, facts));
  write_text_file(directory.file("resolved.cfg"), resolved_cfg(parsed.options));
}

}  // namespace triax::io
