#include "parallel/parameter.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/philox.h"

namespace triax::parallel {
namespace {

int64_t product(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

Tensor view_of(Tensor flat, const Parameter& p) {
  const Tensor range = flat.range(p.offset, p.offset + p.numel);
  return p.local_shape.size() == 2 ? range.reshape({p.local_shape[0], p.local_shape[1]}) : range;
}

template <class T>
void initialize(const Parameter& p, uint64_t seed, T* values) {
  const int64_t n = p.true_numel();
  const uint64_t stream = stream_of(p.name);
#pragma omp parallel for schedule(static) if (n > 65536)
  for (int64_t i = 0; i < n; ++i) {
    switch (p.init) {
      case InitKind::Zeros:
        values[i] = T{0};
        break;
      case InitKind::Ones:
        values[i] = T{1};
        break;
      case InitKind::Normal:
        values[i] = static_cast<T>(p.init_std * normal_at(seed, stream, static_cast<uint64_t>(p.global_index(i))));
        break;
    }
  }
}

}  // namespace

int64_t Parameter::true_numel() const {
  if (local_shape.empty()) return 0;
  const size_t cut = spec.cut_dim < 0 ? 0 : static_cast<size_t>(spec.cut_dim);
  return numel / local_shape[cut] * spec.count;
}

int64_t Parameter::global_index(int64_t i) const {
  if (spec.cut_dim <= 0) {
    // Cut along the first dimension, or not at all: local rows are a contiguous run of global rows.
    const int64_t row_size = product(spec.global_shape) / spec.global_shape[0];
    return spec.begin * row_size + i;
  }
  const int64_t cols = local_shape[1];
  return i / cols * spec.global_shape[1] + spec.begin + i % cols;
}

void ParameterStore::begin_unit(std::string name, int chunk) {
  units_.push_back({std::move(name), chunk, numel_, numel_});
}

size_t ParameterStore::add(std::vector<Parameter> group) {
  ensure(!units_.empty() && !group.empty(), "ParameterStore::add: no unit begun, or an empty group");
  const size_t first = parameters_.size();
  for (Parameter& p : group) {
    p.unit = static_cast<int>(units_.size()) - 1;
    p.offset = numel_;
    p.numel = product(p.local_shape);
    numel_ += p.numel;
    parameters_.push_back(std::move(p));
  }
  numel_ = (numel_ + kParameterAlignment - 1) / kParameterAlignment * kParameterAlignment;
  units_.back().end = numel_;
  return first;
}

void ParameterStore::allocate(DType weight_dtype, DType grad_dtype, Arena& arena, kernels::Device& device) {
  weight_buffer_ = arena.allocate(weight_dtype, numel_, MemoryCategory::Parameters);
  flat_weight_ = weight_buffer_.view(weight_dtype, {numel_});
  grad_buffer_ = arena.allocate(grad_dtype, numel_, MemoryCategory::Gradients);
  flat_grad_ = grad_buffer_.view(grad_dtype, {numel_});
  device.fill(flat_weight_, 0);
  device.fill(flat_grad_, 0);
  for (Parameter& p : parameters_) {
    p.weight = view_of(flat_weight_, p);
    p.grad = view_of(flat_grad_, p);
  }
}

Tensor ParameterStore::fused(Tensor flat, size_t index, size_t count) const {
  const Parameter& first = parameters_[index];
  int64_t numel = 0;
  for (size_t i = index; i < index + count; ++i) {
    ensure(parameters_[i].offset == first.offset + numel, "ParameterStore: fused parameters are not adjacent");
    numel += parameters_[i].numel;
  }
  const Tensor range = flat.range(first.offset, first.offset + numel);
  if (first.local_shape.size() == 1) return range;
  return range.reshape({numel / first.local_shape[1], first.local_shape[1]});
}

Tensor ParameterStore::fused_weight(size_t index, size_t count) const { return fused(flat_weight_, index, count); }
Tensor ParameterStore::fused_grad(size_t index, size_t count) const { return fused(flat_grad_, index, count); }

void initialize_parameters(const ParameterStore& store, uint64_t seed, Tensor values) {
  ensure(values.numel() == store.numel(), "initialize_parameters: values must be as long as the store");
  std::fill_n(static_cast<char*>(values.data()), values.bytes(), char{0});
  for (const Parameter& p : store.parameters()) {
    if (values.dtype() == DType::Float64) {
      initialize(p, seed, values.as<double>() + p.offset);
    } else {
      initialize(p, seed, values.as<float>() + p.offset);
    }
  }
}

std::vector<GradientBucket> make_buckets(const ParameterStore& store, int64_t bucket_size) {
  std::vector<GradientBucket> buckets;
  const auto& units = store.units();
  for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
    const bool open = !buckets.empty() && buckets.back().chunk == unit->chunk &&
                      buckets.back().end - buckets.back().begin < bucket_size && buckets.back().begin == unit->end;
    if (open) {
      buckets.back().begin = unit->begin;
    } else {
      buckets.push_back({unit->begin, unit->end, unit->chunk});
    }
  }
  return buckets;
}

}  // namespace triax::parallel
