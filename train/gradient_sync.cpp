#include "train/gradient_sync.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <utility>

#include "base/error.h"

namespace triax::train {

using parallel::GradientSum;
using parallel::Parameter;

SkippedSync parse_skipped_sync(const std::string& inject) {
  SkippedSync skipped;
  std::istringstream parts(inject);
  std::string part;
  const std::string prefix = "skip-sync:";
  while (std::getline(parts, part, ',')) {
    if (part.rfind(prefix, 0) != 0) continue;
    const std::string what = part.substr(prefix.size());
    if (what == "tp") {
      skipped.tensor = true;
    } else if (what == "tied") {
      skipped.tied = true;
    } else if (what == "dp") {
      skipped.data = true;
    } else {
      throw ConfigError(fmt::format("--inject {}: skip-sync takes tp, tied or dp", part));
    }
  }
  return skipped;
}

bool SyncPlan::any_partial() const {
  return std::any_of(chunks.begin(), chunks.end(),
                     [](const ChunkPlan& c) { return !c.tensor.empty() || !c.kv_replicas.empty(); });
}

SyncPlan make_sync_plan(parallel::ParameterStore& store, int chunks, const parallel::ShardOptions& shards) {
  SyncPlan plan;
  plan.chunks.resize(static_cast<size_t>(chunks));
  const auto& parameters = store.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& p = parameters[i];
    auto& chunk = plan.chunks[static_cast<size_t>(store.units()[static_cast<size_t>(p.unit)].chunk)];
    if (p.spec.gradient_sum == GradientSum::Tensor) chunk.tensor.push_back(i);
    if (p.spec.gradient_sum == GradientSum::KvReplicas) chunk.kv_replicas.push_back(i);
    if (p.tied) plan.tied.push_back(i);
  }
  plan.shards = parallel::make_shard_plan(store, shards);
  return plan;
}

std::string describe(const SyncPlan& plan, const parallel::ParameterStore& store) {
  std::string text;
  auto out = std::back_inserter(text);
  for (const Parameter& p : store.parameters()) {
    fmt::format_to(out, "{:<60} [", p.name);
    for (size_t d = 0; d < p.spec.global_shape.size(); ++d) {
      fmt::format_to(out, "{}{}", d == 0 ? "" : ", ", p.spec.global_shape[d]);
    }
    text += "]";
    if (p.spec.cut_dim >= 0) {
      fmt::format_to(out, " dim {} indices {}..{}", p.spec.cut_dim, p.spec.begin, p.spec.begin + p.spec.count - 1);
    } else {
      fmt::format_to(out, " whole");
    }
    if (p.spec.replicas > 1) fmt::format_to(out, ", replica {} of {}", p.spec.replica, p.spec.replicas);
    if (p.spec.gradient_sum == GradientSum::Tensor) fmt::format_to(out, ", summed over tp");
    if (p.spec.gradient_sum == GradientSum::KvReplicas) fmt::format_to(out, ", summed over KV replicas");
    if (p.tied) fmt::format_to(out, ", summed over first and last stage");
    for (size_t b = 0; b < plan.shards.blocks.size(); ++b) {
      if (plan.shards.blocks[b].range.contains(p.range())) fmt::format_to(out, ", dp block {}", b);
    }
    text += '\n';
    out = std::back_inserter(text);
  }
  return text;
}

