// What happened in a run besides steps, from all that its directory keeps.
#pragma once

#include "plan/report/run_data.h"

namespace triax::plan {

/// Starts and restarts, steps made again, skipped and not finite steps, slow steps, evaluations, the end or its
/// absence; a sweep's verdict. In order of iteration.
std::vector<RunEvent> events_of(const RunData& run);

}  // namespace triax::plan
