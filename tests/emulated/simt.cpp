#include <simt.h>
#include <sys/mman.h>

#include <algorithm>
#include <boost/context/fiber.hpp>
#include <boost/context/preallocated.hpp>
#include <cstdlib>
#include <exception>
#include <memory>
#include <random>
#include <span>
#include <string>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace triax::simt {
namespace {

/// AddressSanitizer must be told of every change of stacks. Nothing happens without it.
struct StackSwitch {
  void* fake = nullptr;  // its record of the stack that is left
#if defined(__SANITIZE_ADDRESS__)
  void leave_for(const void* lowest, size_t bytes) { __sanitizer_start_switch_fiber(&fake, lowest, bytes); }
  void arrive() { __sanitizer_finish_switch_fiber(fake, nullptr, nullptr); }
  static void arrive_first(const void** lowest, size_t* bytes) {
    __sanitizer_finish_switch_fiber(nullptr, lowest, bytes);
  }
  static void fresh(void* lowest, size_t bytes) { __asan_unpoison_memory_region(lowest, bytes); }
#else
  void leave_for(const void*, size_t) {}
  void arrive() {}
  static void arrive_first(const void**, size_t*) {}
  static void fresh(void*, size_t) {}
#endif
};

namespace context = boost::context;

enum class State { Ready, AtWarp, AtBarrier, Done };

struct Copy {
  void* to;
  const void* from;  // null: zeros
  size_t bytes;
  bool done = false;
};

struct Thread {
  dim3 index;
  unsigned linear = 0;
  State state = State::Ready;
  unsigned mask = 0;      // of the warp operation it waits at
  const char* file = "";  // where it waits
  int line = 0;
  std::vector<Copy> open;                 // copies since the last commit
  std::vector<std::vector<Copy>> groups;  // committed, not yet waited for
  struct Worker* worker = nullptr;        // the fiber on which it waits
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

std::string describe(const Thread& t) {
  std::string text = "thread (" + std::to_string(t.index.x) + ", " + std::to_string(t.index.y) + ", " +
                     std::to_string(t.index.z) + ") ";
  if (t.state == State::Done) return text + "has returned";
  text += t.state == State::AtBarrier ? "is at __syncthreads" : "is at a warp operation";
  return text + " in " + t.file + ":" + std::to_string(t.line);
}

uint32_t seed() {
  const char* const text = std::getenv("TRIAX_SIMT_SEED");
  return text == nullptr ? 1u : static_cast<uint32_t>(std::strtoul(text, nullptr, 10));
}

/// One block at a time.
class Machine {
 public:
  void run_block(const char* kernel, const std::function<void()>& thread, size_t shared_bytes);
  bool by_chance() { return (random_() & 1) != 0; }

  dim3 grid, block, block_index;
  Thread* running = nullptr;
  Worker* worker = nullptr;  // that runs it
  bool abandoned = false;
  StackSwitch stack;  // of the scheduler, with where it lies
  const void* stack_lowest = nullptr;
  size_t stack_bytes = 0;
  std::vector<Warp> warps;
  std::vector<uint4> shared;

