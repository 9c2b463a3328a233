// Work on a thread of its own that must get on: a disk or a file system that does not answer is no reason to wait for
// ever.
#pragma once

#include <functional>
#include <future>
#include <thread>

#include "base/clock.h"
#include "base/error.h"

namespace triax::train {

/// A disk or file system does not answer: nothing more can be written there, nor taken away.
class Stalled : public RunTimeError {
 public:
  using RunTimeError::RunTimeError;
};

/// Runs `task` from its construction on. A task that has used no CPU time for `deadline_s` has stalled: whatever reads,
/// writes or computes uses some. A time during which this process is suspended does not count.
class WatchedTask {
 public:
  WatchedTask(const std::function<void()>& task, double deadline_s);
  /// Waits for the task; one that has stalled is left behind: the process is about to end.
  ~WatchedTask();
  WatchedTask(const WatchedTask&) = delete;
  WatchedTask& operator=(const WatchedTask&) = delete;

  /// Waits half a second at most; true when the task is done. Throws Stalled when it has stalled.
  bool beat();
  /// What the task threw, if it did. To be called once, when it is done.
  void get() { done_.get(); }

 private:
  bool stalled();
  double deadline_s_;
  std::future<void> done_;
  std::thread thread_;
  double cpu_s_ = -1, last_beat_s_ = now_s(), idle_s_ = 0;
};

}  // namespace triax::train
