#include "plan/scaled/trend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace triax::plan {
namespace {

/// -1, 0, 1: a below, like, above b.
int order_of(double a, double b, double apart) {
  if (std::abs(a - b) <= apart * std::min(std::abs(a), std::abs(b))) return 0;
  return a < b ? -1 : 1;
}

std::string point_name(const TrendPoint& point) {
  return point.series.empty() || point.x.empty() ? point.series + point.x : point.series + " " + point.x;
}

}  // namespace

Trend compare_orders(std::span<const TrendPoint> points, double apart) {
  Trend trend;
  for (size_t i = 0; i < points.size(); ++i) {
    for (size_t j = i + 1; j < points.size(); ++j) {
      const TrendPoint& a = points[i];
      const TrendPoint& b = points[j];
      if ((a.series != b.series) == (a.x != b.x)) continue;
      if (!std::isfinite(a.paper + b.paper + a.here + b.here)) continue;
      const int paper = order_of(a.paper, b.paper, apart);
      if (paper == 0) continue;
      const int here = order_of(a.here, b.here, apart);
      ++trend.pairs;
      ++(here == paper ? trend.same : here == 0 ? trend.alike : trend.reversed);
      if (here == -paper) {
        trend.reversed_pairs.push_back(
            fmt::format("{} > {}", point_name(paper > 0 ? a : b), point_name(paper > 0 ? b : a)));
      }
    }
  }
  return trend;
}

}  // namespace triax::plan
