// Point-to-point messages in flight between hosts move only inside MPI calls, so whoever waits for something else must
// call MPI now and then: a rank that slept in a barrier of its tp group could hold up the very peer it waits for.
#pragma once

#include <atomic>

namespace triax::comm {

class Progress {
 public:
  void message_started() { in_flight_.fetch_add(1, std::memory_order_relaxed); }
  void message_ended() { in_flight_.fetch_sub(1, std::memory_order_relaxed); }
  bool needed() const { return in_flight_.load(std::memory_order_relaxed) > 0; }
  /// One turn of MPI's progress engine.
  void poll();
  /// An error is unwinding this rank: all its waits give up, also those of the communication thread.
  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> cancelled_{false};
  std::atomic<int> in_flight_{0};
};

}  // namespace triax::comm
