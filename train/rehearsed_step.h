// One step of one rank of a job that does not run: the trainer's own code with groups that move nothing. Simulated, it
// computes nothing and takes no memory, so any width will do; executed, it computes on the CPU, with peers that echo.
#pragma once

#include <cstdint>

#include "base/memory.h"
#include "comm/process_grid.h"
#include "io/run_options.h"
#include "train/communication_table.h"

namespace triax::train {

enum class Rehearsal { Simulated, Executed };

struct RehearsedStep {
  uint64_t program = 0;                ///< its hash
  StepCommunication::Entries traffic;  ///< of this rank, by (group, operation)
  MemoryLedger memory;
  int64_t alignment = 0;  ///< elements of the flat arrays that belong to no tensor
  double elapsed_s = 0;   ///< of the step alone
};

/// Options must be resolved (io::resolve). Throws what a step throws.
RehearsedStep rehearse_step(const io::RunOptions& options, comm::PhantomRank rank, Rehearsal how);

}  // namespace triax::train
