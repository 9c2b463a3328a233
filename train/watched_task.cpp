#include "train/watched_task.h"

#include <fmt/format.h>
#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <chrono>

namespace triax::train {
namespace {

constexpr auto kBeat = std::chrono::milliseconds(500);
constexpr double kMostAtOnce_s = 1;  // of a pause between two beats, in which this process may have been suspended

/// -1 when the thread has ended.
double cpu_time_s(std::thread& thread) {
  clockid_t clock{};
  timespec time{};
  if (pthread_getcpuclockid(thread.native_handle(), &clock) != 0 || clock_gettime(clock, &time) != 0) return -1;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

WatchedTask::WatchedTask(const std::function<void()>& task, double deadline_s) : deadline_s_(deadline_s) {
  std::packaged_task<void()> packaged(task);
  done_ = packaged.get_future();
  thread_ = std::thread(std::move(packaged));
}

WatchedTask::~WatchedTask() {
  while (done_.valid() && done_.wait_for(kBeat) != std::future_status::ready) {
    if (!stalled()) continue;
    thread_.detach();
    return;
  }
  thread_.join();
}

bool WatchedTask::beat() {
  if (done_.wait_for(kBeat) == std::future_status::ready) return true;
  if (!stalled()) return false;
  throw Stalled(
      fmt::format("the disk or file system has not answered for {:.1f} s (--distributed-timeout-minutes {:g})", idle_s_,
                  deadline_s_ / 60));
}

bool WatchedTask::stalled() {
  const double now = now_s();
  const double cpu = cpu_time_s(thread_);
  idle_s_ = cpu == cpu_s_ ? idle_s_ + std::min(now - last_beat_s_, kMostAtOnce_s) : 0;
  cpu_s_ = cpu;
  last_beat_s_ = now;
  return idle_s_ > deadline_s_;
}

}  // namespace triax::train
