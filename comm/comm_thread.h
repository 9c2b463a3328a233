// The thread of a rank on which its background collectives run, one after the other; the CPU's communication stream.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

namespace triax::comm {

class CommThread {
 public:
  /// Something to run. Owned by the caller until run() has returned.
  class Task {
   public:
    virtual ~Task() = default;
    virtual void run() noexcept = 0;

   private:
    friend class CommThread;
    Task* next_ = nullptr;
  };

  CommThread() : thread_([this] { work(); }) {}
  /// Runs what is still queued, then ends.
  ~CommThread();
  CommThread(const CommThread&) = delete;
  CommThread& operator=(const CommThread&) = delete;

  /// Queues `task` behind the others. Thread-safe.
  void post(Task& task);

 private:
  void work();
  std::mutex mutex_;
  std::condition_variable wake_;
  Task* first_ = nullptr;
  Task* last_ = nullptr;
  bool ending_ = false;
  std::thread thread_;  // last: starts when all else is there
};

}  // namespace triax::comm
