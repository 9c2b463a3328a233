#include "comm/wait.h"

#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>

#include "comm/mpi_check.h"

namespace triax::comm {
namespace {

constexpr int kPolls = 20;
constexpr int kYields = 200;
constexpr long kShortSleepNs = 20'000;
constexpr long kLongSleepNs = 50'000;

}  // namespace

bool Backoff::pause() {
  ++polls_;
  if (polls_ <= kPolls) return true;
  if (polls_ <= kPolls + kYields) {
    sched_yield();
    if (polls_ % 16 != 0) return true;
  } else {
    const timespec time{0, polls_ <= kPolls + 10 * kYields ? kShortSleepNs : kLongSleepNs};
    nanosleep(&time, nullptr);
  }
  const bool cancelled = progress_ != nullptr && progress_->cancelled();
  return !cancelled && running_.elapsed_s() < timeout_s_;
}

void wait_all(std::span<MPI_Request> requests, std::span<const int> peers, const GroupInfo& group, Operation op,
              int64_t sequence, std::span<MPI_Status> statuses) {
  if (requests.empty()) return;
  Backoff backoff(group);
  MPI_Status* into = statuses.empty() ? MPI_STATUSES_IGNORE : statuses.data();
  int done = 0;
  while (true) {
    TRIAX_MPI(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, into));
    if (done != 0) return;
    if (backoff.pause()) continue;
    std::vector<int> missing;
    for (size_t i = 0; i < peers.size(); ++i) {
      TRIAX_MPI(MPI_Request_get_status(requests[i], &done, MPI_STATUS_IGNORE));
      if (done == 0 && std::count(missing.begin(), missing.end(), peers[i]) == 0) missing.push_back(peers[i]);
    }
    throw_peer_lost(group, op, sequence, backoff.waited_s(), missing);
  }
}

void set_timer_slack() { prctl(PR_SET_TIMERSLACK, 1000UL); }

}  // namespace triax::comm
