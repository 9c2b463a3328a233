// The memory executor: what a step of one rank allocates, learned by running the trainer's own code on a device that
// computes nothing, with groups that move nothing, over memory that is only reserved. So it holds for any model and
// layout, in one process, and equals the arena's high-water mark of the real run byte for byte.
#pragma once

#include <string>

#include "base/memory.h"
#include "io/run_options.h"

namespace triax::train {

struct MemoryForecast {
  MemoryLedger ledger;  ///< live: after the step; peak: high-water mark, by category and in all
  int peak_op = -1;     ///< index in the program of the op that reached the peak; -1: the peak stood before the step
  std::string peak_op_text;        ///< "F chunk 0 micro-batch 3"
  int64_t parameters = 0;          ///< elements of the rank's tensors, vocabulary padding included
  int64_t vocabulary_padding = 0;  ///< of those, in rows that no token has
  int64_t alignment = 0;           ///< elements of the flat arrays that belong to no tensor
};

/// Rank `world_rank` of a run with these resolved options (io::resolve): construction and one training step. Dropout,
/// loss masks and skipped steps change nothing. With --async-save also its staging, whether or not --save says where.
MemoryForecast forecast_memory(const io::RunOptions& options, int world_rank);

}  // namespace triax::train
