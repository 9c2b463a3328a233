// What a training step costs beside its kernels and its communication: the trainer itself, on a device that computes
// nothing.
#pragma once

#include <map>
#include <string>

#include "bench/hardware.h"

namespace triax::bench {

/// Seconds, from least squares over steps of 1 and 6 layers and 1 and 8 micro-batches on one rank (whatever the MPI
/// world): "trainer_step_s" once a step, "trainer_micro_batch_s" for each micro-batch of a stage, forward and backward,
/// "trainer_layer_s" for each of its layers.
std::map<std::string, Constant> trainer_costs();

}  // namespace triax::bench
