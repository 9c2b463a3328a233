// What a checkpoint says about itself: attributes of the root group of its index.
#pragma once

#include <cstdint>
#include <string>

#include "io/weights/header.h"

namespace triax::io {

/// All that a run keeps besides tensors; the same on all ranks. Random numbers are a function of seed and step.
struct TrainingState {
  int64_t updates = 0;           ///< steps that changed the weights: Adam's exponent
  int64_t schedule_samples = 0;  ///< samples of these updates: the argument of the learning rate
  int64_t consumed_valid_samples = 0;
  int64_t evaluated_at = -1;  ///< iteration of the last evaluation
  double learning_rate = 0;   ///< of the last step, for the reader
  double loss_scale = 1;
  int64_t good_steps = 0, hysteresis_left = 1, consecutive_skips = 0;  ///< of the loss scaler
  bool operator==(const TrainingState&) const = default;
};

struct CheckpointHeader {
  WeightsHeader weights;
  TrainingState training;
  std::string layout;  ///< that wrote it: "tp2-pp2-dp2"
  int64_t zero_stage = 0;
  std::string options;  ///< resolved.cfg of the run that wrote it
  std::string program;  ///< version and commit
};

inline constexpr const char* kCheckpointFormat = "triax-checkpoint";
inline constexpr int64_t kCheckpointVersion = 1;

void write_checkpoint_header(hid_t file, const CheckpointHeader& header);
/// Also reads a weights file (format triax-weights): its state is that of an untrained run. Throws RunTimeError for
/// another format, a newer version, or a missing attribute (by name).
CheckpointHeader read_checkpoint_header(hid_t file, const std::string& path);

}  // namespace triax::io
