// Parts that the pages of one run and of several share.
#pragma once

#include <string>
#include <vector>

#include "io/plot/chart_svg.h"
#include "io/xml_text.h"
#include "plan/report/run_data.h"

namespace triax::plan {

/// One curve of metrics.jsonl and how it is drawn.
struct CurveKind {
  const char* column;
  const char* title;
  const char* unit;
  io::NumberForm form = io::NumberForm::Plain;
  bool from_zero = false;
  bool noisy = false;          ///< a running mean is drawn over long runs
  bool hide_constant = false;  ///< not drawn where all values are the same
};
const std::vector<CurveKind>& curve_kinds();

/// "t0, 208.6k parameters, on 2 ranks: tp 1, pp 2, dp 1; zb-h1, 4 micro-batches of 1; fp32"
std::string sentence_of(const RunData& run);
bool is_constant(const io::Chart& chart);
/// Largest finite value of a column; NaN without one.
double maximum(const RunData& run, const std::string& column);
std::string environment_list(const RunData& run);
std::string repeat_text(const RunData& run);
/// Which Triax made the page, and when.
std::string footer();

}  // namespace triax::plan
