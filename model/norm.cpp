#include "model/norm.h"

namespace triax::model {

using parallel::InitKind;

Norm::Norm(const ModelConfig& model, const parallel::LayerContext& context, parallel::ParameterStore& store,
           const std::string& name)
    : c_(&context), store_(&store), type_(model.norm), epsilon_(model.norm_epsilon) {
  const ParameterFactory make(model, context);
  gamma_ = store.add({make.replicated_vector(name + ".weight", model.hidden_size, InitKind::Ones)});
  if (type_ == NormType::LayerNorm) {
    beta_ = store.add({make.replicated_vector(name + ".bias", model.hidden_size, InitKind::Zeros)});
  }
}

Buffer Norm::forward(State& state, Tensor x) const {
  Buffer out = c_->activation(x.rows(), x.cols());
  const Tensor y = out.view(c_->dtype, {x.rows(), x.cols()});  // [T', h]
  state.rstd = c_->statistic(x.rows());
  const Tensor rstd = state.rstd.view(c_->state_dtype, {x.rows()});
  const Tensor gamma = store_->at(gamma_).weight;
  if (type_ == NormType::RMSNorm) {
    c_->device->rms_norm_forward(x, gamma, epsilon_, y, rstd);
    return out;
  }
  state.mean = c_->statistic(x.rows());
  c_->device->layer_norm_forward(x, gamma, store_->at(beta_).weight, epsilon_, y,
                                 state.mean.view(c_->state_dtype, {x.rows()}), rstd);
  return out;
}

void Norm::backward(const State& state, Tensor dy, Tensor x, Tensor dx, kernels::Accumulate accumulate_dx) const {
  const Tensor rstd = state.rstd.view(c_->state_dtype, {x.rows()});
  const parallel::Parameter& gamma = store_->at(gamma_);
  if (type_ == NormType::RMSNorm) {
    c_->device->rms_norm_backward(dy, x, gamma.weight, rstd, dx, accumulate_dx, gamma.grad);
    return;
  }
  c_->device->layer_norm_backward(dy, x, gamma.weight, state.mean.view(c_->state_dtype, {x.rows()}), rstd, dx,
                                  accumulate_dx, gamma.grad, store_->at(beta_).grad);
}

}  // namespace triax::model
