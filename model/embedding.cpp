#include "model/embedding.h"

#include "model/self_attention.h"
#include "model/transformer_layer.h"

namespace triax::model {

Embedding::Embedding(const ModelConfig& model, const parallel::LayerContext& context, parallel::ParameterStore& store,
                     const std::string& name)
    : model_(&model),
      c_(&context),
      store_(&store),
      vocab_(context, parallel::vocab_range(model.vocab_size, model.padded_vocab_size(context.t()),
                                            context.tensor->rank(), context.t())) {
  const ParameterFactory make(model, context);
  word_ = store.add({make.vocab_matrix(name)});
  if (model.position == PositionType::Learned) {
    position_ = store.add(
        {make.replicated_matrix("model.embed_positions.weight", model.max_position_embeddings, model.hidden_size)});
  }
}

Buffer Embedding::forward(const parallel::MicroBatch& batch, parallel::Mode mode) const {
  Buffer out = vocab_.forward(store_->at(word_).weight, batch.token);
  const Tensor y = out.view(c_->dtype, {c_->local_tokens(), model_->hidden_size});  // [T', h]
  const kernels::TokenIndex index = local_index(*c_, batch);
  if (model_->position == PositionType::Learned) {
    c_->device->embedding_forward(index.position, store_->at(position_).weight, 0, kernels::Accumulate::Yes, y);
  }
  const kernels::Dropout dropout = dropout_at(*c_, model_->hidden_dropout, 0, DropoutPlace::Embedding, mode);
  if (dropout.p > 0) c_->device->bias_dropout_add_forward(y, {}, {}, dropout, index, y);
  return out;
}

void Embedding::backward_input(State& state, const parallel::MicroBatch& batch, Buffer dy) const {
  const Tensor dx = dy.view(c_->dtype, {c_->local_tokens(), model_->hidden_size});
  const kernels::Dropout dropout =
      dropout_at(*c_, model_->hidden_dropout, 0, DropoutPlace::Embedding, parallel::Mode::Train);
  if (dropout.p > 0) c_->device->bias_dropout_backward(dx, dropout, local_index(*c_, batch), dx, {});
  state.doutput = std::move(dy);
}

void Embedding::backward_weight(State& state, const parallel::MicroBatch& batch) const {
  const Tensor dy = state.doutput.view(c_->dtype, {c_->local_tokens(), model_->hidden_size});
  // The head that shares the table writes it first; should it not have, nothing is there to add to.
  const Tensor dword = store_->at(word_).grad;
  if (store_->accumulation(word_) == kernels::Accumulate::No) c_->device->fill(dword, 0);
  vocab_.backward_weight(batch.token, dy, dword);
  if (model_->position == PositionType::Learned) {
    c_->device->embedding_backward(local_index(*c_, batch).position, dy, 0, store_->at(position_).grad);
  }
  state.doutput.reset();
}

}  // namespace triax::model
