// Which split of the same ranks: tensor x pipeline, the rest data parallel.
#include <fmt/format.h>

#include <cmath>

#include "plan/ablation/common.h"

namespace triax::plan {
namespace {

constexpr int kSplitRanks = 4;
constexpr int kSplitDegrees[] = {1, 2, 4};

std::vector<Setting> tensor_pipeline_settings(int t, int p) {
  return {{"tensor-model-parallel-size", std::to_string(t)}, {"pipeline-model-parallel-size", std::to_string(p)}};
}

std::vector<PointRequest> tensor_pipeline_points() {
  std::vector<PointRequest> all;
  for (const int t : kSplitDegrees) {
    for (const int p : kSplitDegrees) {
      if (t * p > kSplitRanks) continue;
      all.push_back(real_point(
          tensor_pipeline_settings(t, p),
          {"--world-size", std::to_string(kSplitRanks), "--micro-batch-size", "2", "--global-batch-size", "16"}));
    }
  }
  return all;
}

AblationResult conclude_tensor_pipeline(const AblationData& data) {
  AblationResult result;
  io::HeatMap map{.name = "tensor-pipeline",
                  .title = "Tensor x pipeline on 4 ranks, the rest data parallel",
                  .x_label = "tensor-parallel ranks t",
                  .y_label = "pipeline positions p",
                  .value_label = "tokens per second"};
  map.columns = map.rows = {"1", "2", "4"};
  double best = 0, worst = INFINITY;
  std::string best_text, worst_text;
  for (const int p : kSplitDegrees) {
    map.values.emplace_back();
    for (const int t : kSplitDegrees) {
      const double speed = data.mean(tensor_pipeline_settings(t, p), "tokens_per_s");
      map.values.back().push_back(speed);
      const std::string text = fmt::format("t {} p {} d {}", t, p, kSplitRanks / (t * p));
      if (speed > best) best = speed, best_text = text;
      if (speed < worst) worst = speed, worst_text = text;
    }
  }
  result.lines = {
      fmt::format("Best {} with {:.0f} tokens/s, worst {} with {:.0f} ({}).", best_text, best, worst_text, worst,
                  against(worst, best)),
      fmt::format("All cells do the same work; what differs is the bubble (p - 1)/(m + p - 1), tensor collectives and "
                  "the gradients' sum. {}",
                  cores_note(kSplitRanks))};
  map.notes = result.lines;
  result.maps = {map};
  return result;
}

}  // namespace

Ablation tensor_pipeline_ablation() {
  return {"tensor-pipeline", "heat map of tensor x pipeline at a fixed number of ranks",
          "none; the bubble is (p-1)/(m+p-1)", tensor_pipeline_points, conclude_tensor_pipeline};
}

}  // namespace triax::plan
