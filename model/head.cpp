#include "model/head.h"

#include "parallel/tensor_collectives.h"

namespace triax::model {

void Head::State::clear() {
  input.reset();
  norm.clear();
  normed.reset();
  logits.reset();
  loss = {};
}

Head::Head(const ModelConfig& model, const parallel::LayerContext& context, parallel::ParameterStore& store,
           std::optional<size_t> word)
    : model_(&model),
      c_(&context),
      store_(&store),
      range_(parallel::vocab_range(model.vocab_size, model.padded_vocab_size(context.t()), context.tensor->rank(),
                                   context.t())),
      norm_(model, context, store, "model.norm"),
      projection_(context),
      loss_(context, range_) {
  if (word) {
    weight_ = *word;
    store.share(*word);
    store.first_grad_by_product(weight_);
    return;
  }
  parallel::Parameter p = ParameterFactory(model, context)
                              .vocab_matrix(model.tie_embeddings ? "model.embed_tokens.weight" : "lm_head.weight");
  p.tied = p.tied_copy = model.tie_embeddings;
  weight_ = store.add({std::move(p)});
  store.first_grad_by_product(weight_);
}

parallel::LinearWeights Head::weights() const {
  const parallel::Parameter& p = store_->at(weight_);
  return {p.weight, {}, p.grad, {}};
}

void Head::forward(State& state, const parallel::MicroBatch& batch, Buffer x, Tensor loss_sum) const {
  state.input = std::move(x);
  const int64_t h = model_->hidden_size;
  state.normed = norm_.forward(state.norm, state.input.view(c_->dtype, {c_->local_tokens(), h}));
  state.logits = projection_.forward(weights(), state.normed.view(c_->dtype, {c_->local_tokens(), h}));
  state.loss =
      loss_.forward(state.logits.view(c_->dtype, {c_->tokens(), range_.rows}), batch.target, batch.loss_mask, loss_sum);
}

Buffer Head::backward_input(State& state, const parallel::MicroBatch& batch, parallel::WeightGradient when) const {
  const Tensor logits = state.logits.view(c_->dtype, {c_->tokens(), range_.rows});  // [T, V/t]
  loss_.backward(state.loss, logits, batch.target, batch.loss_mask, 1.0 / static_cast<double>(c_->tokens()));
  state.loss = {};
  const int64_t h = model_->hidden_size;
  const Buffer dnormed = projection_.backward_input(weights(), logits);
  Buffer out = c_->activation(c_->local_tokens(), h);
  norm_.backward(state.norm, dnormed.view(c_->dtype, {c_->local_tokens(), h}),
                 state.input.view(c_->dtype, {c_->local_tokens(), h}), out.view(c_->dtype, {c_->local_tokens(), h}),
                 kernels::Accumulate::No);
  state.input.reset();
  state.norm.clear();
  if (when == parallel::WeightGradient::Now) backward_weight(state);
  return out;
}

void Head::backward_weight(State& state) const {
  parallel::LinearWeights w = weights();
  w.accumulate = store_->accumulation(weight_);
  projection_.backward_weight(w, state.normed.view(c_->dtype, {c_->local_tokens(), model_->hidden_size}),
                              state.logits.view(c_->dtype, {c_->tokens(), range_.rows}));
  state.clear();
}

void Head::row_logits(Buffer x, int64_t row, Tensor values) const {
  ensure(values.numel() == model_->vocab_size, "Head::row_logits: values must hold the vocabulary");
  const int64_t h = model_->hidden_size;
  Norm::State norm;
  const Buffer local = norm_.forward(norm, x.view(c_->dtype, {c_->local_tokens(), h}));
  const Buffer gathered = parallel::gather_tokens(*c_, local.view(c_->dtype, {c_->local_tokens(), h}));
  const Tensor normed = (gathered ? gathered : local).view(c_->dtype, {c_->tokens(), h});
  const Buffer own = c_->activation(1, range_.rows);
  const Tensor logits = own.view(c_->dtype, {1, range_.rows});
  c_->device->gemm({normed.row_slice(row, row + 1),
                    store_->at(weight_).weight,
                    logits,
                    kernels::Transpose::No,
                    kernels::Transpose::Yes,
                    kernels::Accumulate::No,
                    {}});
  const int64_t padded = range_.rows * c_->t();
  const Buffer all = c_->activation(1, padded);
  const Tensor whole = all.view(c_->dtype, {padded});
  if (c_->t() > 1) {
    c_->tensor->all_gather(logits.flat(), whole).wait();
  } else {
    c_->device->copy(logits.flat(), whole);
  }
  const Buffer converted = c_->arena->allocate(values.dtype(), model_->vocab_size, MemoryCategory::Workspace);
  const Tensor wanted = converted.view(values.dtype(), {model_->vocab_size});
  c_->device->copy(whole.range(0, model_->vocab_size), wanted);
  c_->device->download(wanted, values);
}

}  // namespace triax::model
