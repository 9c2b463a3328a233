#include "model/mlp.h"

#include <fmt/format.h>

namespace triax::model {

using parallel::InitKind;
using parallel::LinearWeights;
using parallel::Parameter;

Mlp::Mlp(const ModelConfig& model, const parallel::LayerContext& context, parallel::ParameterStore& store,
         int64_t layer)
    : model_(&model),
      c_(&context),
      store_(&store),
      expand_(context, {layer, parallel::Fp8Place::Expand}),
      contract_(context, {layer, parallel::Fp8Place::Contract}) {
  const std::string name = fmt::format("model.layers.{}.mlp", layer);
  const ParameterFactory make(model, context);
  const int64_t f = model.ffn_hidden_size;
  const int64_t h = model.hidden_size;
  const int64_t begin = width() * context.tensor->rank();
  const bool gated = model.activation == ActivationType::SwiGlu;
  std::vector<Parameter> weights;
  std::vector<Parameter> biases;
  for (const char* part : gated ? std::vector{".gate_proj", ".up_proj"} : std::vector{".fc1"}) {
    weights.push_back(make.column_weight(name + part + ".weight", f, h, begin, width()));
    biases.push_back(make.column_bias(name + part + ".bias", f, begin, width()));
  }
  expand_count_ = weights.size();
  expand_weight_ = store.add(std::move(weights));
  if (model.add_bias_linear) expand_bias_ = store.add(std::move(biases));
  const std::string out = name + (gated ? ".down_proj" : ".fc2");
  contract_weight_ = store.add({make.row_weight(out + ".weight", h, f)});
  store.first_grad_by_product(expand_weight_);
  store.first_grad_by_product(contract_weight_);
  if (context.fp8 != nullptr) {
    context.fp8->hold({layer, parallel::Fp8Place::Expand}, store.at(expand_weight_).name);
    context.fp8->hold({layer, parallel::Fp8Place::Contract}, store.at(contract_weight_).name);
  }
  if (model.add_bias_linear) contract_bias_ = store.add({make.replicated_vector(out + ".bias", h, InitKind::Zeros)});
}

int64_t Mlp::width() const { return model_->ffn_hidden_size / c_->t(); }
int64_t Mlp::expanded_width() const { return width() * static_cast<int64_t>(expand_count_); }

LinearWeights Mlp::expand_weights() const {
  LinearWeights w;
  w.weight = store_->fused_weight(expand_weight_, expand_count_);
  w.dweight = store_->fused_grad(expand_weight_, expand_count_);
  if (model_->add_bias_linear) {
    w.bias = store_->fused_weight(expand_bias_, expand_count_);
    w.dbias = store_->fused_grad(expand_bias_, expand_count_);
  }
  return w;
}

LinearWeights Mlp::contract_weights() const {
  const Parameter& p = store_->at(contract_weight_);
  return {p.weight, {}, p.grad, {}};
}

Tensor Mlp::contraction_bias() const { return model_->add_bias_linear ? store_->at(contract_bias_).weight : Tensor{}; }
Tensor Mlp::contraction_dbias() const { return model_->add_bias_linear ? store_->at(contract_bias_).grad : Tensor{}; }

Buffer Mlp::forward(State& state, Buffer input) const {
  const int64_t T = c_->tokens();
  state.input = std::move(input);
  const Tensor x = state.input.view(c_->dtype, {c_->local_tokens(), model_->hidden_size});
  if (model_->activation == ActivationType::SwiGlu) {
    state.expanded = expand_.forward(expand_weights(), x);
    state.activated = c_->activation(T, width());
    c_->device->swiglu_forward(state.expanded.view(c_->dtype, {T, expanded_width()}),
                               state.activated.view(c_->dtype, {T, width()}));
  } else {
    state.expanded = expand_.forward_gelu(expand_weights(), x, state.activated);
  }
  return contract_.forward(contract_weights(), state.activated.view(c_->dtype, {T, width()}));
}

Buffer Mlp::backward_input(State& state, Buffer doutput, parallel::WeightGradient when) const {
  const int64_t T = c_->tokens();
  Buffer gathered =
      contract_.gather_output_gradient(doutput.view(c_->dtype, {c_->local_tokens(), model_->hidden_size}));
  state.doutput = gathered ? std::move(gathered) : std::move(doutput);
  const Tensor dy = state.doutput.view(c_->dtype, {T, model_->hidden_size});
  const Tensor u = state.expanded.view(c_->dtype, {T, expanded_width()});
  if (model_->activation == ActivationType::SwiGlu) {
    const Buffer dactivated = contract_.backward_input(contract_weights(), dy);
    state.dexpanded = c_->activation(T, expanded_width());
    c_->device->swiglu_backward(dactivated.view(c_->dtype, {T, width()}), u,
                                state.dexpanded.view(c_->dtype, {T, expanded_width()}));
  } else {
    state.dexpanded = contract_.backward_input_gelu(contract_weights(), dy, u);
  }
  state.expanded.reset();
  Buffer dinput = expand_.backward_input(expand_weights(), state.dexpanded.view(c_->dtype, {T, expanded_width()}));
  if (when == parallel::WeightGradient::Now) backward_weight(state);
  return dinput;
}

void Mlp::backward_weight(State& state) const {
  const int64_t T = c_->tokens();
  LinearWeights contract = contract_weights();
  LinearWeights expand = expand_weights();
  contract.accumulate = store_->accumulation(contract_weight_);
  expand.accumulate = store_->accumulation(expand_weight_);
  contract_.backward_weight(contract, state.activated.view(c_->dtype, {T, width()}),
                            state.doutput.view(c_->dtype, {T, model_->hidden_size}));
  expand_.backward_weight(expand, state.input.view(c_->dtype, {c_->local_tokens(), model_->hidden_size}),
                          state.dexpanded.view(c_->dtype, {T, expanded_width()}));
  state.clear();
}

}  // namespace triax::model
