// Makers of table entries: each ties an option to a field of RunOptions, so that reading and writing cannot differ.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "io/options/options.h"
#include "io/options/values.h"

namespace triax::io {

/// Smallest legal value of an integer; a field below it was not given and is not written to resolved.cfg.
/// `most` is the largest: sums and products of dimensions (validate_size.cpp) must stay within 64 bits.
struct AtLeast {
  int64_t value;
  int64_t most = int64_t{1} << 62;
};
inline constexpr int64_t kMostLayers = 100'000;
inline constexpr int64_t kMostRanks = int64_t{1} << 20;        ///< of one grid axis
inline constexpr int64_t kMostWidth = (int64_t{1} << 31) - 1;  ///< widths, positions and token ids
inline constexpr int64_t kMostMicroBatch = int64_t{1} << 24;
inline constexpr int64_t kMostCount = int64_t{1} << 40;  ///< samples of a batch, iterations

/// Legal values of a number. A field outside was not given. Ends belong to the range unless `open`.
struct Range {
  double low, high;
  bool open_low = false, open_high = false;
  bool holds(double x) const { return (open_low ? x > low : x >= low) && (open_high ? x < high : x <= high); }
  std::string text() const;
};
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr Range kPositive{0, kInfinity, true, true};
inline constexpr Range kNotNegative{0, kInfinity, false, true};
inline constexpr Range kBelowOne{0, 1, false, true};

/// `field` is a generic lambda [](auto& options) -> auto& that names the field.
template <class Field>
OptionEntry integer_option(std::string name, OptionGroup group, AtLeast minimum, Field field, std::string help) {
  using T = std::remove_reference_t<decltype(field(std::declval<RunOptions&>()))>;
  OptionEntry entry{.name = std::move(name), .group = group, .value_name = "N", .help = std::move(help)};
  entry.set = [field, minimum](RunOptions& options, const std::vector<std::string>& values) -> std::string {
    const std::optional<int64_t> value = parse_integer(values[0]);
    if (!value) return "must be a whole number";
    const int64_t largest =
        sizeof(T) < 8 ? std::min<int64_t>(std::numeric_limits<int32_t>::max(), minimum.most) : minimum.most;
    if (*value < minimum.value) return fmt::format("must be at least {}", minimum.value);
    if (*value > largest) return fmt::format("must be at most {}", largest);
    field(options) = static_cast<T>(*value);
    return {};
  };
  entry.get = [field, minimum](const RunOptions& options) -> std::vector<std::string> {
    const auto value = static_cast<int64_t>(field(options));
    if (value < minimum.value) return {};
    return {std::to_string(value)};
  };
  return entry;
}

template <class Field>
OptionEntry real_option(std::string name, OptionGroup group, Range range, Field field, std::string help) {
  OptionEntry entry{.name = std::move(name), .group = group, .value_name = "X", .help = std::move(help)};
  entry.set = [field, range](RunOptions& options, const std::vector<std::string>& values) -> std::string {
    const std::optional<double> value = parse_real(values[0]);
    if (!value) return "must be a number";
    if (!range.holds(*value)) return "must be " + range.text();
    field(options) = *value;
    return {};
  };
  entry.get = [field, range](const RunOptions& options) -> std::vector<std::string> {
    if (!range.holds(field(options))) return {};
    return {text_of(field(options))};
  };
  return entry;
}

template <class Field>
OptionEntry switch_option(std::string name, OptionGroup group, Field field, std::string help) {
  OptionEntry entry{
      .name = std::move(name), .kind = ValueKind::Switch, .group = group, .value_name = "", .help = std::move(help)};
  entry.set = [field](RunOptions& options, const std::vector<std::string>& values) -> std::string {
    field(options) = values[0] == "true";
    return {};
  };
  entry.get = [field](const RunOptions& options) -> std::vector<std::string> {
    return {field(options) ? "true" : "false"};
  };
  return entry;
}

template <class Field>
OptionEntry text_option(std::string name, OptionGroup group, std::string value_name, Field field, std::string help) {
  OptionEntry entry{
      .name = std::move(name), .group = group, .value_name = std::move(value_name), .help = std::move(help)};
  entry.set = [field](RunOptions& options, const std::vector<std::string>& values) -> std::string {
    field(options) = values[0];
    return {};
  };
  entry.get = [field](const RunOptions& options) -> std::vector<std::string> {
    if (field(options).empty()) return {};
    return {field(options)};
  };
  return entry;
}

template <class Field>
OptionEntry list_option(std::string name, OptionGroup group, std::string value_name, Field field, std::string help) {
  OptionEntry entry{.name = std::move(name),
                    .kind = ValueKind::List,
                    .group = group,
                    .value_name = std::move(value_name),
                    .help = std::move(help)};
  entry.set = [field](RunOptions& options, const std::vector<std::string>& values) -> std::string {
    field(options) = values;
    return {};
  };
  entry.get = [field](const RunOptions& options) -> std::vector<std::string> { return field(options); };
  return entry;
}

/// One of some words, each standing for a value of an enum.
template <class Enum, class Field>
OptionEntry choice_option(std::string name, OptionGroup group, std::vector<std::pair<std::string, Enum>> choices,
                          Field field, std::string help) {
  OptionEntry entry{.name = std::move(name), .group = group, .value_name = "", .help = std::move(help)};
  for (const auto& [word, value] : choices) {
    if (!entry.value_name.empty()) entry.value_name += '|';
    entry.value_name += word;
  }
  const std::string words = entry.value_name;
  entry.set = [field, choices, words](RunOptions& options, const std::vector<std::string>& values) -> std::string {
    for (const auto& [word, value] : choices) {
      if (word == values[0]) {
        field(options) = value;
        return {};
      }
    }
    return "must be one of " + words;
  };
  entry.get = [field, choices](const RunOptions& options) -> std::vector<std::string> {
    for (const auto& [word, value] : choices) {
      if (value == field(options)) return {word};
    }
    return {};
  };
  return entry;
}

/// An option that the parser's derived rules read (derive.cpp) and that no field repeats.
OptionEntry derived_option(std::string name, ValueKind kind, OptionGroup group, std::string value_name,
                           std::string help);

inline OptionEntry other_names(OptionEntry entry, std::string deepspeed, std::string torchtitan) {
  entry.deepspeed = std::move(deepspeed);
  entry.torchtitan = std::move(torchtitan);
  return entry;
}
inline OptionEntry aliased(OptionEntry entry, std::vector<std::string> aliases) {
  entry.aliases = std::move(aliases);
  return entry;
}
inline OptionEntry with_disable(OptionEntry entry) {
  entry.has_disable = true;
  return entry;
}

/// The parts of the table.
std::vector<OptionEntry> model_entries();
std::vector<OptionEntry> parallel_entries();
std::vector<OptionEntry> zero_entries();
std::vector<OptionEntry> compression_entries();
std::vector<OptionEntry> batch_entries();
std::vector<OptionEntry> optimizer_entries();
std::vector<OptionEntry> precision_entries();
std::vector<OptionEntry> data_entries();
std::vector<OptionEntry> checkpoint_entries();
std::vector<OptionEntry> control_entries();
std::vector<OptionEntry> inert_entries();
std::vector<OptionEntry> refused_entries();
std::vector<OptionEntry> renamed_entries();

}  // namespace triax::io
