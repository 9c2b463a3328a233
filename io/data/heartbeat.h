// Says every ten seconds that a long phase is still going on.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace triax::io {

/// From construction to destruction a thread logs "<what>: still working, 20 s so far".
class Heartbeat {
 public:
  explicit Heartbeat(std::string what, double interval_s = 10.0);
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;
  Heartbeat(Heartbeat&&) = delete;
  Heartbeat& operator=(Heartbeat&&) = delete;
  ~Heartbeat();

 private:
  void run(double interval_s);
  std::string what_;
  bool done_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
};

}  // namespace triax::io
