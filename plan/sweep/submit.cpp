#include "plan/sweep/submit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "io/report/run_directory.h"
#include "plan/sweep/process.h"

namespace triax::plan {
namespace {

bool has_option(const ArrayJob& job, const std::string& name) {
  for (const std::string& option : job.sbatch_options) {
    if (option == name || option.starts_with(name + "=")) return true;
  }
  return false;
}

std::string read_trimmed(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  std::string all = text.str();
  while (!all.empty() && all.back() == '\n') all.pop_back();
  return all;
}

}  // namespace

std::string shell_word(const std::string& word) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,+%@";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string out(1, '\'');
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  out += '\'';
  return out;
}

std::string batch_script(const ArrayJob& job) {
  std::string text = fmt::format(
      "#!/bin/bash\n# One task per point of the sweep; written by 'triax sweep --submit'. Collect with --collect.\n"
      "#SBATCH --job-name={}\n#SBATCH --array={}\n#SBATCH --ntasks={}\n#SBATCH --output={}/slurm-%A_%a.out\n",
      job.name, fmt::join(job.points, ","), job.tasks, job.directory);
  if (job.point_timeout_s > 0 && !has_option(job, "time")) {
    // Room for the start and for the trainer's saving after the point's own limit.
    text += fmt::format("#SBATCH --time={}\n", static_cast<int>(std::ceil(job.point_timeout_s / 60)) + 5);
  }
  for (const std::string& option : job.sbatch_options) text += fmt::format("#SBATCH --{}\n", option);
  text += "exec";
  for (const std::string& word : job.command) text += fmt::format(" {}", shell_word(word));
  return text + " --only-point \"$SLURM_ARRAY_TASK_ID\"\n";
}

std::string submit(const ArrayJob& job) {
  std::filesystem::create_directories(job.directory);
  const std::string script = job.directory + "/sweep.sbatch";
  io::write_text_file(script, batch_script(job));
  if (find_program("sbatch").empty()) {
    throw ConfigError(fmt::format(
        "--submit: there is no sbatch here; the script is {} (submit it on a login node), or leave --submit out to run "
        "the points here",
        script));
  }
  ProcessRequest request{{"sbatch", script}, job.directory + "/sbatch.out", job.directory + "/sbatch.err", "", 60};
  std::filesystem::remove(request.stdout_path);
  std::filesystem::remove(request.stderr_path);
  const ProcessResult result = run_process(request);
  if (result.exit_code != 0) {
    throw RunTimeError(
        fmt::format("sbatch {}: {} (exit code {})", script, read_trimmed(request.stderr_path), result.exit_code));
  }
  return read_trimmed(request.stdout_path);
}

}  // namespace triax::plan
