// --profile: traces of some steps of a real run, and on a GPU the bracket of a profiler's capture.
#pragma once

#include <string>

#include "io/run_options.h"
#include "kernels/device.h"
#include "train/trainer.h"

namespace triax::train {

/// Of the steps after iteration --profile-step-start up to --profile-step-end (Megatron's counting) writes into
/// RUN_DIR/trace/profile: step-S.json, a Chrome trace of rank 0's pipeline, by rank 0; and step-S/rank-R.json.gz, one
/// file per rank of --profile-ranks in the form that Holistic Trace Analysis loads. Times are those of the program's
/// ops: on a GPU of events on its compute stream, a wait for a message or a sum included in the op that waits.
class StepProfile {
 public:
  /// Does nothing without --profile. local_rank: number of the rank, and so of its GPU, on its node.
  StepProfile(const io::RunOptions& options, std::string directory, Trainer& trainer, kernels::Device& device,
              int world_rank, int local_rank);
  ~StepProfile();
  StepProfile(const StepProfile&) = delete;
  StepProfile& operator=(const StepProfile&) = delete;
  /// Before each step.
  void before_step();
  /// After each step; collective in those that are profiled. After the last of them a line that says what there is.
  std::string after_step();

 private:
  void write(int64_t step);
  const io::RunOptions* options_;
  std::string directory_;
  Trainer* trainer_;
  kernels::Device* device_;
  int world_rank_, local_rank_;
  bool mine_ = false;      ///< this rank is one of --profile-ranks
  bool captures_ = false;  ///< now
  bool can_capture_ = false;
  int64_t first_ = 0, last_ = -1;  ///< steps profiled so far
};

}  // namespace triax::train
