// Built-in experiments: points to run, and what their numbers say beside the formula that predicts them.
#pragma once

#include <string>
#include <vector>

#include "io/plot/figure.h"
#include "plan/sweep/point.h"
#include "plan/sweep/results.h"

namespace triax::plan {

/// A row of the experiment with the options that its points ran with (nothing for simulated points and refusals).
struct AblationRow {
  SweepRow row;
  std::optional<io::RunOptions> options;
};

/// Rows by setting. Rows that are not done have no metrics: every reader must live with NaN.
class AblationData {
 public:
  AblationData(const std::vector<Point>& points, const std::vector<PointRecord>& records);
  const std::vector<AblationRow>& rows() const { return rows_; }
  /// The row with all these settings and mode (empty: any); nullptr without one.
  const AblationRow* find(const std::vector<Setting>& settings, const std::string& mode = "") const;
  /// Its metric; NaN without one.
  double mean(const std::vector<Setting>& settings, const std::string& metric, const std::string& mode = "") const;

 private:
  std::vector<AblationRow> rows_;
};

struct AblationResult {
  std::vector<io::Figure> figures;
  std::vector<io::HeatMap> maps;
  std::vector<std::string> lines;  ///< what the figures show: measured against formula
};

struct Ablation {
  const char* name;
  const char* question;
  const char* theory;  ///< formula and source; "none" where there is none
  std::vector<PointRequest> (*points)();
  AblationResult (*conclude)(const AblationData& data);
};

const std::vector<Ablation>& ablations();
/// Throws ConfigError with the nearest name.
const Ablation& ablation_named(const std::string& name);
std::string list_ablations();

// One file each.
Ablation bubble_ablation();
Ablation tensor_parallel_ablation();
Ablation zero_ablation();
Ablation recompute_ablation();
Ablation micro_batch_ablation();
Ablation weak_scaling_ablation();
Ablation strong_scaling_ablation();
Ablation tensor_pipeline_ablation();
Ablation hierarchical_ablation();
Ablation compression_ablation();

}  // namespace triax::plan
