// Time for deadlines of waits: what passes while this process is suspended does not count.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace triax::comm {

/// Time that passed while this process ran: a job that is suspended as a whole, and continued, has lost nobody. To be
/// asked at least every half second.
class RunningTime {
 public:
  double elapsed_s() {
    const double now = now_s();
    elapsed_s_ += std::min(now - last_s_, kMostAtOnce_s);
    last_s_ = now;
    return elapsed_s_;
  }

 private:
  static constexpr double kMostAtOnce_s = 0.5;
  double last_s_ = now_s();
  double elapsed_s_ = 0;
};

}  // namespace triax::comm
