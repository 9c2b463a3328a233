// The one binary: finds the subcommand, turns exceptions into messages and exit codes.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/session.h"
#include "apps/thread_wait.h"
#include "base/error.h"
#include "base/last_words.h"
#include "base/log.h"
#include "base/version.h"
#include "io/options/options.h"
#include "model/presets.h"
#include "plan/hardware_presets.h"

namespace triax::apps {
namespace {

struct Command {
  const char* name;
  const char* summary;
  int (*run)(const std::vector<std::string>& args);
};

constexpr Command kCommands[] = {
    {"train", "train, or evaluate a checkpoint (--skip-train), on the ranks of mpiexec or srun", train_command},
    {"sample", "continue a prompt from a checkpoint", sample_command},
    {"data", "make, show, check and merge datasets; train tokenizers", data_command},
    {"ckpt", "list, check, compare and copy checkpoints", ckpt_command},
    {"topo", "the grid of ranks, its groups, nodes and cores", topo_command},
    {"doctor", "what is wrong with how a job was started, and what helps", doctor_command},
    {"mem", "memory of every stage of a run, by category, before it runs", mem_command},
    {"plan", "which layout to run on so many devices of a machine, and why", plan_command},
    {"sim", "time and memory of a run on a machine, before it runs; traces, what-if questions", sim_command},
    {"bench", "measures kernels, links, overlap and disks of this machine into hw.json", bench_command},
    {"program", "show, check, export, hash and time the program of a step", program_command},
    {"trace", "summary of a trace; difference of two, op by op; who ended a run", trace_command},
    {"options", "every option; as docs/from-megatron.md, manual page or shell completion", options_command},
    {"sweep", "grids of runs and built-in ablations, with tables and figures", sweep_command},
    {"report", "one HTML page of a run, or of several side by side", report_command},
};

std::string triax_usage() {
  std::string text = "usage: triax COMMAND [options]        mpiexec -n RANKS triax train [options]\n\n";
  for (const Command& command : kCommands) {
    text += fmt::format("  {:<9} {}\n", command.name, command.summary);
  }
  return text +
         "\n  --list-models, --list-hw, --version, --help\n\n'triax COMMAND --help' lists the options of a command.\n"
         "Exit codes: 0 done, 2 usage or configuration, 3 infeasible, 4 validation failed, 5 run-time failure,\n"
         "75 stopped before the last iteration with a checkpoint saved.\n";
}

std::string version_text() {
  const BuildInfo info = build_info();
  std::string text = fmt::format("triax {} ({})\n", info.version, info.commit);
  for (const auto& [name, value] : build_info_rows()) {
    if (name != "version" && name != "commit") text += fmt::format("  {:<12} {}\n", name, value);
  }
  return text;
}

[[noreturn]] void refuse_command(const std::string& name) {
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    names.push_back(command.name);
  }
  const std::string nearest = io::nearest_name(name, names);
  throw ConfigError(
      fmt::format("{}: unknown command; {}", name,
                  nearest.empty() ? "'triax --help' lists all" : fmt::format("did you mean {}?", nearest)));
}

int dispatch(const std::vector<std::string>& words) {
  if (words.empty()) {
    say_last_words(triax_usage());
    return static_cast<int>(ExitCode::Usage);
  }
  const std::string& name = words[0];
  if (name == "--help" || name == "-h" || name == "help") return fmt::print("{}", triax_usage()), 0;
  if (name == "--version") return fmt::print("{}", version_text()), 0;
  if (name == "--list-hw") return fmt::print("{}", plan::list_hardware()), 0;
  if (name == "--list-models") return fmt::print("{}", model::list_presets()), 0;
  for (const Command& command : kCommands) {
    if (command.name == name) return command.run({words.begin() + 1, words.end()});
  }
  refuse_command(name);
}

// Results are read line by line by others while a run goes on.
int guarded(const std::vector<std::string>& words) {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  try {
    init_log("info", "");
    const int code = dispatch(words);
    ensure_stdout_written();
    return code;
  } catch (const ConfigError& error) {
    say_last_words(fmt::format("triax: {}\n", error.what()));
    return static_cast<int>(ExitCode::Usage);
  } catch (const std::exception& error) {
    say_last_words(fmt::format("triax: {}\n", words_of(error)));
    return static_cast<int>(ExitCode::RunTime);
  }
}

}  // namespace

std::vector<io::CommandSummary> command_summaries() {
  std::vector<io::CommandSummary> summaries;
  for (const Command& command : kCommands) {
    summaries.push_back({command.name, command.summary});
  }
  return summaries;
}

}  // namespace triax::apps

int main(int argc, char** argv) {
  const std::vector<std::string> words{argv + 1, argv + argc};
  // Before anything is read or written, and only where threads compute.
  if (!words.empty() && (words[0] == "train" || words[0] == "sample" || words[0] == "bench")) {
    triax::apps::run_with_short_waits(argv);
  }
  return triax::apps::guarded(words);
}
