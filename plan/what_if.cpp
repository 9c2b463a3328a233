#include "plan/what_if.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <tuple>

#include "base/error.h"
#include "io/options/values.h"

namespace triax::plan {
namespace {

using bench::Constant;
using bench::Hardware;
using bench::Link;

std::string full_name(const std::string& name) { return name == "ib" ? "infiniband" : name; }

void scale(Constant& constant, double factor) {
  constant.value *= factor;
  constant.source += fmt::format(" x {}", factor);
}

bool is_flops(const std::string& kernel) { return kernel == "gemm" || kernel.rfind("attention", 0) == 0; }

void scale_flops(Hardware& h, double factor) {
  for (auto& [dtype, peak] : h.peak_flops) scale(peak, factor);
  for (auto& [name, kernel] : h.kernels) {
    if (is_flops(name)) scale(kernel.per_s, factor);
  }
  for (bench::GemmPoint& point : h.gemms) point.time_s /= factor;
  for (bench::KernelPoint& point : h.kernel_points) {
    if (is_flops(point.kernel)) point.time_s /= factor;
  }
}

/// Measured collectives that cross link `level`, the innermost that spans their ranks.
bool crosses(const Hardware& h, const bench::CollectivePoint& point, size_t level) {
  const bool inner = level + 1 < h.links.size();
  if (point.nodes <= 1) return level == 0;
  return inner ? h.links[level].ranks > h.devices_per_node : true;
}

void scale_link(Hardware& h, size_t level, double factor) {
  scale(h.links[level].bytes_per_s, factor);
  using Series = std::tuple<comm::Operation, int, int>;
  std::map<Series, double> floors;
  const auto series = [](const bench::CollectivePoint& p) { return Series{p.operation, p.ranks, p.nodes}; };
  for (const bench::CollectivePoint& point : h.collectives) {
    const auto [floor, added] = floors.try_emplace(series(point), point.time_s);
    floor->second = std::min(floor->second, point.time_s);
  }
  for (bench::CollectivePoint& point : h.collectives) {
    if (!crosses(h, point, level)) continue;
    const double floor = floors.at(series(point));
    point.time_s = floor + (point.time_s - floor) / factor;
  }
}

}  // namespace

bool is_factor(double value) { return value >= 1e-3 && value <= 1e3; }

std::map<std::string, double> parse_bandwidth_factors(const std::string& text) {
  std::map<std::string, double> factors;
  std::istringstream words(text);
  std::string word;
  while (std::getline(words, word, ',')) {
    const size_t equals = word.find('=');
    const std::optional<double> factor =
        equals == std::string::npos ? std::nullopt : io::parse_real(word.substr(equals + 1));
    if (equals == 0 || !factor || !is_factor(*factor)) {
      throw ConfigError(fmt::format(
          "--scale-bw {}: must be LINK=FACTOR with a factor from 0.001 to 1000, such as nvlink=2,infiniband=0.5",
          word));
    }
    factors[full_name(word.substr(0, equals))] = *factor;
  }
  return factors;
}

Hardware scaled(const Hardware& hardware, const WhatIf& what_if) {
  Hardware h = hardware;
  if (!(what_if.flops > 0)) {
    throw ConfigError(fmt::format("--scale-flops {}: must be a positive number", what_if.flops));
  }
  if (what_if.flops != 1) scale_flops(h, what_if.flops);
  for (const auto& [name, factor] : what_if.bandwidth) {
    const auto link = std::find_if(h.links.begin(), h.links.end(), [&](const Link& l) { return l.name == name; });
    if (link == h.links.end()) {
      std::vector<std::string> names;
      for (const Link& l : h.links) names.push_back(l.name);
      throw ConfigError(
          fmt::format("--scale-bw {}: {} has no such link; it has {}", name, h.name, fmt::join(names, ", ")));
    }
    scale_link(h, static_cast<size_t>(link - h.links.begin()), factor);
  }
  if (what_if.asked()) h.description += "; scaled by --scale-bw or --scale-flops";
  return h;
}

}  // namespace triax::plan
