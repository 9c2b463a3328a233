#include "comm/host_group.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstring>
#include <new>

#include "comm/mpi_check.h"

namespace triax::comm {
namespace {

constexpr int kStages = 4;
constexpr int kSpins = 2000;  // about 10-20 us
constexpr int kYields = 20;
constexpr long kSleepNs = 50'000'000;     // between two looks at the clock
constexpr long kProgressNs = 100'000;     // between two turns of MPI's progress engine, when messages are in flight

static_assert(sizeof(std::atomic<uint32_t>) == 4 && std::atomic<uint32_t>::is_always_lock_free);

// Without FUTEX_PRIVATE_FLAG: the word lies in memory shared by processes (std::atomic::wait is private to one).
void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, long timeout_ns) {
  const timespec timeout{0, timeout_ns};
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

void futex_wake_all(std::atomic<uint32_t>& word) { syscall(SYS_futex, &word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0); }

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

HostGroup::HostGroup(HostMemory& memory, MPI_Comm comm, const GroupInfo& group, std::vector<int> local_ranks,
                     BarrierSpin spin, Progress& progress)
    : group_(group),
      memory_(&memory),
      progress_(&progress),
      local_ranks_(std::move(local_ranks)),
      spins_(spin == BarrierSpin::Yes ? kSpins : 0) {
  const auto n = static_cast<size_t>(group_.size());
  own_stage_ = static_cast<std::byte*>(memory.allocate(kStages * kStageBytes));
  std::array<int64_t, 2> mine{memory.offset_of(own_stage_, kStages * kStageBytes), -1};
  if (group_.rank == 0) {
    control_bytes_ = static_cast<int64_t>(sizeof(Control) + n * sizeof(Member));
    own_control_ = static_cast<std::byte*>(memory.allocate(static_cast<size_t>(control_bytes_)));
    std::memset(own_control_, 0, static_cast<size_t>(control_bytes_));
    mine[1] = memory.offset_of(own_control_, control_bytes_);
  }
  std::vector<std::array<int64_t, 2>> all(n);
  MPI_Request request = MPI_REQUEST_NULL;
  TRIAX_MPI(MPI_Iallgather(mine.data(), 2, MPI_INT64_T, all.data(), 2, MPI_INT64_T, comm, &request));
  wait_all({&request, 1}, {}, group_, Operation::AllGather, 0);
  for (size_t r = 0; r < n; ++r) stages_.push_back(at(static_cast<int>(r), all[r][0]));
  std::byte* control = at(0, all[0][1]);
  // Zero bytes are the valid first state of both (atomics of integers).
  control_ = std::launder(reinterpret_cast<Control*>(control));
  members_ = std::launder(reinterpret_cast<Member*>(control + sizeof(Control)));
}

HostGroup::~HostGroup() {
  memory_->deallocate(own_stage_, kStages * kStageBytes);
  if (own_control_ != nullptr) memory_->deallocate(own_control_, static_cast<size_t>(control_bytes_));
}

void HostGroup::meet(const Announcement& mine) {
  next_slot().announcement = mine;
  ++sequence_;
  current_ = mine.op;
  barrier();
  check_announcements();
}

void HostGroup::check_announcements() const {
  const Announcement& mine = announcement(group_.rank);
  for (int r = 0; r < group_.size(); ++r) {
    const Announcement& other = announcement(r);
    if (other.op == mine.op && other.dtype == mine.dtype && other.reduce_op == mine.reduce_op &&
        other.root == mine.root && other.count == mine.count) {
      continue;
    }
    const auto words = [](const Announcement& a) {
      return fmt::format("{} of {} {} (reduction {}, root {})", name_of(a.op), a.count, name_of(a.dtype),
                         static_cast<int>(a.reduce_op), a.root);
    };
    throw RunTimeError(fmt::format("group {} operation #{}: rank {} called {}, but rank {} called {}", group_.name,
                                   sequence_, group_.rank, words(mine), r, words(other)));
  }
}

void HostGroup::barrier() {
  members_[group_.rank].arrivals.store(++arrivals_, std::memory_order_relaxed);
  const uint32_t generation = control_->generation.load(std::memory_order_relaxed);
  if (control_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 < static_cast<uint32_t>(group_.size())) {
    wait_for_generation(generation);
    return;
  }
  control_->arrived.store(0, std::memory_order_relaxed);
  control_->generation.store(generation + 1, std::memory_order_seq_cst);
  // A sleeper counts itself before it looks at the generation a last time (in the kernel), so none is missed.
  if (control_->sleepers.load(std::memory_order_seq_cst) > 0) futex_wake_all(control_->generation);
}

void HostGroup::wait_for_generation(uint32_t generation) {
  const auto passed = [&] { return control_->generation.load(std::memory_order_acquire) != generation; };
  for (int i = 0; i < spins_; ++i) {
    if (passed()) return;
    relax();
  }
  for (int i = 0; i < kYields; ++i) {
    if (passed()) return;
    sched_yield();
  }
  const Stopwatch watch;
  while (!passed()) {
    const bool poll = progress_->needed();
    if (poll) progress_->poll();
    control_->sleepers.fetch_add(1, std::memory_order_seq_cst);
    futex_wait(control_->generation, generation, poll ? kProgressNs : kSleepNs);
    control_->sleepers.fetch_sub(1, std::memory_order_seq_cst);
    if (!passed() && watch.elapsed_s() > group_.timeout_s) lost(watch.elapsed_s());
  }
}

void HostGroup::lost(double waited_s) const {
  std::vector<int> missing;
  for (int r = 0; r < group_.size(); ++r) {
    if (members_[r].arrivals.load(std::memory_order_relaxed) < arrivals_) missing.push_back(r);
  }
  throw_peer_lost(group_, current_, sequence_, waited_s, missing);
}

}  // namespace triax::comm
