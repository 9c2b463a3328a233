#include "train/optimizer.h"

#include <algorithm>

#include "base/error.h"

namespace triax::train {

std::vector<DecayRange> decay_ranges(const parallel::ParameterStore& store, double weight_decay, FlatRange owned) {
  std::vector<DecayRange> ranges;
  for (const parallel::Parameter& p : store.parameters()) {
    const FlatRange part{std::max(p.offset, owned.begin), std::min(p.offset + p.numel, owned.end)};
    if (part.size() <= 0) continue;
    const double decay = p.weight_decay ? weight_decay : 0;
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
                     kernels::Device& device, Arena& arena, DType state_dtype, FlatRange owned)
    : options_(options),
      device_(&device),
      owned_(owned),
      ranges_(decay_ranges(store, options.weight_decay, owned)),
      weight_(store.flat_weight()),
      grad_(store.flat_grad()) {
  ensure(grad_.dtype() == state_dtype, "Optimizer: gradients must have the state dtype");
  const bool own_master = weight_.dtype() != state_dtype;
  master_ = own_master ? allocate_state(arena, state_dtype, master_buffer_) : weight_.range(owned.begin, owned.end);
  if (options.kind == io::OptimizerKind::Adam) {
    exp_avg_ = allocate_state(arena, state_dtype, exp_avg_buffer_);
    exp_avg_sq_ = allocate_state(arena, state_dtype, exp_avg_sq_buffer_);
  } else if (options.sgd_momentum != 0) {
    momentum_ = allocate_state(arena, state_dtype, momentum_buffer_);
  }
}

Tensor Optimizer::allocate_state(Arena& arena, DType dtype, Buffer& buffer) {
  buffer = arena.allocate(dtype, owned_.size(), MemoryCategory::Optimizer);
  const Tensor state = buffer.view(dtype, {owned_.size()});
  device_->fill(state, 0);
  return state;
}

Tensor Optimizer::own(Tensor state, const FlatRange& range) const {
  return state ? state.range(range.begin - owned_.begin, range.end - owned_.begin) : Tensor();
}

void Optimizer::step(const kernels::StepBlock* step) {
  const bool own_master = static_cast<bool>(master_buffer_);
  for (const DecayRange& part : ranges_) {
    const Tensor master = own(master_, part.range);
    const Tensor grad = grad_.range(part.range.begin, part.range.end);
    const Tensor param = own_master ? weight_.range(part.range.begin, part.range.end) : Tensor();
    if (options_.kind == io::OptimizerKind::Adam) {
      kernels::AdamW args;
      args.master = master;
      args.exp_avg = own(exp_avg_, part.range);
      args.exp_avg_sq = own(exp_avg_sq_, part.range);
      args.grad = grad;
      args.param = param;
      args.beta1 = options_.adam_beta1;
      args.beta2 = options_.adam_beta2;
      args.eps = options_.adam_eps;
      args.weight_decay = part.weight_decay;
      device_->adamw(args, step);
    } else {
      device_->sgd({master, own(momentum_, part.range), grad, param, options_.sgd_momentum, part.weight_decay}, step);
    }
  }
}

void Optimizer::weights_from_master() {
  if (master_buffer_) device_->copy(master_, weight_.range(owned_.begin, owned_.end));
}

}  // namespace triax::train