GradientSync::GradientSync(SyncPlan plan, parallel::ParameterStore& store, comm::ProcessGrid& grid,
                           kernels::Device& device, Arena& arena, Overlap overlap, const SkippedSync& skipped)
    : plan_(std::move(plan)),
      store_(&store),
      grid_(&grid),
      device_(&device),
      arena_(&arena),
      overlap_(overlap),
      skipped_(skipped) {
  if (skipped_.data && plan_.shards.options.stage > 0) {
    throw ConfigError("--inject skip-sync:dp needs --zero-stage 0: sharded, no two ranks hold the same gradient");
  }
  const std::vector<FlatRange> owned = plan_.shards.owned(grid.shard().rank(), grid.replica().rank());
  for (size_t i = 0; i < store.parameters().size(); ++i) {
    held_parts_.push_back(parts_of(i, store.held().gradients));
    owned_parts_.push_back(parts_of(i, owned));
  }
  const DType dtype = store.grad_dtype();
  const int64_t tensor = longest(&SyncPlan::ChunkPlan::tensor);
  const int64_t kv = longest(&SyncPlan::ChunkPlan::kv_replicas);
  const auto pack = [&](Buffer& buffer, int64_t elements) {
    if (elements == 0) return Tensor();
    buffer = arena.allocate(dtype, elements, MemoryCategory::Communication);
    return buffer.view(dtype, {elements});
  };
  tensor_pack_ = pack(tensor_buffer_, tensor);
  kv_pack_ = pack(kv_buffer_, kv);
  in_flight_.reserve(2 * plan_.shards.blocks.size());
  started_.assign(plan_.shards.blocks.size(), 0);
  buckets_.resize(plan_.shards.options.shards_gradients() ? plan_.shards.blocks.size() : 0);
  for (Bucket& bucket : buckets_) bucket.work.reserve(2);
}

std::vector<Tensor> GradientSync::parts_of(size_t parameter, const std::vector<FlatRange>& ranges) const {
  std::vector<Tensor> parts;
  for (const FlatRange& range : ranges) {
    const FlatRange part = parallel::intersection(store_->at(parameter).range(), range);
    if (part.size() > 0) parts.push_back(store_->grad(part));
  }
  return parts;
}

const std::vector<Tensor>& GradientSync::summed_parts(size_t parameter) const {
  const bool local = compression_ != nullptr && compression_->leaves_gradients();
  return local ? held_parts_[parameter] : owned_parts_[parameter];
}

int64_t GradientSync::longest(const std::vector<size_t> SyncPlan::ChunkPlan::*list) const {
  int64_t most = 0;
  for (const SyncPlan::ChunkPlan& chunk : plan_.chunks) {
    int64_t numel = 0;
    for (const size_t i : chunk.*list) {
      for (const Tensor& part : held_parts_[i]) numel += part.numel();
    }
    most = std::max(most, numel);
  }
  return most;
}

void GradientSync::start_step() {
  for (Bucket& bucket : buckets_) bucket.first = true;
  std::fill(started_.begin(), started_.end(), char{0});
  if (!collects()) store_->forget_held_grads(*device_);  // else the first bucket of a step overwrites them
}

void GradientSync::sum_packed(const std::vector<size_t>& indices, comm::Communicator& group, Tensor pack) {
  if (indices.empty() || group.size() == 1 || !pack) return;
  int64_t used = 0;
  for (const size_t i : indices) {
    for (const Tensor& part : summed_parts(i)) {
      device_->copy(part, pack.range(used, used + part.numel()));
      used += part.numel();
    }
  }
  if (used == 0) return;  // the tp ranks own the same elements: none of them has a part
  group.all_reduce(pack.range(0, used), comm::ReduceOp::Sum).wait();
  used = 0;
  for (const size_t i : indices) {
    for (const Tensor& part : summed_parts(i)) {
      device_->copy(pack.range(used, used + part.numel()), part);
      used += part.numel();
    }
  }
}

void GradientSync::sum_tensor_partial(int chunk) {
  const SyncPlan::ChunkPlan& plan = plan_.chunks[static_cast<size_t>(chunk)];
  if (skipped_.tensor) return;
  finish();
  sum_packed(plan.tensor, grid_->tensor(), tensor_pack_);
  sum_packed(plan.kv_replicas, grid_->kv_replicas(), kv_pack_);
}

void GradientSync::sum_tied() {
  finish();
  if (!skipped_.tied && plan_.tied.size() == 2) {  // both copies are chunks of this position
    const std::vector<Tensor>& first = summed_parts(plan_.tied[0]);
    const std::vector<Tensor>& second = summed_parts(plan_.tied[1]);
    for (size_t i = 0; i < first.size(); ++i) {
      device_->add(first[i], second[i]);
      device_->copy(second[i], first[i]);
    }
    return;
  }
  if (skipped_.tied || grid_->embedding().size() == 1) return;
  for (const size_t i : plan_.tied) {
    for (const Tensor& part : summed_parts(i)) grid_->embedding().all_reduce(part, comm::ReduceOp::Sum).wait();
  }
}

