// Below which link speed does compressing gradients pay?
#include <fmt/format.h>

#include <cmath>

#include "plan/ablation/common.h"

namespace triax::plan {
namespace {

struct Method {
  const char* name;
  std::vector<std::string> more;
};
std::vector<Method> methods() {
  return {{"none", {}},
          {"bf16", {}},
          {"int8", {}},
          {"powersgd", {"--grad-compression-rank", "4"}},
          {"topk", {"--grad-compression-density", "0.01"}}};
}

std::vector<Setting> compression_settings(const std::string& name) { return {{"grad-compression", name}}; }

std::vector<PointRequest> compression_points() {
  std::vector<PointRequest> all;
  for (const Method& method : methods()) {
    std::vector<std::string> more = {"--data-parallel-size", "2", "--micro-batch-size", "4"};
    more.insert(more.end(), method.more.begin(), method.more.end());
    all.push_back(real_point(compression_settings(method.name), more));
  }
  return all;
}

/// GB/s of a rank's link at which both take as long, nothing hidden: T_0 + S_0/B = T_c + S_c/B, so
/// B = (S_0 - S_c) / (T_c - T_0), T the step on this machine, where messages go through memory. Below it compression
/// pays; infinity where it costs no time.
double break_even(const AblationRow& none, const AblationRow& one) {
  const double saved = none.row.mean("dp_sent_bytes") - one.row.mean("dp_sent_bytes");
  const double cost_ms = one.row.mean("step_ms") - none.row.mean("step_ms");
  if (saved <= 0) return 0;
  return cost_ms > 0 ? saved * 1e-6 / cost_ms : INFINITY;
}

AblationResult conclude_compression(const AblationData& data) {
  AblationResult result;
  io::Figure figure{.name = "compression",
                    .title = "Gradient compression: step time over the speed of the link",
                    .x_label = "GB/s of a rank's link",
                    .y_label = "step time in ms, nothing hidden",
                    .x_scale = io::Scale::Log10,
                    .y_scale = io::Scale::Log10};
  const AblationRow* none = data.find(compression_settings("none"));
  std::string list;
  int colour = 0;
  for (const Method& method : methods()) {
    const AblationRow* one = data.find(compression_settings(method.name));
    if (one == nullptr || none == nullptr || one->row.done == 0 || none->row.done == 0) continue;
    io::Series line{.label = method.name, .look = io::SeriesLook::Formula, .colour = colour};
    for (double speed = 0.01; speed <= 20; speed *= 1.2) {
      line.x.push_back(speed);
      line.y.push_back(one->row.mean("step_ms") + one->row.mean("dp_sent_bytes") * 1e-6 / speed);
    }
    figure.series.push_back(std::move(line));
    const double speed = break_even(*none, *one);
    if (one != none) {
      list += fmt::format("{}{}: {} instead of {}, {:+.1f} ms, pays {}", list.empty() ? "" : "; ", method.name,
                          mb_text(one->row.mean("dp_sent_bytes")), mb_text(none->row.mean("dp_sent_bytes")),
                          one->row.mean("step_ms") - none->row.mean("step_ms"),
                          std::isinf(speed) ? std::string("at any speed") : fmt::format("below {:.3g} GB/s", speed));
      if (std::isfinite(speed) && speed > 0.01 && speed < 20) {
        io::Series mark{
            .label = fmt::format("{} breaks even", method.name), .look = io::SeriesLook::Points, .colour = colour};
        mark.x = {speed};
        mark.y = {one->row.mean("step_ms") + one->row.mean("dp_sent_bytes") * 1e-6 / speed};
        figure.series.push_back(std::move(mark));
      }
    }
    ++colour;
  }
  result.lines = {list + ".",
                  "Lines: the step measured here, where messages go through memory, plus measured bytes over the "
                  "link's speed. Steps of "
                  "small models on busy cores vary by some ms: --repeats 5."};
  figure.notes = result.lines;
  result.figures = {figure};
  return result;
}

}  // namespace

Ablation compression_ablation() {
  return {"compression", "below which link speed does compressing gradients pay?",
          "B = (S_0 - S_c) / (T_c - T_0): bytes saved over time paid", compression_points, conclude_compression};
}

}  // namespace triax::plan
