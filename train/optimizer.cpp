#include "train/optimizer.h"

#include <algorithm>

#include "base/error.h"

namespace triax::train {

std::vector<DecayRange> decay_ranges(const parallel::ParameterStore& store, double weight_decay, FlatRange owned) {
  std::vector<const parallel::Parameter*> ordered;
  for (const parallel::Parameter& p : store.parameters()) {
    if (parallel::intersection(p.range(), owned).size() > 0) ordered.push_back(&p);
  }
  std::sort(ordered.begin(), ordered.end(), [](const auto* a, const auto* b) { return a->offset < b->offset; });
  std::vector<DecayRange> ranges;
  for (const parallel::Parameter* p : ordered) {
    const FlatRange part = parallel::intersection(p->range(), owned);
    const double decay = p->weight_decay ? weight_decay : 0;
    if (!ranges.empty() && ranges.back().weight_decay == decay) {
      ranges.back().range.end = part.end;
    } else {
      if (!ranges.empty()) ranges.back().range.end = part.begin;
      ranges.push_back({part, decay});
    }
  }
  if (!ranges.empty()) ranges.back().range.end = owned.end;
  return ranges;
}

Optimizer::Optimizer(const io::OptimizerOptions& options, const parallel::ParameterStore& store,
                     kernels::Device& device, Arena& arena, DType state_dtype, std::vector<FlatRange> owned)
    : options_(options), store_(&store), device_(&device), owned_(std::move(owned)) {
  ensure(store.grad_dtype() == state_dtype, "Optimizer: gradients must have the state dtype");
  size_t all = 0;
  for (const FlatRange& range : owned_) {
    begin_.push_back(numel_);
    ranges_.push_back(decay_ranges(store, options.weight_decay, range));
    numel_ += range.size();
    all += ranges_.back().size();
  }
  adam_.reserve(all);
  if (store.weight_dtype() != state_dtype) master_ = allocate_state(arena, state_dtype, master_buffer_);
  if (options.kind == io::OptimizerKind::Adam) {
    exp_avg_ = allocate_state(arena, state_dtype, exp_avg_buffer_);
    exp_avg_sq_ = allocate_state(arena, state_dtype, exp_avg_sq_buffer_);
  } else if (options.sgd_momentum != 0) {
    momentum_ = allocate_state(arena, state_dtype, momentum_buffer_);
  }
}

Tensor Optimizer::allocate_state(Arena& arena, DType dtype, Buffer& buffer) {
  buffer = arena.allocate(dtype, numel_, MemoryCategory::Optimizer);
  const Tensor state = buffer.view(dtype, {numel_});
  device_->fill(state, 0);
  return state;
}

Tensor Optimizer::part(Tensor state, size_t i) const {
  return state ? state.range(begin_[i], begin_[i] + owned_[i].size()) : Tensor();
}

Tensor Optimizer::master(size_t i) const { return master_ ? part(master_, i) : store_->weight(owned_[i]); }

void Optimizer::step(const kernels::StepBlock* step) {
  adam_.clear();
  for (size_t i = 0; i < owned_.size(); ++i) {
    for (const DecayRange& range : ranges_[i]) update(i, range, step);
  }
  device_->adamw_many(adam_, step);
}

/// SGD updates its range; Adam's ranges are gathered.
void Optimizer::update(size_t i, const DecayRange& part, const kernels::StepBlock* step) {
  const auto own = [&](Tensor state) {
    const int64_t begin = part.range.begin - owned_[i].begin;
    return state ? state.range(begin, begin + part.range.size()) : Tensor();
  };
  const Tensor grad = store_->grad(part.range);
  const Tensor param = master_ ? store_->weight(part.range) : Tensor();
  if (options_.kind == io::OptimizerKind::Sgd) {
    device_->sgd({own(master(i)), own(momentum(i)), grad, param, options_.sgd_momentum, part.weight_decay}, step);
    return;
  }
  adam_.push_back({own(master(i)), own(exp_avg(i)), own(exp_avg_sq(i)), grad, param, options_.adam_beta1,
                   options_.adam_beta2, options_.adam_eps, part.weight_decay});
}

void Optimizer::weights_from_master() {
  if (!master_) return;
  for (size_t i = 0; i < owned_.size(); ++i) device_->copy(master(i), store_->weight(owned_[i]));
}

}  // namespace triax::train
