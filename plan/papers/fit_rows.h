// Which published rows the constants were fitted on.
#pragma once

#include <vector>

#include "plan/papers/paper_run.h"

namespace triax::plan {

/// Sets `fitted`: named rows of the small tables, of the large ones those whose id falls into the chosen part, of
/// NCCL's table every third size; never more than a third of a family.
void mark_fitted(std::vector<PaperRun>& runs);

}  // namespace triax::plan
