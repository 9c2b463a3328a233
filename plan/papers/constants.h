// The constants of the predictions of published runs: few, shared by all runs of a machine or of a program, each with
// where it comes from. `triax sweep --paper fit` repeats the fit of those tagged fitted.
#pragma once

#include <string>
#include <vector>

#include "plan/papers/paper_run.h"

namespace triax::plan {

struct PaperConstant {
  std::string scope;  ///< machine, family of machines ("a100": all of that device), or program
  std::string name;   ///< see apply() in constants.cpp
  double value = 0;
  double low = 0, high = 0;  ///< what physics allows
  double start = 0;          ///< Fitted: before the fit, and what it is weakly pulled to; else the value
  bench::Origin origin = bench::Origin::Assumed;
  std::string source;
};

/// In the order of the table in docs/cost-model.md.
const std::vector<PaperConstant>& paper_constants();

/// The same with fitted constants back at what the fit starts from.
std::vector<PaperConstant> fit_start();

/// Prices the run's machine and program with these constants. Throws std::logic_error for an unknown name.
Pricing pricing_of(const PaperRun& run, const std::vector<PaperConstant>& constants);
/// Whether the constant plays a part in the run's price.
bool applies(const PaperConstant& constant, const PaperRun& run);

/// Programs of the published runs, without their constants.
const Software& paper_software(const std::string& name);

struct PaperPrediction {
  StepTime step;
  double figure = 0;  ///< in the run's metric
};
PaperPrediction predict(const PaperRun& run, const std::vector<PaperConstant>& constants);

}  // namespace triax::plan
