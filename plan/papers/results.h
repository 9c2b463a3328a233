// Published beside predicted: one line for each number, one summary for each preset.
#pragma once

#include <string>
#include <vector>

#include "plan/papers/constants.h"
#include "plan/papers/preset_runs.h"

namespace triax::plan {

/// How a line is judged.
enum class PaperKind {
  Prediction,  ///< of a measurement: error in percent of the published figure (time or throughput)
  ClosedForm,  ///< a formula against a printed number
  Unpublished  ///< predicted, with no published number at hand
};
const char* name_of(PaperKind kind);

/// What a published number says of the true one.
enum class Bound { Equal, Over, Under };

struct PaperLine {
  std::string preset, id, series, x, unit;
  PaperKind kind = PaperKind::Prediction;
  double published = 0, predicted = 0;
  Bound bound = Bound::Equal;
  bool fitted = false;
  std::string certainty, source;
  /// Predictions: 100 (predicted / published - 1), 0 where a bound holds. Closed forms: predicted - published, in the
  /// unit.
  double error() const;
};

/// A line that is no run of its own: id PRESET/SERIES/X; without a published number Unpublished, else certainty B.
PaperLine paper_line(PaperKind kind, const std::string& preset, std::string series, std::string x, const char* unit,
                     double published, double predicted, const char* source);

struct PaperPreset {
  std::string name, title;
  std::vector<PaperLine> lines;
  std::string goal;  ///< what the error should be at most, in words
};

struct PaperSummary {
  int rows = 0, held = 0;                  ///< with a published number; of these not in the fit
  double mean = 0, median = 0, worst = 0;  ///< of |error| over the held ones
  double fitted_mean = 0;
};
PaperSummary summarize(const PaperPreset& preset);

/// Names that --paper takes, in order: the runs', then the closed forms'.
std::vector<std::string> paper_preset_names();

/// The preset with all its lines; `name` must be one of the names. Absent files are appended to `absent`.
std::vector<PaperPreset> paper_presets(const std::vector<std::string>& names, const std::string& directory,
                                       std::vector<std::string>& absent);

/// Closed forms and what simulation gives without a fitted constant: zero19-table1, zero19-table2, zero19-fig1,
/// korthikanti22-fig1, korthikanti22-fig7, korthikanti22-mfu, zerobubble23-table5.
std::vector<PaperPreset> closed_form_presets(const std::string& directory);
/// ZeRO's 40 configurations on V100 (zero19-configs) and Megatron-LM 2019's weak scaling (megatron19-fig5).
std::vector<PaperPreset> v100_presets(const std::string& directory);

}  // namespace triax::plan
