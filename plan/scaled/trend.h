// Whether the points of two experiments stand in the same order.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace triax::plan {

/// One point: the paper's figure and the one measured here, each in its own unit; NaN where there is none.
struct TrendPoint {
  std::string series, x;
  double paper = 0, here = 0;
};

struct Trend {
  int pairs = 0;  ///< that were compared: same + alike + reversed
  int same = 0, alike = 0, reversed = 0;
  std::vector<std::string> reversed_pairs;  ///< "bs8 pp 1 > bs8 pp 8"; as the paper has them
};

/// Compares all pairs of points that differ in the series or in x alone, where the paper's figures are more than
/// `apart` from each other (relative to the smaller). Alike: the two figures here are not.
Trend compare_orders(std::span<const TrendPoint> points, double apart = 0.03);

}  // namespace triax::plan
