// Whether anything can be kept in the directory of --save.
#pragma once

#include <string>

namespace triax::train {

/// Makes --save and writes a probe there, so that a run does not find out at its end that nothing can be kept; throws
/// ConfigError. For one rank.
void check_writable(const std::string& save);

}  // namespace triax::train
