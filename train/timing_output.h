// What a run shows of its last step's pipeline: the report on stdout, a trace for Perfetto and a picture in the run
// directory.
#pragma once

#include <string>

#include "train/trainer.h"

namespace triax::train {

/// Times of the trainer's last training step. Collective over each pipeline; returns the report and writes
/// `directory`/trace/{measured,virtual}-<iteration>.json and .svg on the rank where `writes`, "" elsewhere.
enum class WritesTiming { No, Yes };
std::string output_timing(Trainer& trainer, const std::string& directory, WritesTiming writes);

}  // namespace triax::train
