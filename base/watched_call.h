// Calls of MPI that block without a deadline of their own, and who ends the job when one of them does not return.
#pragma once

#include <memory>

#include "base/flight_recorder.h"

namespace triax {

/// For its lifetime the rank's parent watches the call (UnguardedCall). Without a parent a thread does, which at the
/// recorder's deadline (10 minutes without a recorder) ends the job with exit code 5, and says in which call.
class WatchedCall {
 public:
  WatchedCall(FlightRecorder* recorder, const char* name);
  ~WatchedCall();
  WatchedCall(const WatchedCall&) = delete;
  WatchedCall& operator=(const WatchedCall&) = delete;

 private:
  class Watch;
  UnguardedCall call_;
  std::unique_ptr<Watch> watch_;
};

}  // namespace triax
