#include "comm/shared_event.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace triax::comm {
namespace {

constexpr long kSleepNs = 50'000'000;  // between two looks at the clock
constexpr long kProgressNs = 100'000;  // between two turns of MPI's progress engine, when messages are in flight

static_assert(sizeof(std::atomic<uint32_t>) == 4 && std::atomic<uint32_t>::is_always_lock_free);

}  // namespace

void SharedEvent::signal() {
  word.fetch_add(1, std::memory_order_seq_cst);
  // A sleeper counts itself before the kernel compares the word a last time, so none is missed.
  if (sleepers.load(std::memory_order_seq_cst) == 0) return;
  // Not FUTEX_PRIVATE_FLAG: other processes wait.
  syscall(SYS_futex, &word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

void EventWait::relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

void EventWait::yield() { sched_yield(); }

void EventWait::sleep(SharedEvent& event, uint32_t seen) const {
  const bool poll = progress->needed();
  if (poll) progress->poll();
  const timespec timeout{0, poll ? kProgressNs : kSleepNs};
  event.sleepers.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &event.word, FUTEX_WAIT, seen, &timeout, nullptr, 0);
  event.sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace triax::comm
