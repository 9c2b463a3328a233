// --help, docs/from-megatron.md and resolved.cfg, all from the table.
#include <fmt/format.h>

#include <sstream>

#include "io/options/options.h"
#include "io/options/values.h"

namespace triax::io {
namespace {

std::string default_of(const OptionEntry& entry) {
  if (!entry.get) return {};
  const std::string value = join(entry.get(RunOptions{}));
  return value.empty() || value == "false" || value == "none" ? std::string() : fmt::format(" [{}]", value);
}

void append_wrapped(std::string& text, const std::string& words, size_t indent) {
  constexpr size_t kWidth = 110;
  size_t column = indent;
  for (const std::string& word : split_blanks(words)) {
    if (column > indent && column + word.size() + 1 > kWidth) {
      text += '\n';
      text.append(indent, ' ');
      column = indent;
    } else if (column > indent) {
      text += ' ';
      ++column;
    }
    text += word;
    column += word.size();
  }
  text += '\n';
}

void append_help(std::string& text, const OptionEntry& entry) {
  constexpr size_t kIndent = 46;
  const std::string head = fmt::format("  --{} {}", entry.name, entry.value_name);
  text += head.size() + 2 <= kIndent ? fmt::format("{:<{}}", head, kIndent) : head + "\n" + std::string(kIndent, ' ');
  append_wrapped(text, entry.help + default_of(entry), kIndent);
}

std::string names_with(OptionStatus status) {
  std::string names;
  for (const OptionEntry& entry : option_table()) {
    if (entry.status == status) names += fmt::format("--{} ", entry.name);
  }
  return names;
}

// '|' separates cells in Markdown.
std::string cell(const std::string& text) {
  std::string escaped;
  for (const char c : text) escaped += c == '|' ? std::string("\\|") : std::string(1, c);
  return escaped;
}

std::string what(const OptionEntry& entry) {
  switch (entry.status) {
    case OptionStatus::Honoured:
      return entry.help + default_of(entry);
    case OptionStatus::Renamed:
      return "use `--" + entry.reason + "`";
    case OptionStatus::Inert:
      break;
    case OptionStatus::Refused:
      break;
  }
  std::string allowed;
  for (const std::string& value : entry.allowed) allowed += (allowed.empty() ? "" : ", ") + value;
  return entry.reason + (allowed.empty() ? "" : " (accepted: " + allowed + ")");
}

void append_section(std::string& text, OptionStatus status, const char* title, const char* introduction) {
  text +=
      fmt::format("\n## {}\n\n{}\n\n| option | DeepSpeed | torchtitan | |\n|---|---|---|---|\n", title, introduction);
  for (const OptionGroup group : kOptionGroups) {
    for (const OptionEntry& entry : option_table()) {
      if (entry.status != status || entry.group != group) continue;
      text += fmt::format("| `--{}{}{}` | {} | {} | {} |\n", entry.name, entry.value_name.empty() ? "" : " ",
                          cell(entry.value_name), cell(entry.deepspeed), cell(entry.torchtitan), cell(what(entry)));
    }
  }
}

std::vector<std::pair<std::string, std::string>> values_of(const RunOptions& options, OptionGroup group) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const OptionEntry& entry : option_table()) {
    if (!entry.get || entry.group != group) continue;
    if (entry.name == "run-dir") continue;  // taken by the run that wrote the file; a repeat gets its own
    const std::vector<std::string> values = entry.get(options);
    if (!values.empty()) all.emplace_back(entry.name, join(values));
  }
  return all;
}

}  // namespace

std::string help_text(const std::string& usage, const std::vector<OptionEntry>& extra) {
  std::string text = usage + "\n";
  if (!extra.empty()) text += "\nOptions of this command\n";
  for (const OptionEntry& entry : extra) append_help(text, entry);
  for (const OptionGroup group : kOptionGroups) {
    text += fmt::format("\n{}\n", name_of(group));
    for (const OptionEntry& entry : option_table()) {
      if (entry.status == OptionStatus::Honoured && entry.group == group) append_help(text, entry);
    }
  }
  text +=
      "\nEvery switch also takes --no-NAME and =true or =false. Accepted without effect (see docs/from-megatron.md):\n "
      " ";
  append_wrapped(text, names_with(OptionStatus::Inert), 2);
  return text;
}

std::string markdown_table() {
  std::string text =
      "# From Megatron-LM, DeepSpeed and torchtitan\n\nThis page is written by `triax options --markdown` from the "
      "table "
      "that also drives the parser; a test compares the two.\nOptions carry Megatron-LM's names, so a script's "
      "arguments "
      "paste in. Defaults stand in brackets. Every switch also takes\n`--no-NAME` and `=true|false`; the last "
      "occurrence "
      "wins; `--config FILE.cfg` reads `name = value` lines, which the command\nline overrides.\n";
  append_section(text, OptionStatus::Honoured, "Honoured", "These do what they do in Megatron-LM, or are Triax's own.");
  append_section(text, OptionStatus::Inert, "Accepted without effect",
                 "These change neither the result nor what is measured; a run lists those it was given in one line.");
  append_section(text, OptionStatus::Refused, "Refused",
                 "These would change the result or the measurement, and this version cannot do them.");
  append_section(text, OptionStatus::Renamed, "Old names", "A run that uses one stops and names the new one.");
  return text;
}

std::string resolved_cfg(const RunOptions& options) {
  std::string text = "# Repeats the run: triax train --config resolved.cfg\n";
  for (const OptionGroup group : kOptionGroups) {
    text += fmt::format("\n# {}\n", name_of(group));
    for (const auto& [name, value] : values_of(options, group)) text += fmt::format("{} = {}\n", name, value);
  }
  return text;
}

std::vector<std::pair<std::string, std::string>> option_values(const RunOptions& options) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const OptionGroup group : kOptionGroups) {
    for (auto& one : values_of(options, group)) all.push_back(std::move(one));
  }
  return all;
}

std::map<std::string, std::string> values_in(const std::string& cfg) {
  std::map<std::string, std::string> values;
  std::istringstream text(cfg);
  for (std::string line; std::getline(text, line);) {
    const size_t equals = line.find(" = ");
    if (line.empty() || line[0] == '#' || equals == std::string::npos) continue;
    values[line.substr(0, equals)] = line.substr(equals + 3);
  }
  return values;
}

}  // namespace triax::io
