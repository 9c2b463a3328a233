// The directories of --save and --load: what is there, and whether anything can be kept.
#pragma once

#include <string>

#include "io/run_options.h"

namespace triax::train {

/// Path of the weights file that --load asks for. Empty: fresh weights. Throws ConfigError when there is none, or when
/// --load equals --save (which would ask to go on with optimizer state).
std::string weights_to_load(const io::RunControl& control);

/// Makes --save and writes a probe there, so that a run does not find out at its end that nothing can be kept; throws
/// ConfigError. For one rank.
void check_writable(const std::string& save);

}  // namespace triax::train
