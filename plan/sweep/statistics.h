// Means of repeats with Student's t confidence intervals.
#pragma once

#include <optional>
#include <span>

namespace triax::plan {

/// Two-sided 95 % quantile of Student's t: 12.706 at 1 degree of freedom, 1.960 at infinity. Six digits.
double student_t95(int degrees_of_freedom);

/// mean +- half_width holds the true mean in 95 of 100 experiments whose repeats are independent and normal:
/// half_width = t(n - 1) s / sqrt(n), s^2 = sum (x - mean)^2 / (n - 1). One value has none.
struct Estimate {
  int count = 0;
  double mean = 0;
  std::optional<double> half_width;
};
Estimate estimate(std::span<const double> values);

}  // namespace triax::plan
