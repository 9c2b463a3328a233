// What the log says of a run before its first step: model, layout, program, precision, traffic.
#pragma once

#include <string>

#include "io/options/options.h"
#include "train/trainer.h"

namespace triax::train {

/// Info lines; called by one rank. `directory`: of the run.
void say_header(const io::ParsedOptions& parsed, const Trainer& trainer, const comm::ProcessGrid& grid,
                const std::string& directory);

}  // namespace triax::train
