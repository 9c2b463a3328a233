// `triax sweep --paper`: published beside predicted, and beside a small run here.
#pragma once

#include <string>
#include <vector>

#include "apps/sweep_request.h"
#include "plan/papers/results.h"

namespace triax::apps {

/// Returns the exit code.
int sweep_paper(SweepRequest& request, const std::vector<std::string>& args);

/// --real: the experiments of these presets, made small and run; measured beside the paper's order.
int sweep_paper_real(const SweepRequest& request, const std::vector<plan::PaperPreset>& presets,
                     const std::vector<std::string>& args);

}  // namespace triax::apps
