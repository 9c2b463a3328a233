// `triax options`: the table of options, as help text, docs/from-megatron.md, manual page or shell completion.
#include "io/options/options.h"

#include <fmt/format.h>

#include <cstdio>

#include "apps/commands.h"
#include "base/error.h"
#include "base/version.h"
#include "io/options/man.h"

namespace triax::apps {

int options_command(const std::vector<std::string>& args) {
  using Words = std::vector<std::string>;
  if (args.empty() || args == Words{"--help"}) {
    fmt::print("{}", io::help_text("Options of triax train"));
  } else if (args == Words{"--markdown"}) {
    fmt::print("{}", io::markdown_table());
  } else if (args == Words{"--man"}) {
    fmt::print("{}", io::manual_page(build_info().version, command_summaries()));
  } else if (args == Words{"--completion", "bash"}) {
    fmt::print("{}", io::bash_completion(command_summaries()));
  } else {
    throw ConfigError(fmt::format("options {}: takes --markdown, --man, --completion bash, or nothing", args[0]));
  }
  return 0;
}

}  // namespace triax::apps
