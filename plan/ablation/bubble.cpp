// Pipeline bubble over micro-batches: closed form, simulator, virtual clock over real ranks, wall clock.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "plan/ablation/common.h"

namespace triax::plan {
namespace {

struct Case {
  const char* label;
  const char* schedule;
  int pipeline, chunks;
};
constexpr Case kCases[] = {{"1f1b p 8", "1f1b", 8, 1},
                           {"1f1b p 4", "1f1b", 4, 1},
                           {"interleaved p 4 v 2", "interleaved", 4, 2},
                           {"zb-h1 p 4", "zb-h1", 4, 1}};
constexpr int kMicroBatches[] = {4, 8, 16, 32, 64};
constexpr int kWall[] = {1, 2, 4, 8, 16};

/// 1f1b (p-1)/(m+p-1), interleaved (p-1)/(vm+p-1), zb-h1 at F = I = W: (p-1)/(3m+p-1).
double formula(const Case& one, double m) {
  const double p = one.pipeline;
  const double work = std::string(one.schedule) == "zb-h1" ? 3 * m : one.chunks * m;
  return (p - 1) / (work + p - 1);
}

std::vector<Setting> bubble_settings(const Case& one, int m) {
  return {{"pipeline-schedule", one.schedule},
          {"pipeline-model-parallel-size", std::to_string(one.pipeline)},
          {"num-virtual-stages-per-pipeline-rank", one.chunks > 1 ? std::to_string(one.chunks) : "-"},
          {"num-microbatches", std::to_string(m)}};
}

std::vector<PointRequest> bubble_points() {
  std::vector<PointRequest> all;
  for (const Case& one : kCases) {
    for (const int m : kMicroBatches) {
      if (m >= one.pipeline) {
        all.push_back({SweepMode::Simulated, {"--cost", "F=1,I=1,W=1"}, bubble_settings(one, m), 1});
      }
      if (one.pipeline != 4 || m > 16) continue;
      // Interleaving needs a layer per virtual stage.
      PointRequest clocked{SweepMode::Virtual, dimension_words({8, 32, 2, 16, 64}), bubble_settings(one, m), 1};
      const std::vector<std::string> rest = short_run(2);
      clocked.arguments.insert(clocked.arguments.end(), rest.begin(), rest.end());
      clocked.arguments.insert(clocked.arguments.end(), {"--micro-batch-size", "1", "--cost", "F=1,I=1,W=1"});
      all.push_back(std::move(clocked));
    }
  }
  for (const int m : kWall) {
    all.push_back(real_point({{"pipeline-schedule", "1f1b"},
                              {"pipeline-model-parallel-size", "2"},
                              {"num-virtual-stages-per-pipeline-rank", "-"},
                              {"num-microbatches", std::to_string(m)}},
                             {"--micro-batch-size", "1", "--train-iters", "6"}));
  }
  return all;
}

/// Marks of one mode, and how far they are from the formula at worst.
io::Series marks(const AblationData& data, const Case& one, const std::string& mode, int colour, double& worst) {
  io::Series series{.label = fmt::format("{}: {}", one.label, mode), .look = io::SeriesLook::Points, .colour = colour};
  for (const int m : kMicroBatches) {
    const AblationRow* row = data.find(bubble_settings(one, m), mode);
    add_point(series, m, row, "bubble_fraction");
    const double value = row == nullptr ? NAN : row->row.mean("bubble_fraction");
    if (std::isfinite(value)) worst = std::max(worst, std::abs(value - formula(one, m)));
  }
  return series;
}

AblationResult conclude_bubble(const AblationData& data) {
  AblationResult result;
  io::Figure figure{.name = "bubble",
                    .title = "Pipeline bubble: more micro-batches, or a better schedule",
                    .x_label = "micro-batches m of a step",
                    .y_label = "bubble, share of total time",
                    .x_scale = io::Scale::Log2};
  double simulated = 0, clock = 0;
  int colour = 0;
  size_t clocked = 0, drawn = 0;
  for (const Case& one : kCases) {
    io::Series line{.label = fmt::format("{}: formula", one.label), .look = io::SeriesLook::Formula, .colour = colour};
    for (double m = 4; m <= 64.001; m *= std::pow(2, 0.125)) {
      line.x.push_back(m);
      line.y.push_back(formula(one, m));
    }
    figure.series.push_back(std::move(line));
    figure.series.push_back(marks(data, one, "simulated", colour, simulated));
    drawn += figure.series.back().x.size();
    clocked += marks(data, one, "virtual", colour, clock).x.size();
    ++colour;
  }
  const Case wall{"1f1b p 2", "1f1b", 2, 1};
  io::Series line{.label = "1f1b p 2: formula", .look = io::SeriesLook::Formula, .colour = colour};
  io::Series measured{.label = "1f1b p 2: wall clock", .look = io::SeriesLook::LineAndPoints, .colour = colour};
  std::string list;
  for (double m = 1; m <= 16.001; m *= std::pow(2, 0.125)) {
    line.x.push_back(m);
    line.y.push_back(formula(wall, m));
  }
  for (const int m : kWall) {
    const AblationRow* row = data.find(bubble_settings(wall, m), "real");
    add_point(measured, m, row, "bubble_fraction");
    const double value = row == nullptr ? NAN : row->row.mean("bubble_fraction");
    if (std::isfinite(value)) {
      list +=
          fmt::format("{}m {} {:.1f} % ({:.1f} %)", list.empty() ? "" : ", ", m, 100 * value, 100 * formula(wall, m));
    }
  }
  figure.series.push_back(std::move(line));
  figure.series.push_back(std::move(measured));
  result.lines = {
      fmt::format(
          "Simulated against formula: at most {:.1e} apart over {} points; virtual clock over real ranks: at most "
          "{:.1e} over {} points.",
          simulated, drawn, clock, clocked),
      fmt::format("Wall clock, p 2, measured (formula): {}.", list),
      "The wall clock adds what the formula leaves out: unequal stages (the head), messages, other work on the cores."};
  figure.notes = result.lines;
  result.figures.push_back(std::move(figure));
  return result;
}

}  // namespace

Ablation bubble_ablation() {
  return {
      "bubble", "pipeline bubble over micro-batches and schedules",
      "(p-1)/(m+p-1) for 1f1b, (p-1)/(vm+p-1) interleaved, (p-1)/(3m+p-1) zb-h1 at F = I = W (arXiv 2104.04473 section "
      "2.2, 2401.10241)",
      bubble_points, conclude_bubble};
}

}  // namespace triax::plan
