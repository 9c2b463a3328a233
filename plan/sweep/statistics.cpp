#include "plan/sweep/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/error.h"

namespace triax::plan {
namespace {

constexpr std::array<double, 30> kT95 = {
    12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157, 2.228139,
    2.200985,  2.178813, 2.160369, 2.144787, 2.131450, 2.119905, 2.109816, 2.100922, 2.093024, 2.085963,
    2.079614,  2.073873, 2.068658, 2.063899, 2.059539, 2.055529, 2.051831, 2.048407, 2.045230, 2.042272};

}  // namespace

double student_t95(int degrees_of_freedom) {
  ensure(degrees_of_freedom > 0, "Student's t needs at least one degree of freedom");
  if (degrees_of_freedom <= 30) return kT95[static_cast<size_t>(degrees_of_freedom - 1)];
  // Expansion in 1 / n around the normal quantile (Abramowitz and Stegun 26.7.5); beyond 30 exact to six digits.
  const double z = 1.959963985, n = degrees_of_freedom;
  const double z2 = z * z;
  return z * (1 + (z2 + 1) / (4 * n) + ((5 * z2 + 16) * z2 + 3) / (96 * n * n) +
              (((3 * z2 + 19) * z2 + 17) * z2 - 15) / (384 * n * n * n));
}

Estimate estimate(std::span<const double> values) {
  Estimate result;
  result.count = static_cast<int>(values.size());
  if (values.empty()) return result;
  const double n = static_cast<double>(values.size());
  for (const double x : values) result.mean += x / n;
  if (values.size() == 1) return result;
  double squares = 0;
  for (const double x : values) squares += (x - result.mean) * (x - result.mean);
  // Sums of equal values differ in their last bits.
  if (std::sqrt(squares) < 1e-12 * std::abs(result.mean)) squares = 0;
  result.half_width = student_t95(result.count - 1) * std::sqrt(squares / (n - 1) / n);
  return result;
}

}  // namespace triax::plan
