// `triax plan --try N`: the best layouts run for real, predicted beside measured.
#pragma once

#include "apps/plan_text.h"

namespace triax::apps {

/// Runs the first N choices for 20 steps each through --launcher and prints predicted beside measured. Returns the exit
/// code: 0, or 5 where no run ended well.
int try_plan(const PlanRequest& request, const PlanAnswer& answer);

}  // namespace triax::apps
