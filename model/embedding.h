// Word and learned position embedding with dropout: the first virtual stage's input.
#pragma once

#include "model/parameters.h"
#include "parallel/vocab_embedding.h"

namespace triax::model {

class Embedding {
 public:
  struct State {
    Buffer doutput;  ///< [T', h], backward_input to backward_weight
  };

  Embedding(const ModelConfig& model, const parallel::LayerContext& context, parallel::ParameterStore& store,
            const std::string& name);

  /// Word rows (summed over tp) + position rows, dropout: [T', h].
  Buffer forward(const parallel::MicroBatch& batch, parallel::Mode mode) const;
  void backward_input(State& state, const parallel::MicroBatch& batch, Buffer dy) const;
  void backward_weight(State& state, const parallel::MicroBatch& batch) const;
  /// Index of the word embedding in the store (a tied head on the same stage uses it).
  size_t word() const { return word_; }

 private:
  const ModelConfig* model_;
  const parallel::LayerContext* c_;
  parallel::ParameterStore* store_;
  parallel::VocabParallelEmbedding vocab_;
  size_t word_, position_ = 0;
};

}  // namespace triax::model
