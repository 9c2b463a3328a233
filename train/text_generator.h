// Generates text with a trained model on tp x pp ranks: the whole context goes through the model for every new token.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/mpi_session.h"
#include "io/checkpoint/reader.h"
#include "io/tokenizer/tokenizer.h"
#include "train/batch_upload.h"
#include "train/trainer.h"

namespace triax::train {

struct SamplingOptions {
  double temperature = 1;  ///< logits are divided by it; 0: always the most likely token
  int64_t top_k = 0;       ///< only the k most likely tokens; 0: all
  double top_p = 1;  ///< of these, the fewest whose probabilities sum to p or more (Holtzman 2020, arXiv 1904.09751)
  uint64_t seed = 1234;
};

/// Token drawn from softmax(logits / temperature) cut by top_k and top_p, with the uniform of (seed, index). Ties go to
/// the lower id. Pure: equal logits give equal tokens on every rank.
int32_t sample_token(std::span<const float> logits, const SamplingOptions& options, uint64_t index);

/// Options of a forward-only run of the model in `file` on tp x pp ranks, with contexts of up to `context` tokens.
io::RunOptions generation_options(const io::WeightsHeader& file, int tensor, int pipeline, int64_t context);

class TextGenerator {
 public:
  /// Collective. `options` from generation_options, resolved; dp must be 1. Every rank reads its part of the weights.
  TextGenerator(comm::ProcessGrid& grid, kernels::Device& device, Arena& arena, const io::RunOptions& options,
                io::CheckpointReader& weights);
  /// Appends up to `count` tokens to `tokens` (not empty), the same on all ranks; stops after `stop` (-1: never). A
  /// context longer than the model's keeps its last tokens. Collective.
  void generate(std::vector<int32_t>& tokens, int64_t count, const SamplingOptions& sampling, int32_t stop);

 private:
  int32_t next_token(std::span<const int32_t> context, const SamplingOptions& sampling, uint64_t index);
  void fill_batch(std::span<const int32_t> context);

  comm::ProcessGrid* grid_;
  kernels::Device* device_;
  Arena* arena_;
  io::RunOptions options_;
  Trainer trainer_;
  std::unique_ptr<model::ChunkState> state_;
  io::MicroBatch batch_;
  std::vector<float> logits_;
  Buffer loss_buffer_;
  BatchUpload upload_;
};

}  // namespace triax::train
