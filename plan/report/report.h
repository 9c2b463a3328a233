// `triax report`: pages of one run, and of several side by side.
#pragma once

#include <string>
#include <vector>

#include "plan/report/run_data.h"

namespace triax::plan {

/// Everything about one run, on one page.
std::string run_page(const RunData& run);

/// Several: what differs, metrics side by side, curves over each other, and what cannot be compared.
std::string comparison_page(const std::vector<RunData>& runs);

}  // namespace triax::plan
