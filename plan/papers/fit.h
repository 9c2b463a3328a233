// Fits constants to published runs: Levenberg-Marquardt on the logarithms of constants and of predicted over published
// times, with a loss that ends (an odd row bends nothing) and a weak pull of every constant to where it started.
#pragma once

#include "plan/papers/constants.h"

namespace triax::plan {

struct FitOptions {
  double knee = 3;      ///< logarithmic error, over its table's tolerance, beyond which a row pulls less and less
  double prior = 0.25;  ///< logarithmic distance of a constant from its start that counts like one row's `scale`
  int iterations = 40;
};

/// ln(predicted time / published time).
double log_error(const PaperRun& run, const std::vector<PaperConstant>& constants);

/// Constants of origin Fitted are changed within [low, high]; the rows are those with fitted == true, each weighted by
/// 1 / (its preset's tolerance). Returns the sum of losses.
double fit(const std::vector<PaperRun>& runs, std::vector<PaperConstant>& constants, const FitOptions& options = {});

}  // namespace triax::plan
