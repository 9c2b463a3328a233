#include "comm/wait.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
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
constexpr size_t kMostNamed = 16;

std::string member(const GroupInfo& group, int rank) {
  const auto i = static_cast<size_t>(rank);
  return fmt::format("{} rank {} (world rank {} on {})", group.name, rank, group.world_ranks[i], group.hosts[i]);
}

std::string missing_members(const GroupInfo& group, std::span<const int> missing) {
  std::vector<std::string> names;
  for (const int rank : missing.first(std::min(missing.size(), kMostNamed))) names.push_back(member(group, rank));
  if (missing.size() > kMostNamed) names.push_back(fmt::format("{} more", missing.size() - kMostNamed));
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

void throw_peer_lost(const GroupInfo& group, Operation op, int64_t sequence, double waited_s,
                     std::span<const int> missing) {
  const std::string who = missing.empty() ? fmt::format("a member of world ranks {}", fmt::join(group.world_ranks, " "))
                                          : missing_members(group, missing);
  throw PeerLost(fmt::format("peer lost: {} #{} of group {} waited {:.1f} s on {}; no answer from {}", name_of(op),
                             sequence, group.name, waited_s, member(group, group.rank), who));
}

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
