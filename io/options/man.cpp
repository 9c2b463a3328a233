#include "io/options/man.h"

#include <fmt/format.h>

#include "io/options/options.h"
#include "io/options/values.h"

namespace triax::io {
namespace {

/// A minus is a hyphen to troff, and a line must not begin with a dot or an apostrophe.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '-' ? std::string("\\-") : c == '\\' ? std::string("\\e") : std::string(1, c);
  const bool special = !out.empty() && (out[0] == '.' || out[0] == '\'');
  return special ? fmt::format("\\&{}", out) : out;
}

std::string default_text(const OptionEntry& entry) {
  if (!entry.get) return {};
  const std::string value = join(entry.get(RunOptions{}));
  return value.empty() || value == "false" || value == "none" ? std::string() : fmt::format(" Default {}.", value);
}

/// "a|b|c" as "a b c"; empty where the value is no choice of words.
std::string choices(const OptionEntry& entry) {
  if (entry.value_name.find('|') == std::string::npos) return {};
  std::string words;
  std::string word;
  for (const char c : entry.value_name + "|") {
    if (c != '|') {
      word += c;
      continue;
    }
    // "csv:FILE", "NAME": words that stand for others.
    const size_t upper = word.find_first_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    word = word.substr(0, upper);
    if (!word.empty()) words += words.empty() ? word : fmt::format(" {}", word);
    word.clear();
  }
  return words;
}

}  // namespace

std::string manual_page(const std::string& version, const std::vector<CommandSummary>& commands) {
  std::string text = fmt::format(
      ".TH TRIAX 1 \"\" \"triax {}\" \"Triax\"\n.SH NAME\ntriax \\- train transformers over tensor, pipeline and data "
      "parallel ranks\n",
      version);
  text +=
      ".SH SYNOPSIS\n.B triax\n.I COMMAND\n[\\fIoptions\\fR]\n.br\n.B mpiexec \\-n\n.I RANKS\n.B triax "
      "train\n[\\fIoptions\\fR]\n.SH COMMANDS\n";
  for (const CommandSummary& command : commands) {
    text += fmt::format(".TP\n.B {}\n{}\n", roff(command.name), roff(command.summary));
  }
  text +=
      ".PP\n.B triax\n.I COMMAND\n.B \\-\\-help\nlists the options of a command.\n.SH OPTIONS OF TRIAX TRAIN\n"
      "Every switch also takes \\fB\\-\\-no\\-\\fINAME\\fR and \\fB=true\\fR or \\fB=false\\fR. The last occurrence "
      "wins.\n";
  for (const OptionGroup group : kOptionGroups) {
    text += fmt::format(".SS {}\n", name_of(group));
    for (const OptionEntry& entry : option_table()) {
      if (entry.status != OptionStatus::Honoured || entry.group != group) continue;
      text += fmt::format(".TP\n.BR \\-\\-{} \" {}\"\n{}\n", roff(entry.name), roff(entry.value_name),
                          roff(entry.help + "." + default_text(entry)));
    }
  }
  return text +
         ".SH EXIT STATUS\n.TP\n.B 0\ndone\n.TP\n.B 2\nusage or configuration\n.TP\n.B 3\ninfeasible\n.TP\n.B "
         "4\nvalidation failed\n"
         ".TP\n.B 5\nrun\\-time failure: a peer, a device, I/O\n.TP\n.B 75\nstopped before the last iteration with a "
         "checkpoint saved\n";
}

std::string bash_completion(const std::vector<CommandSummary>& commands) {
  std::string names, options, values, files;
  for (const CommandSummary& command : commands) names += fmt::format("{}{}", names.empty() ? "" : " ", command.name);
  for (const OptionEntry& entry : option_table()) {
    if (entry.status != OptionStatus::Honoured) continue;
    options += fmt::format("{}--{}", options.empty() ? "" : " ", entry.name);
    if (entry.kind == ValueKind::Switch) options += fmt::format(" --no-{}", entry.name);
    if (const std::string words = choices(entry); !words.empty()) {
      values += fmt::format("    --{}) words='{}' ;;\n", entry.name, words);
    } else if (entry.kind != ValueKind::Switch) {
      files += fmt::format("{}--{}", files.empty() ? "" : " | ", entry.name);
    }
  }
  return fmt::format(R"(# bash completion for triax, made by `triax options --completion bash`
_triax() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} words
  case ${{COMP_WORDS[COMP_CWORD - 1]}} in
    triax | */triax) words='{}' ;;
{}    {}) COMPREPLY=() && return ;;
    *) words='{}' ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}}
complete -o bashdefault -o default -F _triax triax
)",
                     names, values, files, options);
}

}  // namespace triax::io
