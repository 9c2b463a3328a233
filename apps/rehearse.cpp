#include "apps/rehearse.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/entry_makers.h"
#include "base/error.h"
#include "base/log.h"
#include "plan/hardware_choice.h"
#include "plan/rehearsal.h"

namespace triax::apps {
std::vector<io::OptionEntry> rehearse_entries(RehearseWords& words) {
  return {
      switch_entry("rehearse",
                   "trains nothing: checks all options, prints layout, groups, memory, traffic, and executes one rank "
                   "with small widths; needs no MPI",
                   words.rehearse),
      count_entry("rehearse-rank", "rank that --rehearse executes; default the first of the last stage", 0, words.rank),
      count_entry("world-size", "ranks of the run; --rehearse takes it as given, a run on another number is refused", 1,
                  words.world),
      count_entry("ranks-per-node", "--rehearse: consecutive ranks that share a node; default 8", 1,
                  words.ranks_per_node),
  };
}

bool asks_for_rehearsal(const std::vector<std::string>& args) {
  return std::any_of(args.begin(), args.end(),
                     [](const std::string& word) { return word == "--rehearse" || word == "--rehearse=true"; });
}

int rehearse_command(const RehearseWords& words, train::RunRequest& request) {
  if (words.world == 0) throw ConfigError("--rehearse: --world-size N says how many ranks the job will have");
  init_log("warn", "");
  train::prepare_options(request, static_cast<int>(words.world));
  plan::RehearsalRequest rehearsal;
  rehearsal.options = request.parsed.options;
  rehearsal.rank = static_cast<int>(words.rank);
  rehearsal.ranks_per_node = static_cast<int>(std::min(words.ranks_per_node, words.world));
  const std::string& hardware = rehearsal.options.control.hardware;
  if (!hardware.empty()) rehearsal.hardware = plan::hardware_of(hardware);
  const plan::RehearsalReport report = plan::rehearse(rehearsal);
  fmt::print("{}", plan::rehearsal_text(report));
  for (const std::string& note : request.parsed.notes) fmt::print("note        {}\n", note);
  if (!report.faults.empty()) return static_cast<int>(ExitCode::ValidationFailed);
  return static_cast<int>(plan::fits(report) ? ExitCode::Done : ExitCode::Infeasible);
}

}  // namespace triax::apps
