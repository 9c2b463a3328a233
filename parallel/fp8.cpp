#include "parallel/fp8.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/fp8.h"

namespace triax::parallel {

Fp8Scales::Fp8Scales(const Fp8Options& options, int64_t layers, kernels::Device& device, Arena& arena)
    : options_(options), device_(&device), count_(static_cast<size_t>(layers * 4 * kParts)) {
  history_.resize(static_cast<size_t>(options.amax_history_len) * count_);
  amax_.resize(count_);
  factors_.resize(2 * count_);
  known_.resize(count_);
  const auto n = static_cast<int64_t>(count_);
  memory_ = arena.allocate(DType::Float32, 3 * n, MemoryCategory::Workspace);
  const Tensor all = memory_.view(DType::Float32, {3 * n});
  device_factors_ = all.range(0, 2 * n);
  device_amax_ = all.range(2 * n, 3 * n);
  start_step();
}

size_t Fp8Scales::index(Fp8Site site, Fp8Part part) const {
  return static_cast<size_t>((site.layer * 4 + static_cast<int64_t>(site.place)) * kParts + static_cast<int64_t>(part));
}

DType Fp8Scales::type_of(size_t index) const {
  const bool gradient = index % kParts == static_cast<size_t>(Fp8Part::Gradient);
  return gradient && options_.format == Fp8Format::Hybrid ? DType::Float8E5M2 : DType::Float8E4M3;
}

kernels::Fp8Operand Fp8Scales::operand(Fp8Site site, Fp8Part part) const {
  const size_t i = index(site, part);
  const auto at = static_cast<int64_t>(i);
  return {type_of(i), device_factors_.range(2 * at, 2 * at + 2), device_amax_.range(at, at + 1),
          known_[i] ? kernels::Fp8Scaling::Delayed : kernels::Fp8Scaling::Current, options_.margin};
}

void Fp8Scales::set(kernels::Gemm& product, Fp8Site site, Fp8Part a, Fp8Part b) const {
  product.fp8_a = operand(site, a);
  product.fp8_b = operand(site, b);
}

/// factor = largest value of the type / 2^margin / amax, amax the newest of the history or its largest.
void Fp8Scales::make_factors() {
  for (size_t i = 0; i < count_; ++i) {
    float amax = 0;
    for (int64_t age = 0; age < history_len(); ++age) {
      amax = std::max(amax, at(age, i));
      if (amax > 0 && options_.algorithm == AmaxAlgorithm::MostRecent) break;
    }
    known_[i] = amax > 0;
    const float factor = known_[i] ? std::ldexp(fp8_max(type_of(i)), -options_.margin) / amax : 1.0f;
    factors_[2 * i] = std::min(factor, std::numeric_limits<float>::max());
    factors_[2 * i + 1] = 1 / factors_[2 * i];
  }
}

void Fp8Scales::start_step() {
  make_factors();
  device_->upload(Tensor(factors_.data(), DType::Float32, {static_cast<int64_t>(factors_.size())}), device_factors_);
  device_->fill(device_amax_, 0);
}

void Fp8Scales::finish_step(comm::Communicator& world) {
  const Tensor mine(amax_.data(), DType::Float32, {static_cast<int64_t>(count_)});
  device_->download(device_amax_, mine);
  world.all_reduce(mine, comm::ReduceOp::Max).wait();
  newest_ = (newest_ + history_len() - 1) % history_len();
  for (size_t i = 0; i < count_; ++i) {
    const float before = at(history_len() > 1 ? 1 : 0, i);
    at(0, i) = std::isfinite(amax_[i]) && amax_[i] > 0 ? amax_[i] : before;
  }
}

std::vector<float> Fp8Scales::history(Fp8Site site) const {
  std::vector<float> rows(static_cast<size_t>(history_len() * kParts));
  for (int64_t age = 0; age < history_len(); ++age) {
    const size_t row = static_cast<size_t>((newest_ + age) % history_len()) * count_;
    for (int64_t part = 0; part < kParts; ++part) {
      rows[static_cast<size_t>(age * kParts + part)] = history_[row + index(site, static_cast<Fp8Part>(part))];
    }
  }
  return rows;
}

void Fp8Scales::set_history(Fp8Site site, const std::vector<float>& rows) {
  for (int64_t age = 0; age < history_len(); ++age) {
    for (int64_t part = 0; part < kParts; ++part) {
      const auto from = static_cast<size_t>(age * kParts + part);
      at(age, index(site, static_cast<Fp8Part>(part))) = from < rows.size() ? rows[from] : 0.0f;
    }
  }
}

}  // namespace triax::parallel
