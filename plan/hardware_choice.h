// The machine that --hw names: a preset or a hw.json.
#pragma once

#include <string>
#include <string_view>

#include "bench/hardware.h"

namespace triax::plan {

/// A name of --list-hw, else a file as `triax bench all` writes it (what has a '/' or ends in ".json"). Throws
/// ConfigError for an unknown name (with the nearest one) and for a file that cannot be read or is none, which begins
/// with `asked_by`.
bench::Hardware hardware_of(const std::string& name_or_file, std::string_view asked_by = "--hw ");

}  // namespace triax::plan
