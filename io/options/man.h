// The manual page and the shell completion, from the table of options.
#pragma once

#include <string>
#include <vector>

namespace triax::io {

/// A subcommand of the binary.
struct CommandSummary {
  std::string name, summary;
};
/// triax(1) in troff.
std::string manual_page(const std::string& version, const std::vector<CommandSummary>& commands);
/// A script for bash: commands, options, and words where an option takes one of some.
std::string bash_completion(const std::vector<CommandSummary>& commands);

}  // namespace triax::io
