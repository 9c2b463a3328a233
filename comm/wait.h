// How this layer waits: it polls, gives the core away, and gives up at a deadline with words that name who is missing.
#pragma once

#include <mpi.h>

#include <span>

#include "base/clock.h"
#include "comm/communicator.h"
#include "comm/group_info.h"
#include "comm/progress.h"
#include "comm/running_time.h"

namespace triax::comm {

/// One wait: pause() between two polls. First it only polls again, then yields the core, then sleeps 20-50 us.
class Backoff {
 public:
  explicit Backoff(const GroupInfo& group) : timeout_s_(group.timeout_s), progress_(group.progress) {}
  /// False once the deadline has passed, or when the rank gives up.
  bool pause();
  double waited_s() const { return watch_.elapsed_s(); }

 private:
  double timeout_s_;
  const Progress* progress_;
  RunningTime running_;
  Stopwatch watch_;
  int polls_ = 0;
};

/// Completes all requests (they become MPI_REQUEST_NULL) or throws PeerLost. peers[i]: group rank that requests[i]
/// talks to; may be empty. statuses: as many as requests, or none.
void wait_all(std::span<MPI_Request> requests, std::span<const int> peers, const GroupInfo& group, Operation op,
              int64_t sequence, std::span<MPI_Status> statuses = {});

/// Lets the kernel wake this thread from short sleeps within 1 us instead of 50 us.
void set_timer_slack();

}  // namespace triax::comm
