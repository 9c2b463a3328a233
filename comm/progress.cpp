#include "comm/progress.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <exception>

#include "comm/mpi_check.h"

namespace triax::comm {
namespace {

constexpr std::chrono::microseconds kPollInterval(200);

}  // namespace

Progress::~Progress() {
  if (!thread_.joinable()) return;
  ending_.store(true);
  message_started();  // wakes it
  thread_.join();
}

void Progress::message_started() {
  in_flight_.fetch_add(1, std::memory_order_relaxed);
  in_flight_.notify_one();
}

void Progress::poll() {
  int flag = 0;
  TRIAX_MPI(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE));
}

void Progress::start_thread() {
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
}

void Progress::work() {
  while (true) {
    in_flight_.wait(0);
    if (ending_.load()) return;
    try {
      poll();
    } catch (const std::exception& error) {
      // Whoever waits for the message sees the error too.
      spdlog::error("progress of messages in flight: {}", error.what());
      return;
    }
    std::this_thread::sleep_for(kPollInterval);
  }
}

}  // namespace triax::comm
