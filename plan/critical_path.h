// The chain of ops and messages that a simulated step waits for from its start to its end: what must shrink for the
// step to shrink.
#pragma once

#include <string>
#include <vector>

#include "plan/prediction.h"

namespace triax::plan {

/// One kind of link of the chain on one position, summed.
struct PathShare {
  std::string what;  ///< "F", "B", ..., "message", "REDUCE_GRAD", ...; "other replicas" where the chain leaves this one
  int position = -1;  ///< -1: messages, other replicas
  int64_t ps = 0;
};

struct CriticalPath {
  std::vector<PathShare> shares;  ///< largest first; they sum to the step
  int64_t ops = 0;                ///< links of the chain
  int64_t total_ps() const;
};

/// Walks back from the op that ends last: to the op before it in the lane, to the send of an awaited message, to the
/// sum or gather it waited for. Where several end at the same time the own lane comes first.
CriticalPath critical_path(const SimulatedStep& step);

}  // namespace triax::plan
