// How many messages a pipeline position must be able to have under way at once.
#pragma once

#include <string>

#include "parallel/program.h"
#include "train/executor.h"

namespace triax::train {

/// The fewest staging buffers per position and direction, at least two, with which the program runs to its end when a
/// message leaves its buffer only once the receiver has posted the receive (rendezvous). Two do for every schedule
/// whose stages send no further ahead than their peers receive; interleaved groups of G > p micro-batches need up to G
/// - p + 1. The same on all ranks. 0 when no number is enough (a program that the checker rejects).
int staging_buffers(const parallel::Program& program, ReceiveAhead ahead);

/// What of a program a pipeline of GPUs cannot carry, whose messages go to neighbours on the ring and arrive,
/// activations and gradients apart, in the order in which they are sent (comm/device_groups.h): the first such message;
/// "" when there is none.
std::string lane_fault(const parallel::Program& program);
/// Throws ConfigError when there is one; `device` as --device names it.
void check_lanes(const parallel::Program& program, const std::string& device);

}  // namespace triax::train
