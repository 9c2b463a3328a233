#include "base/watched_call.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/last_words.h"

namespace triax {

/// A thread that ends the job unless it is ended itself within the deadline. What passes while the process is suspended
/// does not count.
class WatchedCall::Watch {
 public:
  Watch(std::string call, double deadline_s)
      : call_(std::move(call)), deadline_s_(deadline_s), thread_([this] { run(); }) {}
  ~Watch() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  void run() {
    constexpr double kTick_s = 0.5;
    double waited_s = 0, last_s = now_s();
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, std::chrono::duration<double>(kTick_s), [this] { return ended_; })) {
      waited_s += std::min(now_s() - last_s, 2 * kTick_s);
      last_s = now_s();
      if (waited_s > deadline_s_) expire(waited_s);
    }
  }
  [[noreturn]] void expire(double waited_s) const {
    std::array<char, 256> host{};
    ::gethostname(host.data(), host.size() - 1);
    say_last_words(fmt::format(
        "rank {} ({}) has waited in {} for {:.1f} s: another rank has not come there; it is stopped, or its "
        "node is gone\n",
        std::max(0, launched_rank()), host.data(), call_, waited_s));
    abort_all_ranks(static_cast<int>(ExitCode::RunTime));
    ::_exit(static_cast<int>(ExitCode::RunTime));
  }
  std::string call_;
  double deadline_s_;
  bool ended_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
};

WatchedCall::WatchedCall(FlightRecorder* recorder, const char* name) : call_(recorder, name) {
  constexpr double kDeadline_s = 600;
  if (recorder != nullptr && recorder->header().parent_pid != 0) return;
  watch_ = std::make_unique<Watch>(name, recorder == nullptr ? kDeadline_s : recorder->header().timeout_s);
}

WatchedCall::~WatchedCall() = default;

}  // namespace triax