 private:
  Worker& idle_worker();
  void work(Worker& w);
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
  std::mt19937 random_{seed()};
};

/// Of the whole process: one operating-system thread at a time runs kernels.
Machine machine;

void Machine::fail(const std::string& what) const {
  throw KernelFault(std::string("kernel ") + kernel_ + ", block (" + std::to_string(block_index.x) + ", " +
                    std::to_string(block_index.y) + ", " + std::to_string(block_index.z) + "): " + what);
}

void Machine::fail_stuck() const {
  std::string text = "no thread can go on:";
  int named = 0;
  for (const State state : {State::AtWarp, State::AtBarrier, State::Done}) {
    const auto end = threads_.begin() + count_;
    const auto at = std::find_if(threads_.begin(), end, [&](const Thread& t) { return t.state == state; });
    if (at != end) text += (named++ == 0 ? " " : "; ") + describe(*at);
  }
  fail(text);
}

Worker& Machine::idle_worker() {
  if (idle_.empty()) {
    workers_.push_back(std::make_unique<Worker>());
    workers_.back()->number = workers_.size() - 1;
    idle_.push_back(workers_.back().get());
  }
  Worker& idle = *idle_.back();
  idle_.pop_back();
  return idle;
}

/// Runs the worker's thread, and after it those whose turn is next, until one has to wait.
void Machine::work(Worker& w) {
  do {
    Thread& t = *w.thread;
    running = &t;
    worker = &w;
    t.worker = &w;
    try {
      (*body_)();
    } catch (const Abandoned&) {
    } catch (...) {
      error_ = std::current_exception();
    }
    t.state = State::Done;
    t.worker = nullptr;
    --live_;
  } while (take_fresh(w));
  idle_.push_back(&w);
}

/// The next lane of the warp's order, where that is a thread that has not begun: it needs no change of stacks.
bool Machine::take_fresh(Worker& w) {
  if (error_ || abandoned) return false;
  for (++place_; place_ < 32; ++place_) {
    const unsigned i = warp_begin_ + order_[place_];
    if (i >= count_ || threads_[i].state != State::Ready) continue;
    if (threads_[i].worker != nullptr) break;
    w.thread = &threads_[i];
    return true;
  }
  --place_;
  return false;
}

void Machine::turn(Thread& t) {
  running = &t;
  ++counters().turns;
  Worker& w = t.worker != nullptr ? *t.worker : idle_worker();
  worker = &w;
  w.thread = &t;
  char* const top = static_cast<char*>(stacks_.top(w.number));
  constexpr size_t kSize = Stacks::kBytes - Stacks::kGuard;
  if (!w.self) {
    context::stack_context where;
    where.sp = top;
    where.size = kSize;
    StackSwitch::fresh(top - kSize, kSize);
    w.self = context::fiber(std::allocator_arg, context::preallocated(where.sp, where.size, where), KeepStack{},
                            [this, &w](context::fiber&& from) {
                              StackSwitch::arrive_first(&stack_lowest, &stack_bytes);
                              w.scheduler = std::move(from);
                              while (true) {
                                work(w);
                                w.stack.leave_for(stack_lowest, stack_bytes);
                                w.scheduler = std::move(w.scheduler).resume();
                                w.stack.arrive();
                              }
                              return std::move(w.scheduler);
                            });
  }
  stack.leave_for(top - kSize, kSize);
  w.self = std::move(w.self).resume();
  stack.arrive();
  if (error_ && !abandoned) std::rethrow_exception(error_);
}

void Machine::abandon() {
  abandoned = true;
  for (unsigned i = 0; i < count_; ++i) {
    if (threads_[i].worker != nullptr) turn(threads_[i]);
  }
  abandoned = false;
  threads_.clear();
}

/// Lets the lanes of the warp run until all wait; true when one of them ran.
bool Machine::run_warp(unsigned w) {
  warp_begin_ = w * 32;
  bool progress = false;
  do {
    for (unsigned l = 0; l < 32; ++l) order_[l] = l;
    std::shuffle(order_, order_ + 32, random_);
    for (place_ = 0; place_ < 32; ++place_) {
      const unsigned i = warp_begin_ + order_[place_];
      if (i >= count_ || threads_[i].state != State::Ready) continue;
      turn(threads_[i]);
      progress = true;
    }
  } while (release_warp(w));
  return progress;
}

bool Machine::release_warp(unsigned w) {
  const unsigned begin = w * 32, end = std::min<unsigned>(begin + 32, count_);
  for (unsigned i = begin; i < end; ++i) {
    const Thread& first = threads_[i];
    if (first.state != State::AtWarp) continue;
    for (unsigned l = 0; l < 32; ++l) {
      if ((first.mask >> l & 1) == 0) continue;
      if (begin + l >= end) fail("a warp operation names lane " + std::to_string(l) + ", which this block lacks");
      const Thread& other = threads_[begin + l];
      if (other.state == State::Done) fail("lanes are missing: " + describe(first) + "; " + describe(other));
      if (other.state != State::AtWarp) return false;
      if (other.mask != first.mask || other.line != first.line || std::strcmp(other.file, first.file) != 0) {
        fail("lanes are at different warp operations: " + describe(first) + "; " + describe(other));
      }
    }
    for (unsigned l = 0; l < 32; ++l) {
      if ((first.mask >> l & 1) != 0 && begin + l < end) threads_[begin + l].state = State::Ready;
    }
    warps[w].parity ^= 1;
    return true;
  }
  return false;
}

bool Machine::release_barrier() {
  const std::span<Thread> threads(threads_.data(), count_);
  const Thread* first = nullptr;
  for (const Thread& t : threads) {
    if (t.state != State::AtBarrier) continue;
    if (first == nullptr) first = &t;
    if (t.line != first->line || std::strcmp(t.file, first->file) != 0) {
      fail("threads are at different barriers: " + describe(*first) + "; " + describe(t));
    }
  }
  if (first == nullptr) return false;
  for (const Thread& t : threads) {
    if (t.state == State::Done) fail("a barrier is not reached by all: " + describe(*first) + "; " + describe(t));
    if (t.state != State::AtBarrier) return false;
  }
  for (Thread& t : threads) t.state = State::Ready;
  ++counters().barriers;
  return true;
}

void Machine::start_block(const char* kernel, const std::function<void()>& thread, size_t shared_bytes) {
  kernel_ = kernel;
  body_ = &thread;
  error_ = nullptr;
  count_ = live_ = block.x * block.y * block.z;
  if (threads_.size() < count_) threads_.resize(count_);
  for (unsigned i = 0; i < count_; ++i) {
    Thread& t = threads_[i];
    t.linear = i;
    t.index = dim3(i % block.x, i / block.x % block.y, i / (block.x * block.y));
    t.state = State::Ready;
    t.open.clear();
    t.groups.clear();
  }
  warps.resize((count_ + 31) / 32);
  shared.assign((shared_bytes + 15) / 16, uint4{~0u, ~0u, ~0u, ~0u});  // NaN in every floating type
  warp_order_.resize(warps.size());
  for (unsigned w = 0; w < warp_order_.size(); ++w) warp_order_[w] = w;
  ++counters().blocks;
}

void Machine::run_block(const char* kernel, const std::function<void()>& thread, size_t shared_bytes) {
  start_block(kernel, thread, shared_bytes);
  try {
    while (live_ > 0) {
      bool progress = false;
      std::shuffle(warp_order_.begin(), warp_order_.end(), random_);
      for (const unsigned w : warp_order_) progress = run_warp(w) || progress;
      if (live_ == 0) break;
      progress = release_barrier() || progress;
      if (!progress) fail_stuck();
    }
  } catch (...) {
    abandon();  // while the fibers' stacks are there
    throw;
  }
  for (const Thread& t : std::span<Thread>(threads_.data(), count_)) {
    const bool copying = std::any_of(t.groups.begin(), t.groups.end(), [](const auto& g) { return !g.empty(); });
    if (!t.open.empty() || copying) fail("a thread returned with asynchronous copies that it never waited for");
  }
}

void perform(Copy& c) {
  if (c.done) return;
  c.done = true;
  if (c.from == nullptr) {
    std::memset(c.to, 0, c.bytes);
  } else {
    std::memcpy(c.to, c.from, c.bytes);
  }
}

/// Hands control back until the scheduler makes this thread ready again.
void wait_as(State state, unsigned mask, const char* file, int line) {
  Thread& t = *machine.running;
  t.state = state;
  t.mask = mask;
  t.file = file;
  t.line = line;
  Worker& w = *machine.worker;
  w.stack.leave_for(machine.stack_lowest, machine.stack_bytes);
  w.scheduler = std::move(w.scheduler).resume();
  w.stack.arrive();
  if (machine.abandoned) throw Abandoned{};
}

}  // namespace

Counters& counters() {
  static Counters all;
  return all;
}

void run_grid(const char* kernel, dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& thread) {
  const uint64_t size = uint64_t{block.x} * block.y * block.z;
  if (size == 0 || size > 1024 || grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535 ||
      shared_bytes > 99 * 1024) {
    throw KernelFault(std::string("kernel ") + kernel + ": invalid launch: grid (" + std::to_string(grid.x) + ", " +
                      std::to_string(grid.y) + ", " + std::to_string(grid.z) + "), " + std::to_string(size) +
                      " threads, " + std::to_string(shared_bytes) + " bytes of shared memory");
  }
  ++counters().launches;
  machine.grid = grid;
  machine.block = block;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        machine.block_index = dim3(x, y, z);
        machine.run_block(kernel, thread, shared_bytes);
      }
    }
  }
}

