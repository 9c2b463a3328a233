// The trainer's storage: what this rank holds and owns of weights, gradients and states, and how weights get there.
#include "io/options/validate.h"
#include "train/host_values.h"
#include "train/trainer.h"

namespace triax::train {

void Trainer::build_storage() {
  SyncPlan plan = make_sync_plan(store_, static_cast<int>(chunks_.size()), io::shard_options_of(options_));
  const int shard = grid_->shard().rank();
  const int replica = grid_->replica().rank();
  store_.allocate(context_.dtype, context_.state_dtype, *arena_, *device_, plan.shards.held(shard, replica));
  const auto overlap = [](bool on) { return on ? Overlap::Yes : Overlap::No; };
  sync_ = std::make_unique<GradientSync>(std::move(plan), store_, *grid_, *device_, *arena_,
                                         overlap(options_.parallel.overlap_grad_reduce),
                                         parse_skipped_sync(options_.control.inject));
  const parallel::ShardPlan& cut = sync_->plan().shards;
  gather_ = std::make_unique<ParameterGather>(cut, store_, *grid_, *device_, *arena_,
                                              overlap(options_.parallel.overlap_param_gather));
  if (options_.parallel.zero_quantized_weights && cut.options.stage == 3) {
    gather_->quantize(options_.parallel.compression.block());
  }
  if (units_) units_->attach(*sync_, *gather_);
  if (use_ != Use::Train) return;
  schedule_ = make_lr_schedule(options_.optimizer, options_.batch);
  std::vector<FlatRange> owned = cut.owned(shard, replica);
  // Under ZeRO each element counts on the one dp rank that owns it, its first replica.
  const bool everywhere = cut.options.stage == 0;
  const bool counts = everywhere || cut.options.states == parallel::StateSharding::AllOfData || replica == 0;
  const FlatRange nothing{owned[0].begin, owned[0].begin};
  norm_ = std::make_unique<GradientNorm>(
      store_, counts ? parts_within(counted_ranges(store_), owned) : std::vector<FlatRange>{nothing},
      everywhere ? grid_->model_parallel() : grid_->world(), *device_, *arena_);
  optimizer_ = std::make_unique<Optimizer>(options_.optimizer, store_, *device_, *arena_, context_.state_dtype,
                                           std::move(owned));
  build_compression();
}

void Trainer::build_compression() {
  const comm::CompressionOptions& options = options_.parallel.compression;
  if (options.method == comm::CompressionMethod::None || grid_->data().size() == 1) return;
  const parallel::ShardPlan& cut = sync_->plan().shards;
  std::vector<FlatRange> blocks;
  for (const parallel::ShardBlock& block : cut.blocks) blocks.push_back(block.range);
  compression_ = std::make_unique<GradientCompression>(
      options, store_, blocks, grid_->data(), *device_, *arena_,
      cut.options.stage == 0 ? comm::SumFor::EveryRank : comm::SumFor::PieceOwner, options_.control.seed);
  sync_->compress(compression_.get());
  if (options.method == comm::CompressionMethod::OneBitAdam) {
    one_bit_adam_ = std::make_unique<OneBitAdam>(options_.optimizer, store_, blocks, *optimizer_, *compression_,
                                                 grid_->data(), grid_->world(), *device_, *arena_);
  }
}

void Trainer::initialize_values(const FlatRange& range, Tensor values) {
  make_on_host(*device_, values, [&](int64_t begin, int64_t end, Tensor part) {
    parallel::initialize_parameters(store_, options_.control.seed, {range.begin + begin, range.begin + end}, part);
  });
}

void Trainer::initialize() {
  if (optimizer_) {
    for (size_t i = 0; i < optimizer_->owned().size(); ++i) {
      initialize_values(optimizer_->owned()[i], optimizer_->master(i));
    }
  } else {
    initialize_values({0, store_.numel()}, weight_source());
  }
  weights_changed();
}

Tensor Trainer::weight_source() {
  const bool whole = !optimizer_ || optimizer_->numel() == store_.numel();
  if (optimizer_ && whole) return optimizer_->master(0);
  const bool held = store_.held_weights().numel() == store_.numel();
  if (!optimizer_ && held && context_.dtype == context_.state_dtype) return store_.flat_weight();
  if (!staging_buffer_) {
    staging_buffer_ = arena_->allocate(context_.state_dtype, store_.numel(), MemoryCategory::Staging);
    device_->fill(staging_buffer_.view(context_.state_dtype, {store_.numel()}), 0);
  }
  return staging_buffer_.view(context_.state_dtype, {store_.numel()});
}

void Trainer::weights_changed() {
  if (staging_buffer_) {
    const Tensor source = staging_buffer_.view(context_.state_dtype, {store_.numel()});
    for (size_t i = 0; optimizer_ && i < optimizer_->owned().size(); ++i) {
      const FlatRange range = optimizer_->owned()[i];
      device_->copy(source.range(range.begin, range.end), optimizer_->master(i));
    }
    for (const FlatRange& range : store_.held().weights) {
      device_->copy(source.range(range.begin, range.end), store_.weight(range));
    }
    staging_buffer_.reset();
  }
  if (optimizer_) optimizer_->weights_from_master();
  weights_fresh_ = false;
  refresh_weights();
}

void Trainer::refresh_weights() {
  if (!weights_fresh_ && optimizer_) gather_->refresh_all();
  weights_fresh_ = true;
}

void Trainer::gather_weights() {
  communication_.leave(grid_->ledger());
  refresh_weights();
  gather_->gather_all();
}

}  // namespace triax::train
