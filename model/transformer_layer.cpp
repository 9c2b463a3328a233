#include "model/transformer_layer.h"

#include <fmt/format.h>

namespace triax::model {

using kernels::Accumulate;
using parallel::Mode;

namespace {
constexpr const char* kAttention = "attention";
constexpr const char* kMlp = "mlp";
}  // namespace

kernels::TokenIndex local_index(const parallel::LayerContext& c, const parallel::MicroBatch& batch) {
  return {batch.index.sample, batch.index.position.range(c.local_begin(), c.local_begin() + c.local_tokens())};
}

void TransformerLayer::State::clear() {
  input.reset();
  norm1.clear();
  attention.clear();
  middle.reset();
  norm2.clear();
  mlp.clear();
}

TransformerLayer::TransformerLayer(const ModelConfig& model, const parallel::LayerContext& context,
                                   parallel::ParameterStore& store, const RotaryTable& rotary, int64_t layer,
                                   parallel::RecomputeGranularity recompute)
    : model_(&model),
      c_(&context),
      layer_(layer),
      norm1_(model, context, store, fmt::format("model.layers.{}.input_layernorm", layer)),
      attention_(model, context, store, rotary, layer, fmt::format("model.layers.{}.self_attn", layer), recompute),
      norm2_(model, context, store, fmt::format("model.layers.{}.post_attention_layernorm", layer)),
      mlp_(model, context, store, layer) {}

Tensor TransformerLayer::hidden(const Buffer& buffer) const {
  return buffer.view(c_->dtype, {c_->local_tokens(), model_->hidden_size});
}

Buffer TransformerLayer::add_branch(Buffer branch, Tensor bias, Tensor residual, DropoutPlace place,
                                    const parallel::MicroBatch& batch, Mode mode) const {
  const Tensor x = hidden(branch);
  c_->device->bias_dropout_add_forward(x, bias, residual, dropout_at(*c_, model_->hidden_dropout, layer_, place, mode),
                                       local_index(*c_, batch), x);
  return branch;
}

Buffer TransformerLayer::branch_gradient(Tensor dy, Tensor dbias, DropoutPlace place,
                                         const parallel::MicroBatch& batch) const {
  Buffer out = c_->activation(c_->local_tokens(), model_->hidden_size);
  c_->device->bias_dropout_backward(dy, dropout_at(*c_, model_->hidden_dropout, layer_, place, Mode::Train),
                                    local_index(*c_, batch), hidden(out), dbias);
  return out;
}

Buffer TransformerLayer::forward(State& state, const parallel::MicroBatch& batch, Buffer x, Mode mode) const {
  state.input = std::move(x);
  c_->label(kAttention);
  Buffer branch = attention_.forward(state.attention, batch, norm1_.forward(state.norm1, hidden(state.input)), mode);
  state.middle = add_branch(std::move(branch), attention_.projection_bias(), hidden(state.input),
                            DropoutPlace::Projection, batch, mode);
  c_->label(kMlp);
  branch = mlp_.forward(state.mlp, norm2_.forward(state.norm2, hidden(state.middle)));
  return add_branch(std::move(branch), mlp_.contraction_bias(), hidden(state.middle), DropoutPlace::Mlp, batch, mode);
}

Buffer TransformerLayer::backward_input(State& state, const parallel::MicroBatch& batch, Buffer dy,
                                        parallel::WeightGradient when) const {
  const Tensor dx = hidden(dy);  // gradient of y, then of the middle, then of the input
  c_->label(kMlp);
  {
    Buffer branch = branch_gradient(dx, mlp_.contraction_dbias(), DropoutPlace::Mlp, batch);
    const Buffer dnorm = mlp_.backward_input(state.mlp, std::move(branch), when);
    norm2_.backward(state.norm2, hidden(dnorm), hidden(state.middle), dx, Accumulate::Yes);
  }
  state.middle.reset();
  state.norm2.clear();
  c_->label(kAttention);
  {
    Buffer branch = branch_gradient(dx, attention_.projection_dbias(), DropoutPlace::Projection, batch);
    const Buffer dnorm = attention_.backward_input(state.attention, batch, std::move(branch), when);
    norm1_.backward(state.norm1, hidden(dnorm), hidden(state.input), dx, Accumulate::Yes);
  }
  state.input.reset();
  state.norm1.clear();
  return dy;
}

void TransformerLayer::backward_weight(State& state) const {
  c_->label(kMlp);
  mlp_.backward_weight(state.mlp);
  c_->label(kAttention);
  attention_.backward_weight(state.attention);
}

}  // namespace triax::model
