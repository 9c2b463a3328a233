#include "plan/hardware_choice.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "base/error.h"
#include "io/options/options.h"
#include "plan/hardware_presets.h"

namespace triax::plan {

bench::Hardware hardware_of(const std::string& name_or_file, std::string_view asked_by) {
  if (const bench::Hardware* preset = find_hardware(name_or_file)) return *preset;
  if (name_or_file.find('/') == std::string::npos && !name_or_file.ends_with(".json")) {
    const std::string nearest = io::nearest_name(name_or_file, hardware_names());
    throw ConfigError(fmt::format(
        "{}{}: no machine of that name; {}", asked_by, name_or_file,
        nearest.empty() ? "--list-hw lists them, a file ends in .json" : fmt::format("did you mean {}?", nearest)));
  }
  std::ifstream file(name_or_file);
  std::ostringstream text;
  if (!(text << file.rdbuf())) {
    throw ConfigError(fmt::format("{}{}: cannot be read; triax bench all writes such a file", asked_by, name_or_file));
  }
  return bench::hardware_from_json(text.str(), name_or_file);
}

}  // namespace triax::plan
