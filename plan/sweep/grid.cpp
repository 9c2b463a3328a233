#include "plan/sweep/grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/split.h"

namespace triax::plan {
namespace {

/// With the empty part behind a separator at the end.
std::vector<std::string> split_all(const std::string& text, char separator) {
  std::vector<std::string> parts = split(text, separator);
  if (!text.empty() && text.back() == separator) parts.emplace_back();
  return parts;
}

std::string without_dashes(const std::string& name) { return name.starts_with("--") ? name.substr(2) : name; }

struct Sides {
  std::string names;
  std::vector<std::string> values;
};

Sides sides_of(const std::string& option, const std::string& text, const char* form) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos || equals + 1 == text.size()) {
    throw ConfigError(fmt::format("--{} {}: must be {}", option, text, form));
  }
  const std::string values = text.substr(equals + 1);
  const char separator = values.find(';') != std::string::npos ? ';' : ',';
  Sides sides{text.substr(0, equals), split_all(values, separator)};
  std::set<std::string> seen;
  for (const std::string& value : sides.values) {
    if (value.empty()) {
      throw ConfigError(fmt::format("--{} {}: an empty value; '-' leaves the option out", option, text));
    }
    if (!seen.insert(value).second) {
      throw ConfigError(
          fmt::format("--{} {}: the value {} stands there twice; --repeats N repeats points", option, text, value));
    }
  }
  return sides;
}

}  // namespace

SweepAxis parse_axis(const std::string& text) {
  const Sides sides = sides_of("grid", text, "OPTION=VALUE,VALUE,...");
  SweepAxis axis{{without_dashes(sides.names)}, {}};
  for (const std::string& value : sides.values) axis.values.push_back({value});
  return axis;
}

SweepAxis parse_zipped_axis(const std::string& text) {
  const Sides sides = sides_of("zip", text, "OPTION:OPTION=VALUE:VALUE,VALUE:VALUE,...");
  SweepAxis axis;
  for (const std::string& name : split_all(sides.names, ':')) axis.names.push_back(without_dashes(name));
  if (axis.names.size() < 2)
    throw ConfigError(fmt::format("--zip {}: needs two options or more, as A:B=1:2,3:4", text));
  for (const std::string& tuple : sides.values) {
    axis.values.push_back(split_all(tuple, ':'));
    if (axis.values.back().size() != axis.names.size()) {
      throw ConfigError(fmt::format("--zip {}: {} has {} values for {} options", text, tuple, axis.values.back().size(),
                                    axis.names.size()));
    }
  }
  return axis;
}

std::vector<std::vector<Setting>> combinations(const std::vector<SweepAxis>& axes) {
  std::set<std::string> seen;
  std::vector<std::vector<Setting>> all = {{}};
  for (const SweepAxis& axis : axes) {
    for (const std::string& name : axis.names) {
      if (!seen.insert(name).second) throw ConfigError(fmt::format("--{}: is on two axes of the sweep", name));
    }
    std::vector<std::vector<Setting>> more;
    for (const std::vector<Setting>& point : all) {
      for (const std::vector<std::string>& tuple : axis.values) {
        more.push_back(point);
        for (size_t i = 0; i < axis.names.size(); ++i) more.back().emplace_back(axis.names[i], tuple[i]);
      }
    }
    all = std::move(more);
  }
  return all;
}

}  // namespace triax::plan
