// What `triax plan` is asked: a model, a machine, devices, a batch, and which layouts may be chosen.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/entry_makers.h"
#include "plan/planner/search.h"

namespace triax::apps {

struct PlanRequest {
  io::ParsedOptions parsed;
  std::string hw;
  std::vector<int> devices;     ///< --gpus or --world-size; more than one: the best layout of each
  plan::PlanQuestion question;  ///< of the first number of devices
  int shown = 10;
  int tried = 0;  ///< --try
  std::string launcher = "mpiexec -n {ranks}";
  std::string verify;  ///< run directory; empty: none
  std::string emit;    ///< directory; empty: none
  Format format = Format::Table;
  bool describe = false;
  std::string out;
  std::vector<std::string> notes;  ///< values that were assumed
};

/// Options of `triax plan` beside the table's. The entries write into `request`, which must outlive them.
std::vector<io::OptionEntry> plan_entries(PlanRequest& request);

/// Parses. A layout option of the table that is given (--tensor-model-parallel-size and so on) fixes its axis. Throws
/// ConfigError.
void read_plan_request(const std::vector<std::string>& args, PlanRequest& request);

/// The question for another number of devices: the global batch stays.
plan::PlanQuestion question_for(const PlanRequest& request, int devices);

}  // namespace triax::apps
