#include "parallel/parameter.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/philox.h"

namespace triax::parallel {
namespace {

Tensor shaped(Tensor flat, const Parameter& p) {
  return p.local_shape.size() == 2 ? flat.reshape({p.local_shape[0], p.local_shape[1]}) : flat;
}

int64_t aligned(int64_t elements, int64_t alignment) { return (elements + alignment - 1) / alignment * alignment; }

// Elements [begin, end) of the parameter.
template <class T>
void initialize(const Parameter& p, uint64_t seed, int64_t begin, int64_t end, T* values) {
  const uint64_t stream = stream_of(p.name);
#pragma omp parallel for schedule(static) if (end - begin > 65536)
  for (int64_t i = begin; i < end; ++i) {
    T& value = values[i - begin];
    switch (p.init) {
      case InitKind::Zeros:
        value = T{0};
        break;
      case InitKind::Ones:
        value = T{1};
        break;
      case InitKind::Normal:
        value = static_cast<T>(p.init_std * normal_at(seed, stream, static_cast<uint64_t>(p.global_index(i))));
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
    const int64_t row_size = elements_of(spec.global_shape) / spec.global_shape[0];
    return spec.begin * row_size + i;
  }
  const int64_t cols = local_shape[1];
  return i / cols * spec.global_shape[1] + spec.begin + i % cols;
}

void ParameterStore::begin_unit(std::string name, int chunk, UnitKind kind) {
  units_.push_back({std::move(name), chunk, kind});
}

size_t ParameterStore::add(std::vector<Parameter> group) {
  ensure(!units_.empty() && !group.empty(), "ParameterStore::add: no unit begun, or an empty group");
  const size_t first = parameters_.size();
  const int unit = static_cast<int>(units_.size()) - 1;
  groups_.push_back({first, group.size(), unit, {}});
  for (Parameter& p : group) {
    p.unit = unit;
    p.offset = numel_;
    p.numel = elements_of(p.local_shape);
    numel_ += p.numel;
    parameters_.push_back(std::move(p));
  }
  numel_ = aligned(numel_, kParameterAlignment);
  return first;
}

void ParameterStore::share(size_t index) {
  for (ParameterGroup& group : groups_) {
    if (index >= group.first && index < group.first + group.count) {
      group.users.push_back(static_cast<int>(units_.size()) - 1);
    }
  }
}

int64_t ParameterStore::padded_numel(const ParameterGroup& group) const {
  int64_t numel = 0;
  for (size_t i = group.first; i < group.first + group.count; ++i) numel += parameters_[i].numel;
  return aligned(numel, kParameterAlignment);
}

std::vector<FlatRange> ParameterStore::place(const std::vector<std::vector<size_t>>& blocks, int64_t alignment) {
  ensure(!weights_.buffer, "ParameterStore::place: after allocate");
  std::vector<FlatRange> ranges;
  size_t placed = 0;
  numel_ = 0;
  for (const std::vector<size_t>& block : blocks) {
    const int64_t begin = numel_;
    for (const size_t g : block) {
      const ParameterGroup& group = groups_[g];
      int64_t offset = numel_;
      for (size_t i = group.first; i < group.first + group.count; ++i) {
        parameters_[i].offset = offset;
        offset += parameters_[i].numel;
      }
      numel_ += padded_numel(group);
      ++placed;
    }
    numel_ = begin + aligned(numel_ - begin, alignment);
    ranges.push_back({begin, numel_});
  }
  ensure(placed == groups_.size(), "ParameterStore::place: every group once");
  return ranges;
}

void ParameterStore::allocate(DType weight_dtype, DType grad_dtype, Arena& arena, kernels::Device& device) {
  allocate(weight_dtype, grad_dtype, arena, device, {{{0, numel_}}, {{0, numel_}}});
}

void ParameterStore::allocate(DType weight_dtype, DType grad_dtype, Arena& arena, kernels::Device& device,
                              HeldRanges held) {
  held_ = std::move(held);
  products_.clear();
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].by_product) products_.push_back(g);
  }
  std::sort(products_.begin(), products_.end(),
            [&](size_t a, size_t b) { return range_of(groups_[a]).begin < range_of(groups_[b]).begin; });
  make_storage(weights_, weight_dtype, held_.weights, arena, device, MemoryCategory::Parameters, &Parameter::weight);
  make_storage(grads_, grad_dtype, held_.gradients, arena, device, MemoryCategory::Gradients, &Parameter::grad);
}

void ParameterStore::make_storage(Storage& storage, DType dtype, const std::vector<FlatRange>& held, Arena& arena,
                                  kernels::Device& device, MemoryCategory category, View view) {
  int64_t numel = 0;
  storage.dtype = dtype;
  for (const FlatRange& range : held) {
    storage.begin.push_back(numel);
    numel += range.size();
  }
  storage.buffer = arena.allocate(dtype, numel, category);
  storage.all = storage.buffer.view(dtype, {numel});
  device.fill(storage.all, 0);
  for (Parameter& p : parameters_) {
    for (const FlatRange& range : held) {
      if (range.contains(p.range())) p.*view = shaped(part(storage, held, p.range()), p);
    }
  }
}