void GradientSync::start(comm::Work work) {
  if (overlap_ == Overlap::No) {
    work.wait();
  } else {
    in_flight_.push_back(std::move(work));
  }
}

void GradientSync::reduce(int block) {
  ensure(store_->grads_written(block_at(block).range), "GradientSync: a gradient of the block was not made");
  if (skipped_.data || grid_->data().size() == 1) return;
  if (std::exchange(started_[static_cast<size_t>(block)], char{1}) != 0) return;
  if (compression_ != nullptr && compression_->active()) {
    compression_->start(static_cast<size_t>(block));
    if (overlap_ == Overlap::No) compression_->finish();
    return;
  }
  const parallel::ShardBlock& b = block_at(block);
  const parallel::FlatRange own = plan_.shards.shard_of(b, grid_->shard().rank());
  if (plan_.shards.options.stage == 0) {
    start(grid_->data().all_reduce(store_->grad(b.range), comm::ReduceOp::Sum));
    return;
  }
  if (plan_.shards.options.stage == 1 && grid_->shard().size() > 1) {
    start(grid_->shard().reduce_scatter(store_->grad(b.range), store_->grad(own), comm::ReduceOp::Sum));
  }
  if (grid_->replica().size() > 1) start(grid_->replica().all_reduce(store_->grad(own), comm::ReduceOp::Sum));
}

void GradientSync::finish() {
  for (comm::Work& work : in_flight_) work.wait();
  in_flight_.clear();
  if (compression_ != nullptr) compression_->finish();
}

void GradientSync::collect(int block) {
  Bucket& bucket = buckets_[static_cast<size_t>(block)];
  const parallel::FlatRange range = block_at(block).range;
  bucket.memory = arena_->allocate(store_->grad_dtype(), range.size(), MemoryCategory::Communication);
  const Tensor gradients = bucket.memory.view(store_->grad_dtype(), {range.size()});
  store_->forget_grads(range, gradients, *device_);
  store_->bind_grads(range, gradients);
}

void GradientSync::start_reduction(int block) {
  Bucket& bucket = buckets_[static_cast<size_t>(block)];
  const parallel::ShardBlock& b = block_at(block);
  const int shard = grid_->shard().rank();
  ensure(store_->grads_written(b.range), "GradientSync: a gradient of the bucket was not made");
  store_->bind_grads(b.range, {});
  const Tensor all = bucket.memory.view(store_->grad_dtype(), {b.range.size()});
  const auto part = [&](const parallel::FlatRange& range) {
    return all.range(range.begin - b.range.begin, range.end - b.range.begin);
  };
  const Tensor own = part(plan_.shards.shard_of(b, shard));
  const auto begin = [&](comm::Work work) {
    if (overlap_ == Overlap::No) work.wait();
    bucket.work.push_back(std::move(work));
  };
  if (grid_->shard().size() > 1) begin(grid_->shard().reduce_scatter(all, own, comm::ReduceOp::Sum));
  if (plan_.shards.options.states == parallel::StateSharding::AllOfData && grid_->replica().size() > 1) {
    const Tensor piece = part(plan_.shards.owned_of(b, shard, grid_->replica().rank()));
    begin(grid_->replica().reduce_scatter(own, piece, comm::ReduceOp::Sum));
  }
}

void GradientSync::finish_reduction(int block) {
  Bucket& bucket = buckets_[static_cast<size_t>(block)];
  const parallel::ShardBlock& b = block_at(block);
  for (comm::Work& work : bucket.work) work.wait();
  bucket.work.clear();
  const parallel::FlatRange owned = plan_.shards.owned_of(b, grid_->shard().rank(), grid_->replica().rank());
  const Tensor all = bucket.memory.view(store_->grad_dtype(), {b.range.size()});
  const Tensor reduced = all.range(owned.begin - b.range.begin, owned.end - b.range.begin);
  if (bucket.first) {
    device_->copy(reduced, store_->grad(owned));
  } else {
    device_->add(reduced, store_->grad(owned));
  }
  bucket.first = false;
  bucket.memory.reset();
}

}  // namespace triax::train
