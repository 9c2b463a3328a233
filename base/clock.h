// Monotonic wall clock.
#pragma once

#include <chrono>

namespace triax {

/// Seconds since an arbitrary start; never goes back.
inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Measures from its construction or last restart.
class Stopwatch {
 public:
  double elapsed_s() const { return now_s() - start_s_; }
  void restart() { start_s_ = now_s(); }

 private:
  double start_s_ = now_s();
};

}  // namespace triax
