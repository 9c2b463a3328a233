// Hierarchical against flat all-reduce of gradients: bytes between nodes.
#include <fmt/format.h>

#include <cmath>

#include "io/options/validate.h"
#include "model/counts.h"
#include "plan/ablation/common.h"

namespace triax::plan {
namespace {

constexpr const char* kAlgorithms[] = {"ring", "halving-doubling", "hierarchical"};
constexpr int kNodes[] = {1, 2, 4};
constexpr int kGroupRanks = 4;

std::vector<Setting> hierarchical_settings(const std::string& algorithm, int nodes) {
  return {{"collective-algorithm", "dp=" + algorithm}, {"fake-nodes", std::to_string(nodes)}};
}

std::vector<PointRequest> hierarchical_points() {
  std::vector<PointRequest> all;
  for (const char* algorithm : kAlgorithms) {
    for (const int nodes : kNodes) {
      all.push_back(real_point(
          hierarchical_settings(algorithm, nodes),
          {"--data-parallel-size", std::to_string(kGroupRanks), "--micro-batch-size", "2", "--train-iters", "5"}));
    }
  }
  return all;
}

/// Bytes that cross between k nodes of r ranks, mean over the n = k r ranks, for a sum of S bytes. Ring: every rank
/// sends 2 (n-1)/n S to the next, and k of the n edges cross. Hierarchical: a sum of S/r among the k ranks of the same
/// place: 2 (k-1)/k S/r each.
double formula_across(const std::string& algorithm, const io::RunOptions& o, int k) {
  const double n = o.parallel.grid.data, r = n / k;
  const double bytes = static_cast<double>(model::rank_parameters(o.model, 1, io::layer_map_of(o), 0)) *
                       static_cast<double>(size_of(io::state_dtype(o.control.precision)));
  if (algorithm == "ring") return k == 1 ? 0 : 2 * (n - 1) / n * bytes * k / n;
  if (algorithm == "hierarchical") return 2 * (k - 1.0) / k * bytes / r;
  return NAN;  // of the others nothing is claimed
}

AblationResult conclude_hierarchical(const AblationData& data) {
  AblationResult result;
  io::Figure figure{.name = "hierarchical",
                    .title = "Gradients' sum over 4 ranks: bytes that cross between nodes",
                    .x_label = "nodes that the 4 ranks are spread over (faked on one host)",
                    .y_label = "MB across per rank and step",
                    .categories = {"1", "2", "4"}};
  std::string list, times;
  for (const std::string algorithm : kAlgorithms) {
    io::Series measured{.label = algorithm + ", measured", .look = io::SeriesLook::Bars};
    io::Series theory{.label = algorithm + ", formula", .look = io::SeriesLook::Bars};
    for (int place = 0; place < 3; ++place) {
      const AblationRow* one = data.find(hierarchical_settings(algorithm, kNodes[place]));
      if (one == nullptr || !one->options || one->row.done == 0) continue;
      add_point(measured, place, one, "dp_across_bytes", 1e-6);
      const double formula = formula_across(algorithm, *one->options, kNodes[place]);
      if (std::isfinite(formula)) {
        theory.x.push_back(place);
        theory.y.push_back(formula * 1e-6);
      }
      const double sent = one->row.mean("dp_across_bytes");
      if (kNodes[place] == 2) {
        list += fmt::format("{}{} {}{}", list.empty() ? "" : ", ", algorithm, mb_text(sent),
                            std::isfinite(formula) ? fmt::format(" ({})", against(sent, formula)) : "");
        times += fmt::format("{}{} {}", times.empty() ? "" : ", ", algorithm, ms_text(one->row.mean("step_ms")));
      }
    }
    figure.series.push_back(std::move(measured));
    if (!theory.x.empty()) figure.series.push_back(std::move(theory));
  }
  result.lines = {
      fmt::format("Across 2 nodes, measured (against the formula): {}.", list),
      fmt::format("Step on 2 faked nodes of one host: {}; real links between nodes are what would pay for fewer bytes.",
                  times),
      "Ring 2 (n-1)/n S k/n, hierarchical 2 (k-1)/k S/r per rank, for k nodes of r ranks."};
  figure.notes = result.lines;
  result.figures = {figure};
  return result;
}

}  // namespace

Ablation hierarchical_ablation() {
  return {"hierarchical", "hierarchical against flat all-reduce: bytes between nodes",
          "ring 2(n-1)/n S k/n, hierarchical 2(k-1)/k S/r per rank, k nodes of r ranks", hierarchical_points,
          conclude_hierarchical};
}

}  // namespace triax::plan
