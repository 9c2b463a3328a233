// The answer of `triax plan` as table, JSON and CSV.
#pragma once

#include <string>
#include <vector>

#include "apps/plan_request.h"
#include "plan/planner/reasons.h"

namespace triax::apps {

/// Everything that is said about one number of devices.
struct PlanAnswer {
  plan::PlanQuestion question;
  plan::SearchResult result;
  plan::Ratios ratios;
  std::vector<plan::ValueNote> values;
  std::vector<plan::Sensitivity> sensitivities;
  std::vector<std::string> advice;
  std::vector<plan::AssumedConstant> assumed;  ///< that the winner's step hangs on
  std::vector<std::string> infeasible;         ///< where nothing fits
};

std::string plan_table(const PlanRequest& request, const PlanAnswer& answer);
/// The choices of one number of devices.
std::string plan_json(const PlanRequest& request, const PlanAnswer& answer);
std::string plan_csv(const PlanAnswer& answer, int shown);
/// The best layout of each number of devices, with the efficiency against the first that has one.
std::string range_table(const std::vector<PlanAnswer>& answers);
std::string range_csv(const std::vector<PlanAnswer>& answers);

extern const char* const kPlanUsage;
extern const char* const kPlanDescription;

}  // namespace triax::apps
