#include "io/data/heartbeat.h"

#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/log.h"

namespace triax::io {

Heartbeat::Heartbeat(std::string what, double interval_s)
    : what_(std::move(what)), thread_([this, interval_s] { run(interval_s); }) {}

Heartbeat::~Heartbeat() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Heartbeat::run(double interval_s) {
  const Stopwatch watch;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, std::chrono::duration<double>(interval_s), [this] { return done_; })) {
    spdlog::info("{}: still working, {:.0f} s so far", what_, watch.elapsed_s());
  }
}

}  // namespace triax::io
