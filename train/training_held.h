// What a training run holds for its whole life, in the order of making.
#pragma once

#include "train/program_builder.h"
#include "train/run_device.h"
#include "train/same_options.h"
#include "train/training_run.h"

namespace triax::train {

struct TrainingRun::Held {
  Held(comm::MpiSession& session, const io::RunOptions& options, FlightRecorder* flight)
      : device(session, options.control.device, threads_of(options, session.local_size()), gemm_search(options)),
        grid(session, recorded(grid_options(options), flight), device.groups()),
        arena(device.memory(options, checked(grid, options))),
        trainer(grid, device.get(), arena, options, options.control.skip_train ? Use::Evaluate : Use::Train) {}
  RunDevice device;
  comm::ProcessGrid grid;
  Arena arena;
  Trainer trainer;

 private:
  /// Before anything is made whose size follows from the options.
  static comm::ProcessGrid& checked(comm::ProcessGrid& grid, const io::RunOptions& options) {
    check_same_options(options, grid.world());
    return grid;
  }
  static comm::GridOptions recorded(comm::GridOptions grid, FlightRecorder* flight) {
    grid.flight = flight;
    return grid;
  }
};

}  // namespace triax::train
