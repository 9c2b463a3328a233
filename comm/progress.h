// Messages in flight between hosts move only inside MPI calls: a rank that computes, or sleeps in a barrier of its tp
// group, would hold up the very peer it waits for.
#pragma once

#include <atomic>
#include <thread>

namespace triax::comm {

class Progress {
 public:
  Progress() = default;
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void message_started();
  void message_ended() { in_flight_.fetch_sub(1, std::memory_order_relaxed); }
  bool needed() const { return in_flight_.load(std::memory_order_relaxed) > 0; }
  /// One turn of MPI's progress engine.
  void poll();
  /// Starts a thread that polls every 200 us while messages are in flight, and sleeps otherwise.
  void start_thread();
  /// An error is unwinding this rank: all its waits give up, also those of other threads.
  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

 private:
  void work();
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> ending_{false};
  std::atomic<int> in_flight_{0};
  std::thread thread_;
};

}  // namespace triax::comm
