// The micro-batches of each step for one rank: with tokens where the pipeline position needs them, else only where the
// tokens stand (sample ids and positions, which key rotary angles and dropout on every stage).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "io/data/batch_loader.h"
#include "parallel/layer_context.h"

namespace triax::train {

class BatchSource {
 public:
  /// dataset: null on positions that hold neither the embedding nor the head.
  BatchSource(const io::TokenDataset* dataset, const io::LoaderConfig& config, int64_t consumed_samples);
  /// The m micro-batches of the next step, valid until the next call.
  std::span<const io::MicroBatch> next_step();
  /// Seconds that the last next_step() waited for data.
  double wait_s() const;
  /// Samples of the whole job so far.
  int64_t consumed_samples() const { return consumed_; }

 private:
  void fill_positions();
  io::LoaderConfig config_;
  int64_t consumed_;
  std::unique_ptr<io::BatchLoader> loader_;
  std::vector<io::MicroBatch> positions_;
};

/// Views of a micro-batch in host memory; it must outlive them.
parallel::MicroBatch view_of(const io::MicroBatch& batch);

/// Tokens that count in the loss.
double counted_tokens(const io::MicroBatch& batch);

}  // namespace triax::train
