// How fast checkpoints are written and read: what a save costs, and so how often one pays.
#pragma once

#include <cstdint>
#include <string>

#include "comm/communicator.h"

namespace triax::bench {

/// Of all ranks together.
struct CheckpointIo {
  int64_t bytes = 0;   ///< of tensor values
  double write_s = 0;  ///< shards written, flushed, synchronised, read back for verification; index and rename
  double read_s = 0;   ///< every rank its own part, right after writing: from the page cache where that holds it
  double write_per_s() const { return static_cast<double>(bytes) / write_s; }
  double read_per_s() const { return static_cast<double>(bytes) / read_s; }
};

/// Saves and loads a step of `bytes_per_rank` of fp32 on each rank as training does, in a new directory below
/// `directory`, which is removed again. Medians of `repeats`. Collective over `all`. RunTimeError where the directory
/// cannot be written or has too little room.
CheckpointIo measure_checkpoint_io(comm::Communicator& all, const std::string& directory, int64_t bytes_per_rank,
                                   int repeats);

}  // namespace triax::bench
