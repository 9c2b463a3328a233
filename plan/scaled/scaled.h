// The published experiments made small enough for this machine's CPU: the same question, the paper's ratios, a narrow
// model. `triax sweep --paper NAME --real` runs them and compares orders, not numbers.
#pragma once

#include <string>
#include <vector>

#include "plan/ablation/common.h"
#include "plan/sweep/point.h"

namespace triax::plan {

struct ScaledPoint {
  std::string series, x;          ///< as the paper's figure has them
  std::vector<std::string> rows;  ///< ids of the paper's rows (PaperLine::id) that it stands for; figures are summed
  PointRequest request;
};

/// Whether more of the metric is more of the paper's figure.
enum class Sense { Same, Inverse };

struct ScaledExperiment {
  std::string none;          ///< why there is nothing small to run; empty: there is
  std::string cut;           ///< what stays as published and what is cut
  std::string metric, unit;  ///< of a run (PointRecord::metrics), in `unit` after `factor`
  double factor = 1;
  Sense sense = Sense::Same;
  std::string missing;  ///< what no run here can show; may be empty
  std::vector<ScaledPoint> points;
};

/// `preset`: one of paper_preset_names(). Points whose time counts take at most `cores` ranks.
ScaledExperiment scaled_experiment(const std::string& preset, int cores);

// Megatron-LM 2021 (figures.cpp) and the papers on memory and schedules (methods.cpp); empty for other presets.
ScaledExperiment scaled_figure(const std::string& preset, int ranks);
ScaledExperiment scaled_method(const std::string& preset);

/// A GPT of these dimensions (Dimensions of plan/ablation/common.h), fp32, made-up tokens, one thread per rank, 5
/// steps.
std::vector<std::string> scaled_gpt(const Dimensions& dimensions);

}  // namespace triax::plan
