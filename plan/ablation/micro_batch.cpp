// Micro-batch size on a pipeline: larger ones fill the kernels, smaller ones the pipeline.
#include <fmt/format.h>

#include <cmath>

#include "plan/ablation/common.h"

namespace triax::plan {
namespace {

constexpr int kSizes[] = {1, 2, 4, 8, 16};
constexpr int kBatch = 16;

std::vector<Setting> micro_batch_settings(int p, int b) {
  return {{"pipeline-model-parallel-size", std::to_string(p)}, {"micro-batch-size", std::to_string(b)}};
}

std::vector<PointRequest> micro_batch_points() {
  std::vector<PointRequest> all;
  for (const int p : {1, 2}) {
    for (const int b : kSizes) {
      all.push_back(real_point(micro_batch_settings(p, b),
                               {"--global-batch-size", std::to_string(kBatch), "--train-iters", "6"}));
    }
  }
  return all;
}

/// ms of a step on p positions: (B/b + p - 1) (t_f(b) + t_b(b)) (Narayanan 2021 eq. 1), where a position's t_f + t_b is
/// the measured time of a micro-batch on one rank over p.
double formula_ms(const AblationData& data, int p, int b) {
  const double m = static_cast<double>(kBatch) / b;
  const double micro_batch_ms = data.mean(micro_batch_settings(1, b), "step_ms") / m;
  return (m + p - 1) * micro_batch_ms / p;
}

AblationResult conclude_micro_batch(const AblationData& data) {
  AblationResult result;
  io::Figure figure{.name = "micro-batch",
                    .title = "Micro-batch size: efficient kernels against a full pipeline",
                    .x_label = "micro-batch size b, global batch 16",
                    .y_label = "tokens per second, all ranks",
                    .x_scale = io::Scale::Log2};
  io::Series one{.label = "1 rank", .colour = 1}, two{.label = "pipeline p 2, measured", .colour = 0};
  io::Series theory{.label = "p 2, formula", .look = io::SeriesLook::Formula, .colour = 0};
  double worst = 0;
  int best = 0, predicted = 0;
  double best_ms = INFINITY, predicted_ms = INFINITY;
  std::string list;
  for (const int b : kSizes) {
    add_point(one, b, data.find(micro_batch_settings(1, b)), "tokens_per_s");
    add_point(two, b, data.find(micro_batch_settings(2, b)), "tokens_per_s");
    const double formula = formula_ms(data, 2, b), measured = data.mean(micro_batch_settings(2, b), "step_ms");
    if (!std::isfinite(formula) || !std::isfinite(measured)) continue;
    const double tokens = data.mean(micro_batch_settings(2, b), "tokens_per_s") * measured / 1000;
    theory.x.push_back(b);
    theory.y.push_back(tokens / formula * 1000);
    worst = std::max(worst, std::abs(measured / formula - 1));
    list += fmt::format("{}b {} {} ({})", list.empty() ? "" : ", ", b, ms_text(measured), ms_text(formula));
    if (measured < best_ms) best_ms = measured, best = b;
    if (formula < predicted_ms) predicted_ms = formula, predicted = b;
  }
  figure.series = {two, theory, one};
  result.lines = {
      fmt::format("Step on p 2, measured (formula): {}; at most {:.1f} % apart.", list, 100 * worst),
      fmt::format("Best micro-batch measured {}, by the formula {}: (B/b + p - 1)(t_f(b) + t_b(b)), with the time of a "
                  "micro-batch from one rank.",
                  best, predicted)};
  figure.notes = result.lines;
  result.figures = {figure};
  return result;
}

}  // namespace

Ablation micro_batch_ablation() {
  return {"micro-batch", "micro-batch size on a pipeline: kernel efficiency against bubble",
          "(B/b + p - 1)(t_f(b) + t_b(b)) (arXiv 2104.04473 eq. 1)", micro_batch_points, conclude_micro_batch};
}

}  // namespace triax::plan
