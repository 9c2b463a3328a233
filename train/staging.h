// How many messages a pipeline position must be able to have under way at once.
#pragma once

#include "parallel/program.h"
#include "train/executor.h"

namespace triax::train {

/// The fewest staging buffers per position and direction, at least two, with which the program runs to its end when a
/// message leaves its buffer only once the receiver has posted the receive (rendezvous). Two do for every schedule
/// whose stages send no further ahead than their peers receive; interleaved groups of G > p micro-batches need up to G
/// - p + 1. The same on all ranks. 0 when no number is enough (a program that the checker rejects).
int staging_buffers(const parallel::Program& program, ReceiveAhead ahead);

}  // namespace triax::train
