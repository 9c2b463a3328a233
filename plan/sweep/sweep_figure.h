// The figure of a grid: one metric over one axis, a line for every combination of the others.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "io/plot/figure.h"
#include "plan/sweep/results.h"

namespace triax::plan {

/// x: an option of the rows, empty: the first that has several values. Rows that are not done leave gaps, counted in a
/// note. Nothing where no row has the metric or no option varies. Throws ConfigError where x or y is unknown.
std::optional<io::Figure> figure_of(const std::vector<SweepRow>& rows, const std::string& x, const std::string& y);

/// "tokens_per_s" -> "tokens/s"; unknown names stay.
std::string axis_label(const std::string& metric);

}  // namespace triax::plan
