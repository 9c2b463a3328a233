// From resolved options to the grid and the program of the run. Collective where it says so.
#pragma once

#include "comm/process_grid.h"
#include "io/run_options.h"
#include "parallel/schedule.h"
#include "train/gradient_sync.h"

namespace triax::train {

/// Grid of resolved options. Injected delays are passed on; skip-sync parts of --inject are the trainer's.
comm::GridOptions grid_options(const io::RunOptions& options);

/// What the program is made of: layers, buckets and sums of every position, from the declarations of their parameters.
/// A pure function of resolved options, so that trainer, simulator and planner make the same program.
parallel::ProgramOptions program_options(const io::RunOptions& options);

/// How the flat arrays of pipeline position `position` are cut into blocks, likewise from the options alone.
parallel::ShardPlan shard_plan_of(const io::RunOptions& options, int position);

/// Ensures that all ranks hold a program of the same hash; throws RunTimeError naming the rank that differs. Collective
/// over world.
void check_same_program(const parallel::Program& program, comm::ProcessGrid& grid);

}  // namespace triax::train
