// Reads a command line with Boost.Program_options: long names only, no abbreviations, and every fault is collected.
#include <fmt/format.h>

#include <boost/program_options.hpp>

#include "io/options/given.h"
#include "io/options/values.h"

namespace triax::io {
namespace {

namespace po = boost::program_options;

// Any option may carry any number of values here: arity is checked afterwards, so that one wrong option does not hide
// the faults of the others.
po::options_description boost_options(const NameIndex& index) {
  po::options_description description;
  for (const auto& [name, match] : index.names()) {
    description.add_options()(name.c_str(), po::value<std::vector<std::string>>()->multitoken()->zero_tokens());
  }
  return description;
}

std::string junk(const std::string& word) {
  return fmt::format("{}: not an option; options begin with --, and lists follow their option", word);
}

// Switches: none, or true|false; single values: one; lists: one or more. The rest is junk.
void check_values(Given& given, NameIndex::Sense sense, std::vector<std::string>& faults) {
  const ValueKind kind = given.entry->kind;
  if (kind == ValueKind::Switch) {
    if (given.values.empty()) given.values = {"true"};
    const std::optional<bool> value = parse_bool(given.values[0]);
    if (!value) {
      faults.push_back(fmt::format("{} {}: takes no value, or true or false", given.typed, given.values[0]));
      given.values[0] = "true";
    } else {
      given.values[0] = *value == (sense == NameIndex::Sense::Same) ? "true" : "false";
    }
  }
  if (given.values.empty()) {
    faults.push_back(fmt::format("{}: needs a value {}", given.typed, given.entry->value_name));
    return;
  }
  if (kind != ValueKind::List) {
    for (size_t i = 1; i < given.values.size(); ++i) faults.push_back(junk(given.values[i]));
    given.values.resize(1);
  }
}

// Boost stops at "--x=" and takes "--" for the end of options; both are faults here.
std::vector<std::string> without_malformed(const std::vector<std::string>& args, std::vector<std::string>& faults) {
  std::vector<std::string> kept;
  for (const std::string& arg : args) {
    if (arg == "--") {
      faults.push_back("--: not an option");
    } else if (arg.starts_with("--") && arg.ends_with("=")) {
      faults.push_back(fmt::format("{}: needs a value after '='", arg));
    } else if (arg.starts_with("--=") || (arg.starts_with("-") && !arg.starts_with("--") && !parse_real(arg))) {
      faults.push_back(fmt::format("{}: options have two dashes and a name", arg));
    } else {
      kept.push_back(arg);
    }
  }
  return kept;
}

}  // namespace

void read_command_line(const std::vector<std::string>& args, const NameIndex& index, std::vector<Given>& given,
                       std::vector<std::string>& faults) {
  const std::vector<std::string> kept = without_malformed(args, faults);
  const po::options_description description = boost_options(index);
  using Style = po::command_line_style::style_t;
  const int style = Style::allow_long | Style::long_allow_adjacent | Style::long_allow_next;
  const auto parsed = po::command_line_parser(kept).options(description).style(style).allow_unregistered().run();
  bool after_unknown = false;
  for (const po::option& option : parsed.options) {
    if (option.string_key.empty()) {
      // The values of an unknown option are not faults of their own.
      if (!after_unknown) {
        for (const std::string& word : option.value) faults.push_back(junk(word));
      }
      continue;
    }
    const NameIndex::Match match = index.find(option.string_key);
    after_unknown = match.entry == nullptr;
    if (after_unknown) {
      faults.push_back(index.unknown(option.string_key));
      continue;
    }
    Given one{match.entry, "--" + option.string_key, option.value, Origin::CommandLine, "command line"};
    check_values(one, match.sense, faults);
    if (!one.values.empty()) given.push_back(std::move(one));
  }
}

}  // namespace triax::io
