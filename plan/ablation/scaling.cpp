// Weak scaling (work per rank stays) and strong scaling (the whole work stays).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "plan/ablation/common.h"

namespace triax::plan {
namespace {

constexpr int kRankCounts[] = {1, 2, 4};

const char* option_of(const std::string& axis) {
  return axis == "dp"   ? "data-parallel-size"
         : axis == "tp" ? "tensor-model-parallel-size"
                        : "pipeline-model-parallel-size";
}

/// What n ranks can reach at best: they share the cores.
double ideal(int n) { return std::min(n, std::max(1, cores())); }

std::vector<PointRequest> weak_points() {
  std::vector<PointRequest> all;
  for (const int n : kRankCounts) {
    all.push_back(real_point({{"data-parallel-size", std::to_string(n)}},
                             {"--micro-batch-size", "4", "--num-microbatches", "2"}));
  }
  return all;
}

AblationResult weak_conclude(const AblationData& data) {
  AblationResult result;
  io::Figure figure{.name = "weak-scaling",
                    .title = "Weak scaling: data parallel, 8 samples per rank",
                    .x_label = "data-parallel ranks",
                    .y_label = "tokens per second, all ranks",
                    .x_scale = io::Scale::Log2};
  io::Series measured{.label = "measured", .colour = 0},
      best{.label = "one rank times cores", .look = io::SeriesLook::Formula, .colour = 6};
  const double one = data.mean({{"data-parallel-size", "1"}}, "tokens_per_s");
  std::string list;
  for (const int n : kRankCounts) {
    const AblationRow* row = data.find({{"data-parallel-size", std::to_string(n)}});
    add_point(measured, n, row, "tokens_per_s");
    if (row == nullptr || !std::isfinite(one) || row->row.done == 0) continue;
    best.x.push_back(n);
    best.y.push_back(one * ideal(n));
    list += fmt::format("{}{} {} {:.1f} %", list.empty() ? "" : ", ", n, n == 1 ? "rank" : "ranks",
                        100 * row->row.mean("tokens_per_s") / (one * ideal(n)));
  }
  figure.series = {measured, best};
  result.lines = {fmt::format("Efficiency against one rank times the cores in use: {}.", list), cores_note(4)};
  figure.notes = result.lines;
  result.figures = {figure};
  return result;
}

std::vector<Setting> strong_settings(const std::string& axis, int n) {
  // The one-rank point is the same on every axis.
  if (n == 1) return {{"data-parallel-size", "1"}, {"micro-batch-size", "2"}};
  return {{option_of(axis), std::to_string(n)}, {"micro-batch-size", "2"}};
}

std::vector<PointRequest> strong_points() {
  std::vector<PointRequest> all = {real_point(strong_settings("dp", 1), {"--global-batch-size", "16"})};
  for (const char* axis : {"dp", "tp", "pp"}) {
    for (const int n : kRankCounts) {
      if (n > 1) all.push_back(real_point(strong_settings(axis, n), {"--global-batch-size", "16"}));
    }
  }
  return all;
}

AblationResult strong_conclude(const AblationData& data) {
  AblationResult result;
  io::Figure figure{.name = "strong-scaling",
                    .title = "Strong scaling: one global batch of 16 over more ranks",
                    .x_label = "ranks",
                    .y_label = "speed-up over one rank",
                    .x_scale = io::Scale::Log2};
  const double one = data.mean(strong_settings("dp", 1), "step_ms");
  io::Series best{.label = "cores in use", .look = io::SeriesLook::Formula, .colour = 6};
  io::Series bubble{.label = "pp: with its bubble alone", .look = io::SeriesLook::Formula, .colour = 2};
  for (const int n : kRankCounts) {
    best.x.push_back(n);
    best.y.push_back(ideal(n));
    bubble.x.push_back(n);
    const double m = 8;  // 16 samples in micro-batches of 2
    bubble.y.push_back(n <= cores() ? n * m / (m + n - 1) : ideal(n));
  }
  int colour = 0;
  for (const char* axis : {"dp", "tp", "pp"}) {
    io::Series series{.label = axis, .colour = colour++};
    std::string list;
    for (const int n : kRankCounts) {
      const double step = data.mean(strong_settings(axis, n), "step_ms");
      if (!std::isfinite(step) || !std::isfinite(one)) continue;
      series.x.push_back(n);
      series.y.push_back(one / step);
      if (n > 1) list += fmt::format(", {} ranks x{:.2f} ({:.0f} %)", n, one / step, 100 * one / step / ideal(n));
    }
    result.lines.push_back(fmt::format("{}{}.", axis, list));
    figure.series.push_back(std::move(series));
  }
  figure.series.push_back(best);
  figure.series.push_back(bubble);
  result.lines = {
      fmt::format("Speed-up (share of the cores in use): {} {} {}", result.lines[0], result.lines[1], result.lines[2]),
      cores_note(4)};
  figure.notes = result.lines;
  result.figures = {figure};
  return result;
}

}  // namespace

Ablation weak_scaling_ablation() {
  return {"weak-scaling", "data parallel ranks with equal work each: efficiency",
          "tokens/s of one rank times the cores in use", weak_points, weak_conclude};
}

Ablation strong_scaling_ablation() {
  return {"strong-scaling", "the same batch over more ranks, by dp, tp and pp: speed-up",
          "n; pp n m/(m+n-1) for its bubble", strong_points, strong_conclude};
}

}  // namespace triax::plan
