// What data parallelism will send, from the program and the shard plan alone: said before a run, equal to the ledger
// after.
#pragma once

#include <string>

#include "parallel/program.h"
#include "parallel/shard_plan.h"
#include "train/trainer.h"

namespace triax::train {

/// Bytes that one rank of a pipeline position sends over dp in a step: n ranks send (n-1)/n of a block in a
/// reduce-scatter or all-gather, twice that in an all-reduce.
struct DataTraffic {
  double gradients = 0, weights = 0;
  double total() const { return gradients + weights; }
};

/// Widths in bytes.
struct TrafficWidths {
  int64_t gradient = 4, weight = 4;
  int64_t code_block = 0;  ///< gathered weights travel as int8 with a scale per that many elements; 0: as they are
};
/// Without compression of gradients.
DataTraffic data_traffic(const parallel::Program& program, const parallel::ShardPlan& plan, int position,
                         const TrafficWidths& widths);

/// "ZeRO 3 over 8 dp ranks: a rank sends 1.23 MB of gradients and 4.56 MB of weights per step ...": stage, sharding,
/// what accumulation costs (stages 2 and 3 pay in each of the m micro-batches) and what to do about it. Of this rank.
std::string describe_data_parallelism(const Trainer& trainer, const io::RunOptions& options, int position);

}  // namespace triax::train
