#include "plan/device_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace triax::plan {
namespace {

double constant_of(const std::map<std::string, bench::Constant>& constants, const char* name, double otherwise) {
  const auto found = constants.find(name);
  return found == constants.end() ? otherwise : found->second.value;
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

bench::Hardware with_defaults(const bench::Hardware& hardware, DType dtype) {
  bench::Hardware h = hardware;
  if (!(h.memory_bytes_per_s.value > 0)) {
    throw ConfigError(
        fmt::format("--hw {}: memory_bytes_per_s, the bandwidth of a device's memory, must be above 0; 'triax bench "
                    "all' measures it",
                    h.name));
  }
  if (peak_of(h, dtype) <= 0 && best_measured_flops(h.gemms, dtype) <= 0) {
    throw ConfigError(
        fmt::format("--hw {}: its description has neither a peak nor a measured GEMM of {}; name another "
                    "precision or measure with 'triax bench all'",
                    h.name, name_of(dtype)));
  }
  if (h.memory_bytes_per_s.value <= 0) {
    throw ConfigError(
        fmt::format("--hw {}: its description has no speed of memory (memory_bytes_per_s is 0): 'triax bench all' "
                    "measures it, else write the published bytes per second",
                    h.name));
  }
  const double peak = reference_peak(h) > 0 ? reference_peak(h) : best_measured_flops(h.gemms, dtype);
  const auto fill = [&](const char* kernel, double per_s, const char* why) {
    bench::Throughput& entry = h.kernels[kernel];
    if (entry.per_s.value <= 0) entry.per_s = {per_s, bench::Origin::Assumed, why};
  };
  fill("gemm", 0.75 * peak, "not in the machine's description: 75 % of its peak");
  if (!h.kernels.contains("attention")) h.kernels["attention"].floor_s = h.kernels["norm"].floor_s;
  fill("attention", 0.5 * peak, "not in the machine's description: half of its peak");
  fill("attention_backward", 0.4 * peak, "not in the machine's description: 40 % of its peak");
  fill("norm", 0.8 * h.memory_bytes_per_s.value, "not in the machine's description: 80 % of its memory's bandwidth");
  fill("adamw", h.kernels.at("norm").per_s.value, "not in the machine's description: as norms");
  if (!h.constants.contains("gemm_bytes_per_s")) {
    h.constants["gemm_bytes_per_s"] = {h.memory_bytes_per_s.value, bench::Origin::Assumed,
                                       "not in the machine's description: its memory's bandwidth"};
  }
  return h;
}

// Under fp8 only the operands of GEMMs are 8 bits wide.
DeviceTimes::DeviceTimes(const bench::Hardware& hardware, DType dtype)
    : element_bytes_(static_cast<double>(std::max<size_t>(2, size_of(dtype)))) {
  const bench::Hardware h = with_defaults(hardware, dtype);
  const double measured = best_measured_flops(h.gemms, dtype);
  peak_flops = peak_of(h, dtype) > 0 ? peak_of(h, dtype) : measured;
  const double reference = reference_peak(h);
  const double scale = reference > 0 ? peak_flops / reference : 1;
  const auto per_s = [&](const char* kernel) { return h.kernels.at(kernel).per_s.value; };
  const auto floor_s = [&](const char* kernel) { return h.kernels.at(kernel).floor_s.value; };
  gemm_flops = measured > 0 ? measured : per_s("gemm") * scale;
  if (size_of(dtype) == 1) wide_flops = per_s("gemm");
  gemm_floor_s = floor_s("gemm");
  gemm_bytes_per_s = h.constants.at("gemm_bytes_per_s").value;
  weight_gradient = constant_of(h.constants, "weight_gradient_slowdown", 1);
  multiprocessors = constant_of(h.constants, "multiprocessors", 0);
  small_tile_share = constant_of(h.constants, "small_tile_share", 1);
  split_depth = constant_of(h.constants, "split_depth", 0);
  unaligned_share = constant_of(h.constants, "unaligned_share", 1);
  memory_bytes_per_s = per_s("norm");
  score_bytes_per_s = memory_bytes_per_s;
  kernel_floor_s = floor_s("norm");
  optimizer_bytes_per_s = per_s("adamw");
  const double core = size_of(dtype) == 1 ? 1 : scale;  // attention stays in 16 bits
  attention_flops = per_s("attention") * core;
  attention_backward_flops = per_s("attention_backward") * core;
  attention_floor_s = floor_s("attention");
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

double DeviceTimes::waves(const GemmShape& g) const {
  if (multiprocessors <= 0) return 1;
  struct Tile {
    double m, n, share;
  };
  const double small = small_tile_share;
  const Tile tiles[] = {
      {256, 128, 1}, {128, 256, 1}, {128, 128, small}, {128, 64, small * small}, {64, 128, small * small}};
  constexpr int kMostCuts = 8;
  constexpr double kLeastDepth = 1024;  // of k that a cut keeps
  double best = std::numeric_limits<double>::infinity();
  for (const Tile& tile : tiles) {
    const double count = std::ceil(g.m / tile.m) * std::ceil(g.n / tile.n);
    const double whole = multiprocessors * tile.m * tile.n / (g.m * g.n) / tile.share;
    for (int cuts = 1; cuts <= kMostCuts && (cuts == 1 || g.k >= cuts * kLeastDepth); ++cuts) {
      const double time =
          std::ceil(count * cuts / multiprocessors) / cuts * whole * (1 + split_depth * (cuts - 1) / g.k);
      best = std::min(best, time);
    }
  }
  return best;
}

double DeviceTimes::alignment(const GemmShape& g) const {
  if (unaligned_share >= 1) return 1;
  const bool sums_tokens = g.layout == bench::GemmLayout::NT;
  int doublings = 3;  // 8 elements of 16 bits are the widest load
  for (const double contiguous : {g.n, sums_tokens ? g.m : g.k}) {
    int own = 0;
    while (own < doublings && std::fmod(contiguous, 2 << own) == 0) ++own;
    doublings = own;
  }
  return std::pow(unaligned_share, (3 - doublings) / 3.0);
}

double DeviceTimes::roofline_s(const GemmShape& g) const {
  const double bytes = element_bytes_ * (g.m * g.k + g.k * g.n + g.m * g.n);
  const double flops = g.wide && wide_flops > 0 ? wide_flops : gemm_flops;
  const double time = waves(g) * 2 * g.m * g.n * g.k / (flops * alignment(g)) + bytes / gemm_bytes_per_s + gemm_floor_s;
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
  const double rate = (wide_flops > 0 ? wide_flops : gemm_flops) / (1 + std::pow(batched_half / least, batched_power));
  return 2 * count * m * n * k / rate + bytes / score_bytes_per_s + gemm_floor_s;
}

double DeviceTimes::kernel_s(const std::string& name, double rows, double cols) const {
  const auto found = kernels_.find(name);
  return found == kernels_.end() || rows * cols <= 0 ? 0 : found->second.time_s(rows * cols);
}

}  // namespace triax::plan