Tensor ParameterStore::part(const Storage& storage, const std::vector<FlatRange>& held, FlatRange range) const {
  for (size_t i = 0; i < held.size(); ++i) {
    if (!held[i].contains(range)) continue;
    const int64_t begin = storage.begin[i] + range.begin - held[i].begin;
    return storage.all.range(begin, begin + range.size());
  }
  ensure(false, "ParameterStore: this rank does not hold that part of the flat array");
  return {};
}

Tensor ParameterStore::weight(FlatRange range) const { return part(weights_, held_.weights, range); }
Tensor ParameterStore::grad(FlatRange range) const { return part(grads_, held_.gradients, range); }
Tensor ParameterStore::flat_weight() const { return weight({0, numel_}); }
Tensor ParameterStore::flat_grad() const { return grad({0, numel_}); }

void ParameterStore::bind(FlatRange range, Tensor memory, View view) {
  for (Parameter& p : parameters_) {
    if (p.numel == 0 || !range.contains(p.range())) continue;
    const int64_t begin = p.offset - range.begin;
    p.*view = memory ? shaped(memory.range(begin, begin + p.numel), p) : Tensor();
  }
}

void ParameterStore::bind_weights(FlatRange range, Tensor memory) { bind(range, memory, &Parameter::weight); }
void ParameterStore::bind_grads(FlatRange range, Tensor memory) { bind(range, memory, &Parameter::grad); }

FlatRange ParameterStore::range_of(const ParameterGroup& group) const {
  return {parameters_[group.first].offset, parameters_[group.first + group.count - 1].range().end};
}

ParameterGroup& ParameterStore::group_at(size_t index) {
  const auto found = std::find_if(groups_.begin(), groups_.end(), [&](const auto& g) { return g.first == index; });
  ensure(found != groups_.end(), "ParameterStore: no group begins at that parameter");
  return *found;
}

void ParameterStore::first_grad_by_product(size_t index) {
  ensure(!grads_.buffer, "ParameterStore::first_grad_by_product: after allocate");
  group_at(index).by_product = true;
}

void ParameterStore::forget_grads(FlatRange range, Tensor memory, kernels::Device& device) {
  int64_t zeroed = range.begin;
  const auto zero_until = [&](int64_t end) {
    if (end > zeroed) device.fill(memory.range(zeroed - range.begin, end - range.begin), 0);
  };
  for (const size_t g : products_) {
    const FlatRange own = range_of(groups_[g]);
    if (!range.contains(own)) continue;
    zero_until(own.begin);
    zeroed = own.end;
    groups_[g].forgotten = true;
  }
  zero_until(range.end);
}

void ParameterStore::forget_held_grads(kernels::Device& device) {
  for (const FlatRange& range : held_.gradients) forget_grads(range, grad(range), device);
}

kernels::Accumulate ParameterStore::accumulation(size_t index) {
  return std::exchange(group_at(index).forgotten, false) ? kernels::Accumulate::No : kernels::Accumulate::Yes;
}

bool ParameterStore::grads_written(FlatRange range) const {
  return std::none_of(products_.begin(), products_.end(),
                      [&](size_t g) { return groups_[g].forgotten && range.contains(range_of(groups_[g])); });
}

Tensor ParameterStore::fused(View view, size_t index, size_t count) const {
  const Parameter& first = parameters_[index];
  int64_t numel = 0;
  for (size_t i = index; i < index + count; ++i) {
    ensure(parameters_[i].offset == first.offset + numel, "ParameterStore: fused parameters are not adjacent");
    numel += parameters_[i].numel;
  }
  const Tensor memory = first.*view;
  if (!memory) return {};
  const Tensor range(memory.data(), memory.dtype(), {numel});
  if (first.local_shape.size() == 1) return range;
  return range.reshape({numel / first.local_shape[1], first.local_shape[1]});
}

Tensor ParameterStore::fused_weight(size_t index, size_t count) const {
  return fused(&Parameter::weight, index, count);
}
Tensor ParameterStore::fused_grad(size_t index, size_t count) const { return fused(&Parameter::grad, index, count); }

void initialize_parameters(const ParameterStore& store, uint64_t seed, FlatRange range, Tensor values) {
  ensure(values.numel() == range.size(), "initialize_parameters: values must be as long as the range");
  std::fill_n(static_cast<char*>(values.data()), values.bytes(), char{0});
  for (const Parameter& p : store.parameters()) {
    const FlatRange own = intersection({p.offset, p.offset + p.true_numel()}, range);
    if (own.size() <= 0) continue;
    const int64_t at = own.begin - range.begin;
    if (values.dtype() == DType::Float64) {
      initialize(p, seed, own.begin - p.offset, own.end - p.offset, values.as<double>() + at);
    } else {
      initialize(p, seed, own.begin - p.offset, own.end - p.offset, values.as<float>() + at);
    }
  }
}

}  // namespace triax::parallel
