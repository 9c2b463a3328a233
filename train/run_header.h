// What the log and run.json say of a run before its first step: build, model, layout, program, precision, traffic.
#pragma once

#include <string>

#include "io/options/options.h"
#include "io/report/run_directory.h"
#include "train/trainer.h"

namespace triax::train {

/// Info lines; called by one rank. `directory`: of the run.
void say_header(const io::ParsedOptions& parsed, const Trainer& trainer, const comm::ProcessGrid& grid,
                const std::string& directory);

/// Version, build, job and program of a run; what else run.json records is left to the caller.
io::RunFacts run_facts(const Trainer& trainer);

}  // namespace triax::train
