// The part of a transformer that one pipeline position holds: for each chunk some layers, with the embedding on the
// first virtual stage and final norm, head and loss on the last.
#pragma once

#include <memory>
#include <vector>

#include "model/config.h"
#include "parallel/layer_context.h"
#include "parallel/layout.h"
#include "parallel/parameter.h"

namespace triax::model {

struct StageOptions {
  ModelConfig model;
  parallel::LayerMap layers;
  parallel::Recompute recompute;
  int position = 0;  ///< pipeline position of this rank
};

/// Activations of one micro-batch in one chunk, from its forward to its weight gradient. Reused for later
/// micro-batches.
class ChunkState;

/// One model chunk (virtual stage).
class Chunk {
 public:
  Chunk(const StageOptions& options, int chunk, const parallel::LayerContext& context, parallel::ParameterStore& store);
  ~Chunk();
  Chunk(const Chunk&) = delete;
  Chunk& operator=(const Chunk&) = delete;

  bool first() const;  ///< holds the embedding
  bool last() const;   ///< holds final norm, head and loss
  std::unique_ptr<ChunkState> make_state() const;
  /// The units it runs in each of its ops. context.units is told the same at run time.
  parallel::ChunkWalk walk() const;

  /// input: [T', h] with T' = local_tokens(), empty on the first virtual stage. Returns [T', h]; empty on the last,
  /// where loss_sum[1] (fp64, host-readable after synchronize) += sum over tokens of mask * loss, the same on all tp
  /// ranks. The micro-batch's tensors must stay until backward_weight.
  Buffer forward(ChunkState& state, const parallel::MicroBatch& batch, Buffer input, parallel::Mode mode,
                 Tensor loss_sum);
  /// doutput: [T', h], empty on the last virtual stage (its seed is step->loss_scale / T). Returns the gradient of the
  /// input, empty on the first. Gradients of weights accumulate now or at backward_weight.
  Buffer backward_input(ChunkState& state, Buffer doutput, parallel::WeightGradient when);
  void backward_weight(ChunkState& state);
  /// Last virtual stage, Evaluate: logits of row `row` of [s, b], whole vocabulary (true ids only), gathered over tp.
  /// values: host fp32 [vocab_size].
  void forward_logits(ChunkState& state, const parallel::MicroBatch& batch, Buffer input, int64_t row, Tensor values);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class ChunkState {
 public:
  ChunkState();
  ~ChunkState();
  struct Data;
  std::unique_ptr<Data> data;
};

/// All chunks of one pipeline position over one parameter store. Construct, then store.allocate(), then run.
std::vector<std::unique_ptr<Chunk>> make_chunks(const StageOptions& options, const parallel::LayerContext& context,
                                                parallel::ParameterStore& store);

}  // namespace triax::model
