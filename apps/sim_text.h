// The result of `triax sim` as table, JSON and CSV.
#pragma once

#include <string>
#include <vector>

#include "apps/sim_request.h"

namespace triax::apps {

extern const char* const kSimUsage;
extern const char* const kSimDescription;

struct SimReport {
  const SimRequest& request;
  plan::Prediction prediction;
  std::vector<plan::AssumedConstant> assumed;
};

std::string table_text(const SimReport& report);
std::string json_text(const SimReport& report);
/// One line per stage and one for the step ("all"): seconds and bytes.
std::string csv_text(const SimReport& report);

/// "gpt3-175b on a100-80gb, t 8, p 16, ...": for titles.
std::string headline(const SimReport& report);

}  // namespace triax::apps
