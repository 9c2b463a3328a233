#include "train/gradient_sync.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <sstream>

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

SyncPlan make_sync_plan(const parallel::ParameterStore& store, int chunks, int64_t bucket_size) {
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
  plan.buckets = parallel::make_buckets(store, bucket_size);
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
    for (size_t b = 0; b < plan.buckets.size(); ++b) {
      if (p.offset >= plan.buckets[b].begin && p.offset < plan.buckets[b].end) fmt::format_to(out, ", dp bucket {}", b);
    }
    text += '\n';
    out = std::back_inserter(text);
  }
  return text;
}

GradientSync::GradientSync(SyncPlan plan, parallel::ParameterStore& store, comm::ProcessGrid& grid,
                           kernels::Device& device, Arena& arena, Overlap overlap, const SkippedSync& skipped)
    : plan_(std::move(plan)), store_(&store), grid_(&grid), device_(&device), overlap_(overlap), skipped_(skipped) {
  const DType dtype = store.flat_grad().dtype();
  const int64_t tensor = longest(&SyncPlan::ChunkPlan::tensor);
  const int64_t kv = longest(&SyncPlan::ChunkPlan::kv_replicas);
  const auto pack = [&](Buffer& buffer, int64_t elements) {
    if (elements == 0) return Tensor();
    buffer = arena.allocate(dtype, elements, MemoryCategory::Communication);
    return buffer.view(dtype, {elements});
  };
  tensor_pack_ = pack(tensor_buffer_, tensor);
  kv_pack_ = pack(kv_buffer_, kv);
  in_flight_.reserve(plan_.buckets.size());
}

int64_t GradientSync::longest(const std::vector<size_t> SyncPlan::ChunkPlan::*list) const {
  int64_t most = 0;
  for (const SyncPlan::ChunkPlan& chunk : plan_.chunks) {
    int64_t numel = 0;
    for (const size_t i : chunk.*list) numel += store_->at(i).numel;
    most = std::max(most, numel);
  }
  return most;
}

void GradientSync::sum_packed(const std::vector<size_t>& indices, comm::Communicator& group, Tensor pack) {
  if (indices.empty() || group.size() == 1) return;
  int64_t used = 0;
  for (const size_t i : indices) {
    const Parameter& p = store_->at(i);
    device_->copy(p.grad.flat(), pack.range(used, used + p.numel));
    used += p.numel;
  }
  device_->synchronize();
  group.all_reduce(pack.range(0, used), comm::ReduceOp::Sum).wait();
  used = 0;
  for (const size_t i : indices) {
    const Parameter& p = store_->at(i);
    device_->copy(pack.range(used, used + p.numel), p.grad.flat());
    used += p.numel;
  }
}

void GradientSync::sum_tensor_partial(int chunk) {
  const SyncPlan::ChunkPlan& plan = plan_.chunks[static_cast<size_t>(chunk)];
  if (skipped_.tensor) return;
  sum_packed(plan.tensor, grid_->tensor(), tensor_pack_);
  sum_packed(plan.kv_replicas, grid_->kv_replicas(), kv_pack_);
}

void GradientSync::sum_tied() {
  if (!skipped_.tied && plan_.tied.size() == 2) {  // both copies are chunks of this position
    const Tensor first = store_->at(plan_.tied[0]).grad.flat();
    const Tensor second = store_->at(plan_.tied[1]).grad.flat();
    device_->add(first, second);
    device_->copy(second, first);
    return;
  }
  if (skipped_.tied || grid_->embedding().size() == 1) return;
  device_->synchronize();
  for (const size_t i : plan_.tied) {
    grid_->embedding().all_reduce(store_->at(i).grad.flat(), comm::ReduceOp::Sum).wait();
  }
}

void GradientSync::reduce(int bucket) {
  if (skipped_.data || grid_->data().size() == 1) return;
  const parallel::GradientBucket& b = plan_.buckets[static_cast<size_t>(bucket)];
  device_->synchronize();
  comm::Work work = grid_->data().all_reduce(store_->flat_grad().range(b.begin, b.end), comm::ReduceOp::Sum);
  if (overlap_ == Overlap::No) {
    work.wait();
  } else {
    in_flight_.push_back(std::move(work));
  }
}

void GradientSync::finish() {
  for (comm::Work& work : in_flight_) work.wait();
  in_flight_.clear();
}

}  // namespace triax::train
