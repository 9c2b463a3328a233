#include "machine.h"

#include <algorithm>
#include <span>

namespace triax::simt {

Machine machine;

uint32_t simt_seed() {
  const char* const text = std::getenv("TRIAX_SIMT_SEED");
  return text == nullptr ? 1u : static_cast<uint32_t>(std::strtoul(text, nullptr, 10));
}

namespace {

bool same(const char* a, const char* b) { return a == b || std::strcmp(a, b) == 0; }

std::string describe(const Thread& t) {
  std::string text = "thread (" + std::to_string(t.index.x) + ", " + std::to_string(t.index.y) + ", " +
                     std::to_string(t.index.z) + ") ";
  if (t.state == State::Done) return text + "has returned";
  if (t.state == State::AtMbarrier) return text + "waits for an mbarrier in " + t.file + ":" + std::to_string(t.line);
  text += t.state == State::AtBarrier ? "is at __syncthreads" : "is at a warp operation";
  return text + " in " + t.file + ":" + std::to_string(t.line);
}

}  // namespace

void Machine::fail(const std::string& what) const {
  throw KernelFault(std::string("kernel ") + kernel_ + ", block (" + std::to_string(block_index.x) + ", " +
                    std::to_string(block_index.y) + ", " + std::to_string(block_index.z) + "): " + what);
}

void Machine::fail_stuck() const {
  std::string text = "no thread can go on:";
  int named = 0;
  for (const State state : {State::AtWarp, State::AtBarrier, State::AtMbarrier, State::Done}) {
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

constexpr size_t kStackBytes = Stacks::kBytes - Stacks::kGuard;

void Machine::turn(Thread& t) {
  running = &t;
  ++counters().turns;
  Worker& w = t.worker != nullptr ? *t.worker : idle_worker();
  worker = &w;
  w.thread = &t;
  char* const top = static_cast<char*>(stacks_.top(w.number));
  if (!w.self) {
    context::stack_context where;
    where.sp = top;
    where.size = kStackBytes;
    StackSwitch::fresh(top - kStackBytes, kStackBytes);
    w.self = context::fiber(std::allocator_arg, context::preallocated(where.sp, where.size, where), KeepStack{},
                            [this, &w](context::fiber&& from) {
                              w.stack.arrive_from(&stack_lowest, &stack_bytes);
                              w.scheduler = std::move(from);
                              while (!ending) {
                                work(w);
                                w.stack.leave_for(stack_lowest, stack_bytes);
                                w.scheduler = std::move(w.scheduler).resume();
                                w.stack.arrive_from(&stack_lowest, &stack_bytes);
                              }
                              StackSwitch::leave_for_good(stack_lowest, stack_bytes);
                              return std::move(w.scheduler);
                            });
  }
  stack.leave_for(top - kStackBytes, kStackBytes);
  w.self = std::move(w.self).resume();
  stack.arrive();
  if (error_ && !abandoned) std::rethrow_exception(error_);
}

/// Fibers end by themselves: boost would unwind them by an exception, on stacks that AddressSanitizer is not told of.
Machine::~Machine() {
  ending = true;
  for (Worker* const w : idle_) {
    if (!w->self) continue;
    stack.leave_for(static_cast<char*>(stacks_.top(w->number)) - kStackBytes, kStackBytes);
    w->self = std::move(w->self).resume();
    stack.arrive();
  }
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
    // Cheaper than a shuffle, and any lane may come before any other.
    const auto chance = static_cast<unsigned>(random_());
    for (unsigned l = 0; l < 32; ++l) order_[l] = ((l ^ chance) + (chance >> 5)) % 32;
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
      if (other.mask != first.mask || other.line != first.line || !same(other.file, first.file)) {
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
    if (t.line != first->line || !same(t.file, first->file)) {
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

/// Elements of the strip behind dynamic shared memory.
constexpr size_t kSharedStrip = 64;

/// All of it NaN in every floating type; AddressSanitizer guards what lies behind, and without it a strip is looked at
/// when the block has ended.
void Machine::take_shared(size_t bytes) {
  constexpr uint4 kUnwritten{~0u, ~0u, ~0u, ~0u};
  const size_t whole = (bytes + 15) / 16 + kSharedStrip;
  asked_shared = bytes;
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(shared.data(), shared.size() * sizeof(uint4));
#endif
  if (shared.size() < whole) shared.resize(whole);
  std::fill_n(shared.begin(), whole, kUnwritten);
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(reinterpret_cast<char*>(shared.data()) + bytes, shared.size() * sizeof(uint4) - bytes);
#endif
}

void Machine::check_behind_shared() const {
#if !defined(__SANITIZE_ADDRESS__)
  const auto* const data = reinterpret_cast<const unsigned char*>(shared.data());
  const size_t whole = ((asked_shared + 15) / 16 + kSharedStrip) * sizeof(uint4);
  for (size_t i = asked_shared; i < whole; ++i) {
    if (data[i] != 0xff)
      fail("it wrote behind its " + std::to_string(asked_shared) + " bytes of dynamic shared memory");
  }
#endif
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
    t.visits.clear();
    t.open.clear();
    t.groups.clear();
    t.products_fenced = false;
    t.product_groups = 0;
    t.products.clear();
    t.sums.clear();
  }
  mbarriers.clear();
  boxes.clear();
  shared_offset = static_cast<unsigned>(random_() % 64) * 16;
  warps.resize((count_ + 31) / 32);
  take_shared(shared_bytes);
  warp_order_.resize(warps.size());
  for (unsigned w = 0; w < warp_order_.size(); ++w) warp_order_[w] = w;
  ++counters().blocks;
}

void Machine::run_block(const char* kernel, const std::function<void()>& thread, size_t shared_bytes) {
  start_block(kernel, thread, shared_bytes);
  try {
    while (live_ > 0) {
      bool progress = by_chance() && land_box();
      std::shuffle(warp_order_.begin(), warp_order_.end(), random_);
      for (const unsigned w : warp_order_) progress = run_warp(w) || progress;
      if (live_ == 0) break;
      progress = release_barrier() || progress;
      if (!progress && !land_box()) fail_stuck();
    }
  } catch (...) {
    abandon();  // while the fibers' stacks are there
    throw;
  }
  for (const Thread& t : std::span<Thread>(threads_.data(), count_)) {
    const bool copying = std::any_of(t.groups.begin(), t.groups.end(), [](const auto& g) { return !g.empty(); });
    if (!t.open.empty() || copying) fail("a thread returned with asynchronous copies that it never waited for");
    if (!t.products.empty()) fail("a thread returned with products of its warpgroup that it never waited for");
  }
  check_behind_shared();
  if (!boxes.empty()) fail("all threads returned while a copy to their shared memory is under way");
}

}  // namespace triax::simt
