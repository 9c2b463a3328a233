// Times of a run's ops on a machine: layer by layer from kernels and collectives, summed into the cost table that the
// simulator and the virtual clock read. The one place where a model, a layout and a machine become seconds.
#pragma once

#include <vector>

#include "bench/hardware.h"
#include "io/run_options.h"
#include "parallel/cost_table.h"
#include "parallel/schedule.h"

namespace triax::plan {

/// Where the time of an op goes. Exposed communication is what is left after the overlap that the options ask for.
struct OpParts {
  double gemm_s = 0, attention_s = 0, elementwise_s = 0, launch_s = 0;
  double tensor_s = 0;  ///< exposed collectives of the tp group
  double gather_s = 0;  ///< exposed gathers of ZeRO 3 weights
  double total() const { return gemm_s + attention_s + elementwise_s + launch_s + tensor_s + gather_s; }
};

struct StageParts {
  OpParts forward, backward_input, backward_weight, recompute;  ///< of one micro-batch
};

struct Costs {
  parallel::CostTable table;
  std::vector<StageParts> stages;  ///< [position * chunks + chunk]; their totals are the table's entries
};

/// Costs of a run with resolved options (io::resolve) on the machine, under this program ("triax" of plan/software.h).
/// Throws ConfigError where the machine's description lacks what the run needs (a dtype without a peak, links). Where
/// the program has no Recompute ops, what is recomputed is part of the table's backward_input.
Costs costs_of(const io::RunOptions& options, const bench::Hardware& hardware);
/// The same with the program's options (train::program_options) at hand.
Costs costs_of(const io::RunOptions& options, const bench::Hardware& hardware, const parallel::ProgramOptions& program);

}  // namespace triax::plan