const dim3& thread_index() { return machine.running->index; }
const dim3& block_index() { return machine.block_index; }
const dim3& block_size() { return machine.block; }
const dim3& grid_size() { return machine.grid; }
unsigned char* dynamic_shared() { return reinterpret_cast<unsigned char*>(machine.shared.data()); }
unsigned lane() { return machine.running->linear % 32; }

void block_barrier(const char* file, int line) { wait_as(State::AtBarrier, 0, file, line); }

const unsigned char* share(unsigned mask, const void* value, size_t bytes, const char* file, int line) {
  const unsigned mine = machine.running->linear;
  Warp& warp = machine.warps[mine / 32];
  const int parity = warp.parity;
  std::memcpy(warp.slots[parity][mine % 32], value, bytes);
  wait_as(State::AtWarp, mask, file, line);
  return machine.warps[mine / 32].slots[parity][0];
}

void copy_later(void* to, const void* from, size_t bytes) {
  machine.running->open.push_back({to, from, bytes, false});
  // The hardware may copy at any moment from here to the wait: now or then, by chance.
  if (machine.by_chance()) perform(machine.running->open.back());
}

void close_copies() {
  Thread& t = *machine.running;
  t.groups.push_back(std::move(t.open));
  t.open.clear();
}

void finish_copies(size_t groups_left) {
  Thread& t = *machine.running;
  for (; t.groups.size() > groups_left; t.groups.erase(t.groups.begin())) {
    for (Copy& c : t.groups.front()) perform(c);
  }
}

}  // namespace triax::simt
