// Fits constants to published runs: Levenberg-Marquardt on the logarithms of constants and of predicted over published
// times, with Huber's loss (one odd row does not bend the rest) and a weak pull of every constant to where it started.
#pragma once

#include "plan/papers/constants.h"

namespace triax::plan {

struct FitOptions {
  double huber = 0.06;  ///< logarithmic error beyond which a row pulls with constant force
  double prior = 0.5;   ///< logarithmic distance of a constant from its start that counts like one row's `scale`
  int iterations = 40;
};

/// ln(predicted time / published time).
double log_error(const PaperRun& run, const std::vector<PaperConstant>& constants);

/// Constants of origin Fitted are changed within [low, high]; the rows are those with fitted == true, each weighted by
/// 1 / (its preset's tolerance). Returns the sum of losses.
double fit(const std::vector<PaperRun>& runs, std::vector<PaperConstant>& constants, const FitOptions& options = {});

}  // namespace triax::plan
