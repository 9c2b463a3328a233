// Final norm, vocabulary projection and loss: the last virtual stage's output.
#pragma once

#include <optional>

#include "model/norm.h"
#include "parallel/linear.h"
#include "parallel/vocab_embedding.h"

namespace triax::model {

class Head {
 public:
  struct State {
    Buffer input;  ///< [T', h]
    Norm::State norm;
    Buffer normed;  ///< [T', h]
    Buffer logits;  ///< [T, V/t]; their gradient after backward_input
    parallel::VocabParallelCrossEntropy::Saved loss;
    void clear();
  };

  /// word: parameter to use as projection (tied embedding on the same stage); otherwise the head declares its own,
  /// which is a second copy of the embedding when embeddings are tied.
  Head(const ModelConfig& model, const parallel::LayerContext& context, parallel::ParameterStore& store,
       std::optional<size_t> word);

  /// x [T', h]; loss_sum[1] += loss over this micro-batch's tokens.
  void forward(State& state, const parallel::MicroBatch& batch, Buffer x, Tensor loss_sum) const;
  /// Seed loss_scale / T per unmasked token. Returns dx [T', h].
  Buffer backward_input(State& state, const parallel::MicroBatch& batch, parallel::WeightGradient when) const;
  void backward_weight(State& state) const;
  /// values [V] fp32 = logits of row `row` of [s, b], gathered over tp.
  void row_logits(Buffer x, int64_t row, Tensor values) const;

 private:
  parallel::LinearWeights weights() const;
  const ModelConfig* model_;
  const parallel::LayerContext* c_;
  parallel::ParameterStore* store_;
  parallel::VocabRange range_;
  Norm norm_;
  parallel::ColumnParallelLinear projection_;
  parallel::VocabParallelCrossEntropy loss_;
  size_t weight_;
};

}  // namespace triax::model
