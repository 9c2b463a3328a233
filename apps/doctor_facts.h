// What a rank finds out about its surroundings for `triax doctor`.
#pragma once

#include <string>

#include "comm/launch_checks.h"
#include "comm/mpi_session.h"

namespace triax::apps {

/// All but clock_s, sees_directory and lock_errno, which need the other ranks. `device`: of --device; with "cuda" the
/// GPU is told by CUDA_VISIBLE_DEVICES, else by the devices of the node, taken by local rank.
/// `device_fault`: why a run on it would be refused, if it would.
comm::LaunchFacts launch_facts(const comm::MpiSession& session, const std::string& device,
                               const std::string& device_fault);

}  // namespace triax::apps
