#include "train/gradient_norm.h"

#include <algorithm>

#include "train/host_values.h"

namespace triax::train {

std::vector<FlatRange> counted_ranges(const parallel::ParameterStore& store) {
  std::vector<const parallel::Parameter*> ordered;
  for (const parallel::Parameter& p : store.parameters()) ordered.push_back(&p);
  std::sort(ordered.begin(), ordered.end(), [](const auto* a, const auto* b) { return a->offset < b->offset; });
  std::vector<FlatRange> ranges;
  bool join = false;
  for (const parallel::Parameter* p : ordered) {
    const bool counts = p->spec.replica == 0 && !p->tied_copy;
    if (counts && join) {
      ranges.back().end = p->offset + p->numel;
    } else if (counts) {
      ranges.push_back({p->offset, p->offset + p->numel});
    }
    join = counts;
  }
  return ranges;
}

std::vector<FlatRange> parts_within(const std::vector<FlatRange>& ranges, std::span<const FlatRange> owned) {
  std::vector<FlatRange> parts;
  for (const FlatRange& range : ranges) {
    for (const FlatRange& own : owned) {
      const FlatRange part = parallel::intersection(range, own);
      if (part.size() > 0) parts.push_back(part);
    }
  }
  return parts;
}

GradientNorm::GradientNorm(const parallel::ParameterStore& store, std::vector<FlatRange> ranges,
                           comm::Communicator& group, kernels::Device& device, Arena& arena)
    : store_(&store),
      ranges_(std::move(ranges)),
      group_(&group),
      device_(&device),
      sum_buffer_(arena.allocate(DType::Float64, 1, MemoryCategory::Workspace)),
      sum_(sum_buffer_.view(DType::Float64, {1})) {}

double GradientNorm::sum_of_squares() {
  device_->fill(sum_, 0);
  for (const FlatRange& range : ranges_) device_->sum_of_squares(store_->grad(range), sum_);
  double sum = scalar_of(*device_, sum_);
  group_->all_reduce(Tensor(&sum, DType::Float64, {1}), comm::ReduceOp::Sum).wait();
  return sum;
}

double mean_factor(int64_t micro_batch_tokens, double loss_scale, double global_tokens) {
  return static_cast<double>(micro_batch_tokens) / (loss_scale * global_tokens);
}

double clip_factor(double clip, double norm) {
  if (clip <= 0) return 1;
  return std::min(1.0, clip / (norm + 1e-6));
}

std::string first_nonfinite(const parallel::ParameterStore& store, kernels::Device& device, Arena& arena) {
  const Buffer buffer = arena.allocate(DType::Float64, 1, MemoryCategory::Workspace);
  const Tensor count = buffer.view(DType::Float64, {1});
  for (const parallel::Parameter& p : store.parameters()) {
    device.fill(count, 0);
    for (const FlatRange& part : parts_within({p.range()}, store.held().gradients)) {
      device.count_nonfinite(store.grad(part), count);
    }
    if (scalar_of(device, count) > 0) return p.name;
  }
  return "";
}

}  // namespace triax::train
