// `triax options`: the table of options, as help text or as docs/from-megatron.md.
#include "io/options/options.h"

#include <fmt/format.h>

#include <cstdio>

#include "apps/commands.h"
#include "base/error.h"

namespace triax::apps {

int options_command(const std::vector<std::string>& args) {
  const bool markdown = args == std::vector<std::string>{"--markdown"};
  if (!args.empty() && !markdown && args != std::vector<std::string>{"--help"}) {
    throw ConfigError(fmt::format("options {}: takes --markdown or nothing", args[0]));
  }
  fmt::print("{}", markdown ? io::markdown_table() : io::help_text("Options of triax train"));
  return 0;
}

}  // namespace triax::apps
