// A word in memory shared by processes that they can wait for: the ground of barriers and messages inside a host.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "comm/progress.h"
#include "comm/running_time.h"

namespace triax::comm {

/// Zero bytes are its valid first state. std::atomic::wait would not do: it is private to one process.
struct SharedEvent {
  std::atomic<uint32_t> word;
  std::atomic<uint32_t> sleepers;
  /// Changes the word and wakes all who sleep on it.
  void signal();
};

/// How a rank waits for events.
struct EventWait {
  int spins = 0;  ///< looks before the core is given away; 0 where ranks outnumber cores
  double timeout_s = 600;
  Progress* progress = nullptr;  ///< kept going while waiting

  /// Waits until ready() holds; `event` is signalled after each change that may make it so. Spins, yields 20 times,
  /// then sleeps on the futex. False at the deadline, or when the rank gives up.
  template <class Ready>
  bool until(SharedEvent& event, Ready ready) const {
    for (int i = 0; i <= spins; ++i) {
      if (ready()) return true;
      relax();
    }
    for (int i = 0; i < kYields; ++i) {
      yield();
      if (ready()) return true;
    }
    RunningTime running;
    while (true) {
      const uint32_t seen = event.word.load(std::memory_order_seq_cst);
      if (ready()) return true;
      if (running.elapsed_s() > timeout_s || progress->cancelled()) return false;
      sleep(event, seen);
    }
  }

 private:
  static constexpr int kYields = 20;
  static void relax();
  static void yield();
  /// Until the word differs from `seen`, or for a while.
  void sleep(SharedEvent& event, uint32_t seen) const;
};

}  // namespace triax::comm
