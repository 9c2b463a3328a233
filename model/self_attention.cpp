#include "model/self_attention.h"

#include <cmath>

namespace triax::model {

using kernels::Device;
using parallel::GradientSum;
using parallel::InitKind;
using parallel::LinearWeights;
using parallel::Mode;
using parallel::Parameter;

kernels::Dropout dropout_at(const parallel::LayerContext& context, double p, int64_t layer, DropoutPlace place,
                            Mode mode) {
  return {mode == Mode::Train ? p : 0.0, context.seed, static_cast<uint32_t>(layer) * 4 + static_cast<uint32_t>(place),
          context.step};
}

SelfAttention::SelfAttention(const ModelConfig& model, const parallel::LayerContext& context,
                             parallel::ParameterStore& store, const RotaryTable& rotary, int64_t layer,
                             const std::string& name, parallel::RecomputeGranularity recompute)
    : model_(&model),
      c_(&context),
      store_(&store),
      rotary_(&rotary),
      layer_(layer),
      recompute_(recompute),
      share_(head_share(model, context.tensor->rank(), context.t())),
      qkv_(context, {layer, parallel::Fp8Place::Qkv}),
      projection_(context, {layer, parallel::Fp8Place::Projection}) {
  const ParameterFactory make(model, context);
  const int64_t d = model.kv_channels;
  const auto kv = [&](Parameter p) {
    p.spec.replicas = share_.kv_replicas;
    p.spec.replica = share_.kv_replica;
    p.spec.gradient_sum = share_.kv_replicas > 1 ? GradientSum::KvReplicas : GradientSum::None;
    return p;
  };
  const int64_t qb = share_.query_begin * d, qn = share_.query_count * d;
  const int64_t kb = share_.kv_begin * d, kn = share_.kv_count * d;
  const int64_t h = model.hidden_size;
  qkv_weight_ = store.add({make.column_weight(name + ".q_proj.weight", model.query_size(), h, qb, qn),
                           kv(make.column_weight(name + ".k_proj.weight", model.kv_size(), h, kb, kn)),
                           kv(make.column_weight(name + ".v_proj.weight", model.kv_size(), h, kb, kn))});
  if (model.add_qkv_bias) {
    qkv_bias_ = store.add({make.column_bias(name + ".q_proj.bias", model.query_size(), qb, qn),
                           kv(make.column_bias(name + ".k_proj.bias", model.kv_size(), kb, kn)),
                           kv(make.column_bias(name + ".v_proj.bias", model.kv_size(), kb, kn))});
  }
  projection_weight_ = store.add({make.row_weight(name + ".o_proj.weight", h, model.query_size())});
  store.first_grad_by_product(qkv_weight_);
  store.first_grad_by_product(projection_weight_);
  if (context.fp8 != nullptr) {
    context.fp8->hold({layer, parallel::Fp8Place::Qkv}, store.at(qkv_weight_).name);
    context.fp8->hold({layer, parallel::Fp8Place::Projection}, store.at(projection_weight_).name);
  }
  if (model.add_bias_linear) {
    projection_bias_ = store.add({make.replicated_vector(name + ".o_proj.bias", h, InitKind::Zeros)});
  }
}

int64_t SelfAttention::qkv_cols() const { return (share_.query_count + 2 * share_.kv_count) * model_->kv_channels; }

LinearWeights SelfAttention::qkv_weights() const {
  LinearWeights w;
  w.weight = store_->fused_weight(qkv_weight_, 3);
  w.dweight = store_->fused_grad(qkv_weight_, 3);
  if (model_->add_qkv_bias) {
    w.bias = store_->fused_weight(qkv_bias_, 3);
    w.dbias = store_->fused_grad(qkv_bias_, 3);
  }
  return w;
}

LinearWeights SelfAttention::projection_weights() const {
  const Parameter& p = store_->at(projection_weight_);
  return {p.weight, {}, p.grad, {}};
}

Tensor SelfAttention::projection_bias() const {
  return model_->add_bias_linear ? store_->at(projection_bias_).weight : Tensor{};
}
Tensor SelfAttention::projection_dbias() const {
  return model_->add_bias_linear ? store_->at(projection_bias_).grad : Tensor{};
}

SelfAttention::Views SelfAttention::views(const Buffer& buffer) const {
  const Tensor qkv = buffer.view(c_->dtype, {c_->tokens(), qkv_cols()});
  const int64_t q_end = share_.query_count * model_->kv_channels;
  const int64_t k_end = q_end + share_.kv_count * model_->kv_channels;
  return {qkv.col_slice(0, q_end), qkv.col_slice(q_end, k_end), qkv.col_slice(k_end, qkv_cols())};
}

kernels::Attention SelfAttention::attention_args(const parallel::MicroBatch& batch, Mode mode) const {
  kernels::Attention args;
  args.batch = c_->micro_batch;
  args.seq_length = c_->seq_length;
  args.heads = share_.query_count;
  args.kv_heads = share_.kv_count;
  args.head_dim = model_->kv_channels;
  args.head_begin = share_.query_begin;
  args.scale = 1.0 / std::sqrt(static_cast<double>(model_->kv_channels));
  args.dropout = dropout_at(*c_, model_->attention_dropout, layer_, DropoutPlace::Attention, mode);
  args.index = batch.index;
  return args;
}

void SelfAttention::rotate(const Buffer& buffer, const parallel::MicroBatch& batch,
                           Device::RotaryDirection direction) const {
  if (!*rotary_) return;
  const Views x = views(buffer);
  c_->device->rotary(x.q, rotary_->cos(), rotary_->sin(), batch.index.position, share_.query_count, direction);
  c_->device->rotary(x.k, rotary_->cos(), rotary_->sin(), batch.index.position, share_.kv_count, direction);
}

void SelfAttention::attend(State& state, const parallel::MicroBatch& batch, Mode mode) const {
  const int64_t cols = share_.query_count * model_->kv_channels;
  state.output = c_->activation(c_->tokens(), cols);
  state.lse = c_->statistic(share_.query_count * c_->tokens());
  const Views x = views(state.qkv);
  c_->device->attention_forward(attention_args(batch, mode), x.q, x.k, x.v,
                                state.output.view(c_->dtype, {c_->tokens(), cols}),
                                state.lse.view(c_->state_dtype, {share_.query_count, c_->tokens()}));
}

Buffer SelfAttention::forward(State& state, const parallel::MicroBatch& batch, Buffer input, Mode mode) const {
  state.input = std::move(input);
  state.qkv = qkv_.forward(qkv_weights(), state.input.view(c_->dtype, {c_->local_tokens(), model_->hidden_size}));
  rotate(state.qkv, batch, Device::RotaryDirection::Forward);
  attend(state, batch, mode);
  const int64_t cols = share_.query_count * model_->kv_channels;
  Buffer out = projection_.forward(projection_weights(), state.output.view(c_->dtype, {c_->tokens(), cols}));
  if (recompute_ == parallel::RecomputeGranularity::Selective && mode == Mode::Train) {
    state.output.reset();
    state.lse.reset();
  }
  return out;
}

Buffer SelfAttention::backward_input(State& state, const parallel::MicroBatch& batch, Buffer dprojection,
                                     parallel::WeightGradient when) const {
  if (!state.output) attend(state, batch, Mode::Train);
  const int64_t T = c_->tokens();
  const int64_t cols = share_.query_count * model_->kv_channels;
  const Tensor output = state.output.view(c_->dtype, {T, cols});
  Buffer gathered =
      projection_.gather_output_gradient(dprojection.view(c_->dtype, {c_->local_tokens(), model_->hidden_size}));
  state.doutput = gathered ? std::move(gathered) : std::move(dprojection);
  const Tensor dy = state.doutput.view(c_->dtype, {T, model_->hidden_size});
  {
    const Buffer dout = projection_.backward_input(projection_weights(), dy);  // [T, a d / t]
    state.dqkv = c_->activation(T, qkv_cols());
    const Views x = views(state.qkv);
    const Views dx = views(state.dqkv);
    c_->device->attention_backward(attention_args(batch, Mode::Train), dout.view(c_->dtype, {T, cols}), x.q, x.k, x.v,
                                   output, state.lse.view(c_->state_dtype, {share_.query_count, T}), dx.q, dx.k, dx.v);
  }
  state.qkv.reset();
  state.lse.reset();
  rotate(state.dqkv, batch, Device::RotaryDirection::Backward);
  Buffer dinput = qkv_.backward_input(qkv_weights(), state.dqkv.view(c_->dtype, {T, qkv_cols()}));
  if (when == parallel::WeightGradient::Now) backward_weight(state);
  return dinput;
}

void SelfAttention::backward_weight(State& state) const {
  const int64_t T = c_->tokens();
  const int64_t cols = share_.query_count * model_->kv_channels;
  LinearWeights projection = projection_weights();
  LinearWeights qkv = qkv_weights();
  projection.accumulate = store_->accumulation(projection_weight_);
  qkv.accumulate = store_->accumulation(qkv_weight_);
  projection_.backward_weight(projection, state.output.view(c_->dtype, {T, cols}),
                              state.doutput.view(c_->dtype, {T, model_->hidden_size}));
  qkv_.backward_weight(qkv, state.input.view(c_->dtype, {c_->local_tokens(), model_->hidden_size}),
                       state.dqkv.view(c_->dtype, {T, qkv_cols()}));
  state.clear();
}

}  // namespace triax::model
