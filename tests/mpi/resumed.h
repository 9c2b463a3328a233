// A run that goes on from its checkpoint against one that was not stopped.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/mpi/parity.h"
#include "train/checkpointing.h"

namespace triax::test {

/// Two steps, a checkpoint, `steps` more; then a new run from the checkpoint makes these again: the same losses and
/// norms to the bit. look(run, line): at the end of it, with what the load said.
template <class Look>
void expect_bits_of_the_run_that_goes_on(comm::MpiSession& session, io::RunOptions options, int steps, Look look) {
  const std::string directory =
      (std::filesystem::temp_directory_path() / fmt::format("triax-resumed-{}", ::getppid())).string();
  options.control.save = options.control.load = directory;
  const io::WeightsHeader tokenizer;
  Trajectory whole;
  {
    TinyRun run(session, options);
    train::Checkpointing checkpointing(run.options(), tokenizer, run.trainer(), run.grid(), run.device(), run.arena());
    checkpointing.prepare();
    checkpointing.load_or_initialize();
    trajectory_of(run, 2);
    checkpointing.save({}, "end");
    whole = trajectory_of(run, steps);
  }
  {
    TinyRun run(session, options);
    train::Checkpointing checkpointing(run.options(), tokenizer, run.trainer(), run.grid(), run.device(), run.arena());
    const std::string loaded = checkpointing.load_or_initialize();
    for (int step = 0; step < 2; ++step) run.next_batches();
    const Trajectory rest = trajectory_of(run, steps);
    EXPECT_EQ(rest.loss, whole.loss);
    EXPECT_EQ(rest.norm, whole.norm);
    look(run, loaded);
    run.grid().world().barrier();
  }
  if (session.rank() == 0) std::filesystem::remove_all(directory);
}

}  // namespace triax::test
