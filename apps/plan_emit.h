// Files that carry a plan into a run: plan.json, run.cfg (every option of the best layout) and run.slurm.
#pragma once

#include <string>

#include "apps/plan_text.h"

namespace triax::apps {

/// Writes the three files into request.emit (made if absent) and says so on stdout. Throws RunTimeError where a file
/// cannot be written.
void emit_plan(const PlanRequest& request, const PlanAnswer& answer);

/// The Slurm script of a choice; `directory` is where run.cfg lies.
std::string slurm_script(const PlanAnswer& answer, const std::string& directory);
/// Options of `triax train` that repeat a choice, with what a plan does not decide (learning rate, length) filled in.
std::string run_cfg(const plan::Choice& choice);

}  // namespace triax::apps
