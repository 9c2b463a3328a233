#include "train/one_bit_adam.h"

#include <cmath>

#include "base/error.h"
#include "comm/ledger.h"
#include "kernels/compression.h"
#include "train/host_values.h"

namespace triax::train {

using parallel::FlatRange;

OneBitAdam::OneBitAdam(const io::OptimizerOptions& options, const parallel::ParameterStore& store,
                       std::span<const FlatRange> blocks, Optimizer& optimizer, GradientCompression& compression,
                       comm::Communicator& data, comm::Communicator& world, kernels::Device& device, Arena& arena)
    : options_(options),
      store_(&store),
      blocks_(blocks.begin(), blocks.end()),
      optimizer_(&optimizer),
      compression_(&compression),
      data_(&data),
      world_(&world),
      device_(&device),
      sum_buffer_(arena.allocate(DType::Float64, 1, MemoryCategory::Workspace)),
      sum_(sum_buffer_.view(DType::Float64, {1})) {
  if (optimizer.numel() == store.numel()) {
    momentum_ = optimizer.exp_avg(0);
    plain_share_ = 1.0 / data.size();
  } else {
    const DType dtype = store.grad_dtype();
    momentum_buffer_ = arena.allocate(dtype, store.numel(), MemoryCategory::Optimizer);
    momentum_ = momentum_buffer_.view(dtype, {store.numel()});
    gathered_ = false;
  }
  for (const parallel::Parameter& p : store.parameters()) {
    const bool counts = p.spec.replica == 0 && !p.tied_copy;
    FlatRange coded{p.offset, p.offset};
    for (const comm::CompressedBucket& bucket : compression.buckets()) {
      for (const comm::GradientTensor& t : bucket.tensors) {
        if (t.begin == p.offset && t.compressed) coded.end = t.begin + t.count;
      }
    }
    const FlatRange rest{coded.end, p.offset + p.numel};  // all of it, or the zeros of a padded vocabulary
    const double decay = p.weight_decay ? options.weight_decay : 0;
    if (coded.size() > 0) coded_.push_back(coded);
    if (coded.size() > 0 && counts) counted_.push_back(coded);
    add_updates(coded, decay, coded_updates_);
    const size_t before = plain_updates_.size();
    add_updates(rest, decay, plain_updates_);
    plain_.reserve(plain_updates_.size());
    for (size_t i = before; counts && i < plain_updates_.size(); ++i) counted_plain_.push_back(plain_updates_[i].range);
  }
}

void OneBitAdam::add_updates(const FlatRange& range, double weight_decay, std::vector<Update>& updates) const {
  for (size_t i = 0; i < optimizer_->owned().size(); ++i) {
    const FlatRange part = parallel::intersection(range, optimizer_->owned()[i]);
    if (part.size() > 0) updates.push_back({part, i, weight_decay});
  }
}

Tensor OneBitAdam::own(Tensor state, const Update& update) const {
  const int64_t begin = optimizer_->owned()[update.owned].begin;
  return state.range(update.range.begin - begin, update.range.end - begin);
}

double OneBitAdam::sum_of_squares() {
  const auto squares = [this](const std::vector<FlatRange>& ranges) {
    device_->fill(sum_, 0);
    for (const FlatRange& range : ranges) device_->sum_of_squares(store_->grad(range), sum_);
    return scalar_of(*device_, sum_);
  };
  const double d = data_->size();
  const double plain = squares(counted_plain_) * plain_share_;
  double sum = d * squares(counted_) + plain;
  world_->all_reduce(Tensor(&sum, DType::Float64, {1}), comm::ReduceOp::Sum).wait();
  return sum;
}

void OneBitAdam::gather_momentum() {
  gathered_ = true;
  for (const FlatRange& block : blocks_) {
    const int64_t piece = block.size() / data_->size();
    const FlatRange mine{block.begin + piece * data_->rank(), block.begin + piece * (data_->rank() + 1)};
    for (size_t i = 0; i < optimizer_->owned().size(); ++i) {
      const FlatRange owned = optimizer_->owned()[i];
      if (!owned.contains(mine)) continue;
      const Tensor own_piece = optimizer_->exp_avg(i).range(mine.begin - owned.begin, mine.end - owned.begin);
      const Tensor all = momentum_.range(block.begin, block.end);
      data_->all_gather(own_piece, all).wait();
      compression_->count_sent(comm::sent_bytes(comm::Operation::AllGather, all.bytes(), data_->size()));
    }
  }
}

void OneBitAdam::step(const kernels::StepBlock& now, const kernels::StepBlock* step) {
  if (now.skip != 0) return;
  if (!gathered_) gather_momentum();
  kernels::Compression& codes = *device_->compression();
  const double d = data_->size();
  for (const FlatRange& range : coded_) {
    codes.momentum(momentum_.range(range.begin, range.end), options_.adam_beta1 / d,
                   (1 - options_.adam_beta1) * now.grad_scale, store_->grad(range));
  }
  device_->synchronize();
  compression_->sum_momentum();
  for (const FlatRange& range : coded_) device_->copy(store_->grad(range), momentum_.range(range.begin, range.end));

  const bool own_master = store_->weight_dtype() != store_->grad_dtype();
  const auto frozen_at = static_cast<double>(compression_->options().warmup());
  kernels::FrozenAdam frozen;
  frozen.beta1 = options_.adam_beta1;
  frozen.eps = options_.adam_eps;
  frozen.inv_sqrt_correction2 = 1 / std::sqrt(1 - std::pow(options_.adam_beta2, frozen_at));
  for (const Update& u : coded_updates_) {
    frozen.master = own(optimizer_->master(u.owned), u);
    frozen.exp_avg = own(optimizer_->exp_avg(u.owned), u);
    frozen.exp_avg_sq = own(optimizer_->exp_avg_sq(u.owned), u);
    frozen.weight_decay = u.weight_decay;
    if (momentum_buffer_) device_->copy(momentum_.range(u.range.begin, u.range.end), frozen.exp_avg);
    codes.frozen_adam(frozen, step);
    if (own_master) device_->copy(frozen.master, store_->weight(u.range));
  }
  plain_.clear();
  for (const Update& u : plain_updates_) {
    kernels::AdamW args;
    args.master = own(optimizer_->master(u.owned), u);
    args.exp_avg = own(optimizer_->exp_avg(u.owned), u);
    args.exp_avg_sq = own(optimizer_->exp_avg_sq(u.owned), u);
    args.grad = store_->grad(u.range);
    if (own_master) args.param = store_->weight(u.range);
    args.beta1 = options_.adam_beta1;
    args.beta2 = options_.adam_beta2;
    args.eps = options_.adam_eps;
    args.weight_decay = u.weight_decay;
    plain_.push_back(args);
  }
  device_->adamw_many(plain_, step);
}

}  // namespace triax::train
