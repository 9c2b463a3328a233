#include "plan/device_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace triax::plan {
namespace {

double value_of(const std::map<std::string, bench::Constant>& constants, const char* name, double otherwise) {
  const auto found = constants.find(name);
  return found == constants.end() ? otherwise : found->second.value;
}

double per_s(const bench::Hardware& h, const char* name, double otherwise) {
  const auto found = h.kernels.find(name);
  return found == h.kernels.end() || found->second.per_s.value <= 0 ? otherwise : found->second.per_s.value;
}

double floor_s(const bench::Hardware& h, const char* name, double otherwise) {
  const auto found = h.kernels.find(name);
  return found == h.kernels.end() ? otherwise : found->second.floor_s.value;
}

/// The peak of a dtype the machine names none for: that of the other 16-bit type.
double peak_of(const bench::Hardware& h, DType dtype) {
  const auto found = h.peak_flops.find(dtype);
  if (found != h.peak_flops.end()) return found->second.value;
  const DType other = dtype == DType::BFloat16 ? DType::Float16 : DType::BFloat16;
  const auto sibling = size_of(dtype) == 2 ? h.peak_flops.find(other) : h.peak_flops.end();
  return sibling == h.peak_flops.end() ? 0 : sibling->second.value;
}

/// The peak that kernels["gemm"] and kernels["attention"] refer to.
double reference_peak(const bench::Hardware& h) {
  for (const DType dtype : {DType::BFloat16, DType::Float16, DType::Float32, DType::Float64}) {
    const auto found = h.peak_flops.find(dtype);
    if (found != h.peak_flops.end()) return found->second.value;
  }
  return 0;
}

double best_measured_flops(const std::vector<bench::GemmPoint>& points, DType dtype) {
  double best = 0;
  for (const bench::GemmPoint& p : points) {
    if (p.dtype != dtype || p.time_s <= 0) continue;
    best =
        std::max(best, 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k) / p.time_s);
  }
  return best;
}

}  // namespace

// Under fp8 only the operands of GEMMs are 8 bits wide.
DeviceTimes::DeviceTimes(const bench::Hardware& h, DType dtype)
    : element_bytes_(static_cast<double>(std::max<size_t>(2, size_of(dtype)))) {
  const double measured = best_measured_flops(h.gemms, dtype);
  peak_flops = peak_of(h, dtype);
  if (peak_flops <= 0) peak_flops = measured;
  if (peak_flops <= 0) {
    throw ConfigError(
        fmt::format("--hw {}: its description has neither a peak nor a measured GEMM of {}; name another "
                    "precision or measure with 'triax bench all'",
                    h.name, name_of(dtype)));
  }
  const double reference = reference_peak(h);
  const double scale = reference > 0 ? peak_flops / reference : 1;
  gemm_flops = measured > 0 ? measured : per_s(h, "gemm", 0.75 * reference) * scale;
  if (size_of(dtype) == 1) wide_flops = per_s(h, "gemm", 0.75 * reference);
  gemm_floor_s = floor_s(h, "gemm", 0);
  gemm_bytes_per_s = value_of(h.constants, "gemm_bytes_per_s", h.memory_bytes_per_s.value);
  weight_gradient = value_of(h.constants, "weight_gradient_slowdown", 1);
  memory_bytes_per_s = per_s(h, "norm", 0.8 * h.memory_bytes_per_s.value);
  score_bytes_per_s = memory_bytes_per_s;
  kernel_floor_s = floor_s(h, "norm", 0);
  optimizer_bytes_per_s = per_s(h, "adamw", memory_bytes_per_s);
  const double core = size_of(dtype) == 1 ? 1 : scale;  // attention stays in 16 bits
  attention_flops = per_s(h, "attention", 0.5 * reference) * core;
  attention_backward_flops = per_s(h, "attention_backward", 0.4 * reference) * core;
  attention_floor_s = floor_s(h, "attention", kernel_floor_s);
  for (const bench::GemmPoint& p : h.gemms) {
    if (p.dtype != dtype) continue;
    gemms_[{p.layout, p.accumulate}].push_back(
        {static_cast<double>(p.m), static_cast<double>(p.n), static_cast<double>(p.k), p.time_s});
  }
  std::map<std::string, std::vector<std::pair<double, double>>> kernels;
  for (const bench::KernelPoint& p : h.kernel_points) {
    if (p.dtype == dtype) {
      kernels[p.kernel].emplace_back(static_cast<double>(p.rows) * static_cast<double>(p.cols), p.time_s);
    }
  }
  for (auto& [name, points] : kernels) kernels_.emplace(name, MeasuredCurve(std::move(points), Monotone::Time));
}

double DeviceTimes::roofline_s(const GemmShape& g) const {
  const double bytes = element_bytes_ * (g.m * g.k + g.k * g.n + g.m * g.n);
  const double flops = g.wide && wide_flops > 0 ? wide_flops : gemm_flops;
  const double time = 2 * g.m * g.n * g.k / flops + bytes / gemm_bytes_per_s + gemm_floor_s;
  return g.layout == bench::GemmLayout::NT ? time * weight_gradient : time;
}

double DeviceTimes::measured_s(const std::vector<MeasuredGemm>& points, const GemmShape& g) const {
  // Lines run over the tokens: rows of the product, or what a weight gradient sums over.
  const bool sums_tokens = g.layout == bench::GemmLayout::NT;
  const double tokens = sums_tokens ? g.k : g.m;
  std::vector<std::pair<double, double>> line;
  double weights = 0;
  double logs = 0;
  for (const MeasuredGemm& p : points) {
    if (p.n == g.n && (sums_tokens ? p.m == g.m : p.k == g.k)) line.emplace_back(sums_tokens ? p.k : p.m, p.time_s);
    const double dm = std::log(p.m / g.m);
    const double dn = std::log(p.n / g.n);
    const double dk = std::log(p.k / g.k);
    const double weight = 1 / (1e-6 + std::pow(dm * dm + dn * dn + dk * dk, 1.5));
    weights += weight;
    logs += weight * std::log(p.time_s / roofline_s({g.layout, g.accumulate, p.m, p.n, p.k}));
  }
  if (line.size() > 1) {
    const auto [least, most] = std::minmax_element(line.begin(), line.end());
    if (tokens >= least->first && tokens <= most->first) return MeasuredCurve(std::move(line)).time_s(tokens);
  }
  return roofline_s(g) * std::exp(logs / weights);
}

double DeviceTimes::gemm_s(const GemmShape& g) const {
  if (g.m <= 0 || g.n <= 0 || g.k <= 0) return 0;
  for (const bool accumulate : {g.accumulate, !g.accumulate}) {
    const auto found = gemms_.find({g.layout, accumulate});
    if (found != gemms_.end()) return measured_s(found->second, g);
  }
  if (!gemms_.empty()) return measured_s(gemms_.begin()->second, g);
  return roofline_s(g);
}

double DeviceTimes::batched_gemm_s(double count, double m, double n, double k) const {
  const double bytes = element_bytes_ * count * (m * k + k * n + m * n);
  const double least = std::min({m, n, k});
  const double rate = (wide_flops > 0 ? wide_flops : gemm_flops) * least / (least + batched_half);
  return 2 * count * m * n * k / rate + bytes / score_bytes_per_s + gemm_floor_s;
}

double DeviceTimes::kernel_s(const std::string& name, double rows, double cols) const {
  const auto found = kernels_.find(name);
  return found == kernels_.end() || rows * cols <= 0 ? 0 : found->second.time_s(rows * cols);
}

}  // namespace triax::plan
