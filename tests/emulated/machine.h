// The machine that runs the threads of a block as fibers (simt.h).
#pragma once

#include <simt_hopper.h>
#include <sys/mman.h>

#include <boost/context/fiber.hpp>
#include <boost/context/preallocated.hpp>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <random>
#include <string>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace triax::simt {

/// AddressSanitizer must be told of every change of stacks. Nothing happens without it.
struct StackSwitch {
  void* fake = nullptr;  // its record of the stack that is left
#if defined(__SANITIZE_ADDRESS__)
  void leave_for(const void* lowest, size_t bytes) { __sanitizer_start_switch_fiber(&fake, lowest, bytes); }
  /// Leaves a stack that nothing comes back to.
  static void leave_for_good(const void* lowest, size_t bytes) {
    __sanitizer_start_switch_fiber(nullptr, lowest, bytes);
  }
  void arrive() { __sanitizer_finish_switch_fiber(fake, nullptr, nullptr); }
  /// Notes where the stack lies that was left.
  void arrive_from(const void** lowest, size_t* bytes) { __sanitizer_finish_switch_fiber(fake, lowest, bytes); }
  static void fresh(void* lowest, size_t bytes) { __asan_unpoison_memory_region(lowest, bytes); }
#else
  void leave_for(const void*, size_t) {}
  static void leave_for_good(const void*, size_t) {}
  void arrive() {}
  void arrive_from(const void**, size_t*) {}
  static void fresh(void*, size_t) {}
#endif
};

namespace context = boost::context;

enum class State { Ready, AtWarp, AtBarrier, AtMbarrier, Done };

struct Copy {
  void* to;
  const void* from;  // null: zeros
  size_t bytes;
  bool done = false;
};

/// A barrier in shared memory that counts arrivals and bytes.
struct Mbarrier {
  int arrivals = 0, pending = 0;
  int64_t bytes = 0;  // announced and not yet come
  unsigned phase = 0;
  bool fenced = false;  // the copy engine may use it
};

/// A copy of a box that has not landed yet.
struct BoxCopy {
  unsigned to;
  CUtensorMap tensor;
  int at[4];
  const void* barrier;
};

/// A product that its thread has not waited for yet.
struct Issued {
  LaneProduct product;
  size_t group;
  bool done;
};

struct Thread {
  dim3 index;
  unsigned linear = 0;
  State state = State::Ready;
  unsigned mask = 0;      // of the warp operation it waits at
  const char* file = "";  // where it waits
  int line = 0;
  std::vector<std::pair<uint64_t, uint32_t>> visits;  // of places that access global memory, when these are counted
  std::vector<Copy> open;                             // copies since the last commit
  std::vector<std::vector<Copy>> groups;              // committed, not yet waited for
  const Mbarrier* mbarrier = nullptr;                 // it waits at, for the phase of this parity
  unsigned parity = 0;
  bool products_fenced = false;
  size_t product_groups = 0;  // committed
  std::vector<Issued> products;
  std::map<float*, std::vector<float>> sums;  // of products in flight; what they lie in is NaN
  struct Worker* worker = nullptr;            // the fiber on which it waits
};

/// A fiber that runs threads: one after the other, as long as none of them has to wait.
struct Worker {
  size_t number = 0;
  Thread* thread = nullptr;
  context::fiber self, scheduler;
  StackSwitch stack;
};

struct Warp {
  alignas(32) unsigned char slots[2][32][kSlotBytes];
  int parity = 0;  // a lane may already write its next operation while others read this one
};

/// Stacks of fibers, made once and kept; the lowest page of each is a guard.
class Stacks {
 public:
  static constexpr size_t kBytes = size_t{128} << 10, kGuard = 4096;
  Stacks() = default;
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;
  ~Stacks() {
    for (void* s : stacks_) munmap(s, kBytes);
  }
  void* top(size_t i) {
    while (stacks_.size() <= i) {
      void* const s = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (s == MAP_FAILED || mprotect(s, kGuard, PROT_NONE) != 0) throw std::bad_alloc();
      stacks_.push_back(s);
    }
    return static_cast<char*>(stacks_[i]) + kBytes;
  }

 private:
  std::vector<void*> stacks_;
};

/// Unwinds a thread of a block that failed.
struct Abandoned {};

struct KeepStack {
  context::stack_context allocate() { return {}; }
  void deallocate(context::stack_context&) noexcept {}
};

uint32_t simt_seed();

/// Called around the blocks of a launch while traffic is counted.
void begin_traffic_of(const char* kernel);
void end_traffic_of_block(const char* kernel);

/// One block at a time.
class Machine {
 public:
  Machine() = default;
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine();
  void run_block(const char* kernel, const std::function<void()>& thread, size_t shared_bytes);
  /// A copy of a box, any one, comes to pass; false when none is under way.
  bool land_box();
  void wake_waiting(const Mbarrier& barrier);
  bool by_chance() { return (random_() & 1) != 0; }

  dim3 grid, block, block_index;
  Thread* running = nullptr;
  Worker* worker = nullptr;  // that runs it
  bool abandoned = false, ending = false;
  StackSwitch stack;  // of the scheduler, with where it lies: on the thread that runs this block
  const void* stack_lowest = nullptr;
  size_t stack_bytes = 0;
  std::vector<Warp> warps;
  std::vector<uint4> shared;   // of the block, and a strip behind it that nobody may touch
  size_t asked_shared = 0;     // that the launch asked for
  unsigned shared_offset = 0;  // where it begins, as the hardware counts: a multiple of 16
  std::map<const void*, Mbarrier> mbarriers;
  std::vector<BoxCopy> boxes;

 private:
  Worker& idle_worker();
  void work(Worker& w);
  void take_shared(size_t bytes);
  void check_behind_shared() const;
  void start_block(const char* kernel, const std::function<void()>& thread, size_t shared_bytes);
  void turn(Thread& t);
  bool take_fresh(Worker& w);
  void abandon();
  bool run_warp(unsigned w);
  bool release_warp(unsigned w);
  bool release_barrier();
  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void fail_stuck() const;

  Stacks stacks_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Worker*> idle_;
  const std::function<void()>* body_ = nullptr;
  std::vector<Thread> threads_;  // of this block and, behind them, of larger ones before
  unsigned count_ = 0, live_ = 0;
  std::vector<unsigned> warp_order_;
  unsigned order_[32];  // of the lanes in this turn of a warp
  unsigned warp_begin_ = 0, place_ = 0;
  const char* kernel_ = "";
  std::exception_ptr error_;
  std::mt19937 random_{simt_seed()};
};

/// Hands control back until the scheduler makes this thread ready again.
void wait_as(State state, unsigned mask, const char* file, int line);

/// Of the whole process: one operating-system thread at a time runs kernels.
extern Machine machine;

}  // namespace triax::simt
