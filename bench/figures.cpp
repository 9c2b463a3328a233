#include "bench/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "bench/kernel_calls.h"

namespace triax::bench {
namespace {

/// Nothing to compare with: neither a share nor its name.
void add(std::vector<Figure>& all, Figure figure, double value, double whole, const char* of) {
  if (whole > 0) figure.share = value / whole, figure.of = of;
  all.push_back(std::move(figure));
}

double peak_of(const Hardware& hw, DType dtype) {
  const auto found = hw.peak_flops.find(dtype);
  return found == hw.peak_flops.end() ? 0 : found->second.value;
}

void add_gemms(const Hardware& hw, std::vector<Figure>& all) {
  std::map<std::pair<DType, GemmLayout>, const GemmPoint*> best;
  const auto rate = [](const GemmPoint& p) { return flops_of(p) / p.time_s; };
  for (const GemmPoint& p : hw.gemms) {
    const GemmPoint*& one = best.try_emplace({p.dtype, p.layout}, &p).first->second;
    if (rate(p) > rate(*one)) one = &p;
  }
  for (const auto& [key, p] : best) {
    add(all,
        {fmt::format("gemm {} {}", name_of(p->dtype), name_of(p->layout)),
         fmt::format("{} x {} x {}", p->m, p->n, p->k), rate(*p) / 1e12, "TFLOP/s", 0, ""},
        rate(*p), peak_of(hw, p->dtype), "best gemm");
  }
}

void add_kernels(const Hardware& hw, std::vector<Figure>& all) {
  std::map<std::pair<std::string, DType>, const KernelPoint*> largest;
  for (const KernelPoint& p : hw.kernel_points) {
    const KernelPoint*& one = largest.try_emplace({p.kernel, p.dtype}, &p).first->second;
    if (p.rows * p.cols > one->rows * one->cols) one = &p;
  }
  for (const auto& [key, p] : largest) {
    const std::string what = fmt::format("{} {}", p->kernel, name_of(p->dtype));
    if (const double flops = flops_of(*p) / p->time_s; flops > 0) {
      add(all, {what, fmt::format("s {} d {}", positions_of(*p), p->cols), flops / 1e12, "TFLOP/s", 0, ""}, flops,
          peak_of(hw, p->dtype), "best gemm");
    } else {
      const double speed = bytes_of(*p) / p->time_s;
      add(all, {what, fmt::format("{} x {}", p->rows, p->cols), speed / 1e9, "GB/s", 0, ""}, speed,
          hw.memory_bytes_per_s.value, "copy");
    }
  }
}

double link_speed(const Hardware& hw, int nodes) {
  if (hw.links.empty()) return 0;
  return (nodes > 1 ? hw.links.back() : hw.links.front()).bytes_per_s.value;
}

void add_collectives(const Hardware& hw, std::vector<Figure>& all) {
  using Key = std::tuple<comm::Operation, int, int, DType>;
  std::map<Key, std::pair<const CollectivePoint*, const CollectivePoint*>> ends;
  for (const CollectivePoint& p : hw.collectives) {
    auto& [least, most] = ends.try_emplace({p.operation, p.ranks, p.nodes, p.dtype}, &p, &p).first->second;
    if (p.bytes < least->bytes) least = &p;
    if (p.bytes > most->bytes) most = &p;
  }
  for (const auto& [key, pair] : ends) {
    const auto& [least, most] = pair;
    const double busbw = comm::sent_bytes(most->operation, most->bytes, most->ranks) / most->time_s;
    const std::string what = fmt::format("{} {}, {} ranks on {} node(s)", comm::name_of(most->operation),
                                         name_of(most->dtype), most->ranks, most->nodes);
    add(all, {what, fmt::format("{} bytes", most->bytes), busbw / 1e9, "GB/s", 0, ""}, busbw,
        link_speed(hw, most->nodes), "link");
    all.push_back({what, fmt::format("{} bytes", least->bytes), 1e6 * least->time_s, "us", 0, ""});
  }
}

void add_constants(const Hardware& hw, std::vector<Figure>& all) {
  for (const auto& [name, c] : hw.constants) {
    if (c.origin != Origin::Measured && c.origin != Origin::Fitted) continue;
    if (name.ends_with("_bytes_per_s")) {
      all.push_back({name, "", c.value / 1e9, "GB/s", 0, ""});
    } else if (name.ends_with("_s")) {
      all.push_back({name, "", 1e6 * c.value, "us", 0, ""});
    } else if (name.ends_with("_slowdown") || name.starts_with("sharing_")) {
      all.push_back({name, "", c.value, "x", 0, ""});
    }
  }
}

}  // namespace

std::vector<Figure> figures_of(const Hardware& hw) {
  std::vector<Figure> all;
  if (hw.memory_bytes_per_s.origin == Origin::Measured) {
    all.push_back({"copy, read and written", "", hw.memory_bytes_per_s.value / 1e9, "GB/s", 0, ""});
  }
  add_gemms(hw, all);
  add_kernels(hw, all);
  add_collectives(hw, all);
  add_constants(hw, all);
  return all;
}

}  // namespace triax::bench
