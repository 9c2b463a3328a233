// Machines of the published experiments and of the field by name (`--hw NAME`): datasheet and published figures,
// nothing measured here. Each constant names its source; what no publication gives is marked as assumed.
#pragma once

#include <string>
#include <vector>

#include "bench/hardware.h"

namespace triax::plan {

/// All presets in the order of --list-hw.
const std::vector<bench::Hardware>& hardware_presets();
/// The preset of that name or of one of its short names ("a100", "selene", "4090"); nullptr when there is none.
const bench::Hardware* find_hardware(const std::string& name);
/// Every name that find_hardware takes, short ones last.
std::vector<std::string> hardware_names();
/// One line per preset: name, device memory, bf16 (else fp16) peak, links from the innermost.
std::string list_hardware();

}  // namespace triax::plan
