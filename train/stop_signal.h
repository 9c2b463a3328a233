// SIGTERM and SIGUSR1 ask for a stop after the running step, or, while a run starts, after its first one. A flag is
// set; the trainer reduces it over all ranks.
#pragma once

#include <csignal>

namespace triax::train {

/// Handlers are installed for its lifetime; at most one at a time.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  /// Number of the last signal received by this process since construction, or 0.
  int received() const;

 private:
  struct sigaction old_term_ {};
  struct sigaction old_usr1_ {};
};

}  // namespace triax::train
