// The actions of `triax trace` that read a run's flight recorders.
#pragma once

#include <string>
#include <vector>

namespace triax::apps {

/// args[0] is the action's name. Who ended the run, why, and what each rank did.
int trace_blame(const std::vector<std::string>& args);
/// The last records of each rank, or of one.
int trace_flight(const std::vector<std::string>& args);

}  // namespace triax::apps
