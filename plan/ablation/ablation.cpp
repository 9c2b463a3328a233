#include "plan/ablation/ablation.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "io/options/options.h"

namespace triax::plan {

AblationData::AblationData(const std::vector<Point>& points, const std::vector<PointRecord>& records) {
  for (SweepRow& row : rows_of(records)) {
    AblationRow one{std::move(row), {}};
    for (const Point& point : points) {
      const bool same = point.request.settings == one.row.settings && name_of(point.request.mode) == one.row.mode;
      if (same) one.options = point.resolved;
    }
    rows_.push_back(std::move(one));
  }
}

const AblationRow* AblationData::find(const std::vector<Setting>& settings, const std::string& mode) const {
  for (const AblationRow& one : rows_) {
    if (!mode.empty() && one.row.mode != mode) continue;
    const auto& has = one.row.settings;
    const bool all = std::all_of(settings.begin(), settings.end(), [&has](const Setting& setting) {
      return std::find(has.begin(), has.end(), setting) != has.end();
    });
    if (all) return &one;
  }
  return nullptr;
}

double AblationData::mean(const std::vector<Setting>& settings, const std::string& metric,
                          const std::string& mode) const {
  const AblationRow* found = find(settings, mode);
  return found == nullptr ? std::numeric_limits<double>::quiet_NaN() : found->row.mean(metric);
}

const std::vector<Ablation>& ablations() {
  static const std::vector<Ablation> all = {
      bubble_ablation(),       tensor_parallel_ablation(), zero_ablation(),           recompute_ablation(),
      micro_batch_ablation(),  weak_scaling_ablation(),    strong_scaling_ablation(), tensor_pipeline_ablation(),
      hierarchical_ablation(), compression_ablation()};
  return all;
}

const Ablation& ablation_named(const std::string& name) {
  std::vector<std::string> names;
  for (const Ablation& one : ablations()) {
    if (name == one.name) return one;
    names.emplace_back(one.name);
  }
  const std::string nearest = io::nearest_name(name, names);
  throw ConfigError(fmt::format("--ablation {}: unknown; {}", name,
                                nearest.empty() ? "--list-ablations lists them"
                                                : fmt::format("did you mean {}? --list-ablations lists all", nearest)));
}

std::string list_ablations() {
  std::string text;
  for (const Ablation& one : ablations()) {
    text += fmt::format("{:<16} {}\n{:<16} theory: {}\n", one.name, one.question, "", one.theory);
  }
  return text + "\nOptions behind the name go to every point, as --train-iters 50 or --repeats 5.\n";
}

}  // namespace triax::plan
