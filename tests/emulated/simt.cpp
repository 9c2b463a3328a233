#include <simt.h>
#include <sys/mman.h>

#include <algorithm>
#include <boost/context/fiber.hpp>
#include <boost/context/preallocated.hpp>
#include <cstdlib>
#include <deque>
#include <exception>
#include <random>
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
  static void leave_for_good(const void* lowest, size_t bytes) {
    __sanitizer_start_switch_fiber(nullptr, lowest, bytes);
  }
  void arrive() { __sanitizer_finish_switch_fiber(fake, nullptr, nullptr); }
  static void arrive_first(const void** lowest, size_t* bytes) {
    __sanitizer_finish_switch_fiber(nullptr, lowest, bytes);
  }
  static void fresh(void* lowest, size_t bytes) { __asan_unpoison_memory_region(lowest, bytes); }
#else
  void leave_for(const void*, size_t) {}
  static void leave_for_good(const void*, size_t) {}
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
  std::vector<Copy> open;                // copies since the last commit
  std::deque<std::vector<Copy>> groups;  // committed, not yet waited for
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
  bool abandoned = false;
  StackSwitch stack;  // of the scheduler, with where it lies
  const void* stack_lowest = nullptr;
  size_t stack_bytes = 0;
  std::vector<Warp> warps;
  std::vector<uint4> shared;

 private:
  void turn(Thread& t, const std::function<void()>& body);
  void abandon(const std::function<void()>& body);
  bool run_warp(unsigned w, const std::function<void()>& body);
  bool release_warp(unsigned w);
  bool release_barrier();
  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void fail_stuck() const;

  Stacks stacks_;
  std::vector<Thread> threads_;
  unsigned live_ = 0;
  const char* kernel_ = "";
  std::exception_ptr error_;
  std::mt19937 random_{seed()};
};

thread_local Machine machine;

void Machine::fail(const std::string& what) const {
  throw KernelFault(std::string("kernel ") + kernel_ + ", block (" + std::to_string(block_index.x) + ", " +
                    std::to_string(block_index.y) + ", " + std::to_string(block_index.z) + "): " + what);
}

void Machine::fail_stuck() const {
  std::string text = "no thread can go on:";
  int named = 0;
  for (const State state : {State::AtWarp, State::AtBarrier, State::Done}) {
    const auto at = std::find_if(threads_.begin(), threads_.end(), [&](const Thread& t) { return t.state == state; });
    if (at != threads_.end()) text += (named++ == 0 ? " " : "; ") + describe(*at);
  }
  fail(text);
}

void Machine::turn(Thread& t, const std::function<void()>& body) {
  running = &t;
  ++counters().turns;
  char* const top = static_cast<char*>(stacks_.top(t.linear));
  constexpr size_t kSize = Stacks::kBytes - Stacks::kGuard;
  if (!t.self) {
    context::stack_context where;
    where.sp = top;
    where.size = kSize;
    StackSwitch::fresh(top - kSize, kSize);
    t.self = context::fiber(std::allocator_arg, context::preallocated(where.sp, where.size, where), KeepStack{},
                            [this, &t, &body](context::fiber&& from) {
                              StackSwitch::arrive_first(&stack_lowest, &stack_bytes);
                              t.scheduler = std::move(from);
                              try {
                                body();
                              } catch (const Abandoned&) {
                              } catch (...) {
                                error_ = std::current_exception();
                              }
                              t.state = State::Done;
                              StackSwitch::leave_for_good(stack_lowest, stack_bytes);
                              return std::move(t.scheduler);
                            });
  }
  stack.leave_for(top - kSize, kSize);
  t.self = std::move(t.self).resume();
  stack.arrive();
  if (t.state == State::Done) --live_;
  if (error_ && !abandoned) std::rethrow_exception(error_);
}

void Machine::abandon(const std::function<void()>& body) {
  abandoned = true;
  for (Thread& t : threads_) {
    if (t.self && t.state != State::Done) turn(t, body);
  }
  abandoned = false;
  threads_.clear();
}

/// Lets the lanes of the warp run until all wait; true when one of them ran.
bool Machine::run_warp(unsigned w, const std::function<void()>& body) {
  const unsigned begin = w * 32, end = std::min<unsigned>(begin + 32, static_cast<unsigned>(threads_.size()));
  unsigned order[32];
  for (unsigned l = 0; l < 32; ++l) order[l] = l;
  bool progress = false;
  do {
    std::shuffle(order, order + 32, random_);
    for (const unsigned l : order) {
      if (begin + l >= end || threads_[begin + l].state != State::Ready) continue;
      turn(threads_[begin + l], body);
      progress = true;
    }
  } while (release_warp(w));
  return progress;
}

bool Machine::release_warp(unsigned w) {
  const unsigned begin = w * 32, end = std::min<unsigned>(begin + 32, static_cast<unsigned>(threads_.size()));
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
  const Thread* first = nullptr;
  for (const Thread& t : threads_) {
    if (t.state != State::AtBarrier) continue;
    if (first == nullptr) first = &t;
    if (t.line != first->line || std::strcmp(t.file, first->file) != 0) {
      fail("threads are at different barriers: " + describe(*first) + "; " + describe(t));
    }
  }
  if (first == nullptr) return false;
  for (const Thread& t : threads_) {
    if (t.state == State::Done) fail("a barrier is not reached by all: " + describe(*first) + "; " + describe(t));
    if (t.state != State::AtBarrier) return false;
  }
  for (Thread& t : threads_) t.state = State::Ready;
  ++counters().barriers;
  return true;
}

void Machine::run_block(const char* kernel, const std::function<void()>& thread, size_t shared_bytes) {
  kernel_ = kernel;
  error_ = nullptr;
  const unsigned count = block.x * block.y * block.z;
  threads_.clear();
  threads_.resize(count);
  warps.assign((count + 31) / 32, Warp{});
  shared.assign((shared_bytes + 15) / 16, uint4{~0u, ~0u, ~0u, ~0u});  // NaN in every floating type
  for (unsigned i = 0; i < count; ++i) {
    threads_[i].linear = i;
    threads_[i].index = dim3(i % block.x, i / block.x % block.y, i / (block.x * block.y));
  }
  std::vector<unsigned> order(warps.size());
  for (unsigned w = 0; w < order.size(); ++w) order[w] = w;
  live_ = count;
  ++counters().blocks;
  try {
    while (live_ > 0) {
      bool progress = false;
      std::shuffle(order.begin(), order.end(), random_);
      for (const unsigned w : order) progress = run_warp(w, thread) || progress;
      progress = release_barrier() || progress;
      if (live_ > 0 && !progress) fail_stuck();
    }
  } catch (...) {
    abandon(thread);  // while the fibers' stacks are there
    throw;
  }
  for (const Thread& t : threads_) {
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
  t.stack.leave_for(machine.stack_lowest, machine.stack_bytes);
  t.scheduler = std::move(t.scheduler).resume();
  t.stack.arrive();
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
  for (; t.groups.size() > groups_left; t.groups.pop_front()) {
    for (Copy& c : t.groups.front()) perform(c);
  }
}

}  // namespace triax::simt
