// Makers of the options that one subcommand has beside the table's: they write into the command's own request.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "io/options/options.h"
#include "io/options/values.h"

namespace triax::apps {

enum class Format { Table, Json, Csv };

/// Two lines of --help for each.
inline std::string help_lines(const std::vector<io::OptionEntry>& entries) {
  std::string text;
  for (const io::OptionEntry& entry : entries) {
    text += fmt::format("  --{} {}\n        {}\n", entry.name, entry.value_name, entry.help);
  }
  return text;
}

/// `take` returns a fault ("must be ..."), empty when the value is fine.
inline io::OptionEntry text_entry(std::string name, std::string value_name, std::string help,
                                  std::function<std::string(const std::string&)> take) {
  io::OptionEntry entry{.name = std::move(name), .value_name = std::move(value_name), .help = std::move(help)};
  entry.set = [take](io::RunOptions&, const std::vector<std::string>& values) { return take(values[0]); };
  return entry;
}

inline io::OptionEntry count_entry(std::string name, std::string help, int64_t least, int64_t& field) {
  return text_entry(std::move(name), "N", std::move(help), [&field, least](const std::string& text) -> std::string {
    const std::optional<int64_t> value = io::parse_integer(text);
    if (!value || *value < least || *value > 1'000'000) {
      return fmt::format("must be a whole number from {} to 1000000", least);
    }
    field = *value;
    return {};
  });
}

inline io::OptionEntry switch_entry(std::string name, std::string help, bool& field) {
  io::OptionEntry entry =
      text_entry(std::move(name), "", std::move(help), [&field](const std::string& text) -> std::string {
        field = text == "true";
        return {};
      });
  entry.kind = io::ValueKind::Switch;
  return entry;
}

inline io::OptionEntry path_entry(std::string name, std::string help, std::string& field) {
  return text_entry(std::move(name), "FILE", std::move(help), [&field](const std::string& text) -> std::string {
    field = text;
    return {};
  });
}

inline io::OptionEntry format_entry(Format& field) {
  return text_entry("format", "table|json|csv", "form of the result", [&field](const std::string& text) -> std::string {
    if (text != "table" && text != "json" && text != "csv") return "must be table, json or csv";
    field = text == "table" ? Format::Table : text == "json" ? Format::Json : Format::Csv;
    return {};
  });
}

}  // namespace triax::apps
