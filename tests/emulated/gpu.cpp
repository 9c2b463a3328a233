#include "gpu.h"

#include <simt_apart.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

namespace triax::emulated {
namespace {

constexpr auto kLongestLag = std::chrono::microseconds(300);
constexpr auto kPoll = std::chrono::microseconds(50);

using Clock = std::chrono::steady_clock;

uint32_t number_of(const char* variable, uint32_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : static_cast<uint32_t>(std::strtoul(text, nullptr, 10));
}

}  // namespace

Gpu& Gpu::instance() {
  static Gpu gpu;
  return gpu;
}

Gpu::Gpu()
    : random_(number_of("TRIAX_STREAM_SEED", 1) * 1000003u + number_of("PMI_RANK", 0)), thread_([this] { work(); }) {}

Gpu::~Gpu() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Gpu::add(EmulatedStream& stream) {
  const std::lock_guard lock(mutex_);
  streams_.push_back(&stream);
}

void Gpu::remove(EmulatedStream& stream) {
  std::unique_lock lock(mutex_);
  help_until([&stream] { return stream.tasks.empty(); }, lock);
  changed_.wait(lock, [this] { return !running_; });
  std::erase(streams_, &stream);
}

void Gpu::submit(EmulatedStream& stream, Task task) {
  if (stream.capture) {
    stream.capture->tasks.push_back(std::move(task));
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    if (stream.tasks.empty()) {
      stream.since = Clock::now();
      // Half of the times it begins at once.
      stream.lag = random_() % 2 == 0 ? 0 : 1 + random_() % 64;
    }
    stream.tasks.push_back(std::move(task));
  }
  wake_.notify_one();
}

/// Who asks again and again waits: it works meanwhile, too.
bool Gpu::idle(EmulatedStream& stream) {
  const simt::Apart apart;
  std::unique_lock lock(mutex_);
  ++waiting_;
  for (int i = 0; i < 64 && !fault_ && !stream.tasks.empty() && !running_; ++i) {
    EmulatedStream* const next = choose();
    if (next == nullptr || !run_front(*next, lock)) break;
  }
  --waiting_;
  if (fault_) std::rethrow_exception(fault_);
  if (all_idle()) set_host_access(HostAccess::Forbidden);
  return stream.tasks.empty();
}

bool Gpu::all_idle() const {
  return std::all_of(streams_.begin(), streams_.end(), [](const auto* s) { return s->tasks.empty(); });
}

/// A host thread that waits works meanwhile, which saves the change of threads.
void Gpu::help_until(const std::function<bool()>& done, std::unique_lock<std::mutex>& lock) {
  const simt::Apart apart;
  ++waiting_;
  while (!fault_ && !done()) {
    if (running_) {
      changed_.wait(lock);
    } else if (EmulatedStream* const stream = choose(); stream == nullptr || !run_front(*stream, lock)) {
      changed_.wait_for(lock, kPoll);
    }
  }
  --waiting_;
}

void Gpu::drain() {
  std::unique_lock lock(mutex_);
  help_until([this] { return all_idle(); }, lock);
}

bool Gpu::drain_within(double seconds) {
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  std::unique_lock lock(mutex_);
  help_until([&] { return all_idle() || Clock::now() > until; }, lock);
  return fault_ || all_idle();
}

void Gpu::wait(EmulatedStream& stream) {
  wait([&stream] { return stream.tasks.empty(); });
}

void Gpu::wait(const std::function<bool()>& done) {
  std::unique_lock lock(mutex_);
  help_until(done, lock);
  if (fault_) std::rethrow_exception(fault_);
  if (all_idle()) set_host_access(HostAccess::Forbidden);
}

void Gpu::locked(const std::function<void()>& f) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !running_; });
  set_host_access(HostAccess::Allowed);
  f();
}

bool Gpu::held(const EmulatedStream& stream) const {
  return order == StreamOrder::NewestHeld && &stream == streams_.back() &&
         std::none_of(streams_.begin(), streams_.end(), [&](const auto* s) { return s->awaits == &stream; });
}

/// A random stream among those that have work, do not lag behind and are not held; null when there is none now.
EmulatedStream* Gpu::choose() {
  std::vector<EmulatedStream*>& ready = ready_;
  std::vector<EmulatedStream*>& asked = asked_;
  ready.clear();
  asked.clear();
  const auto now = Clock::now();
  for (EmulatedStream* stream : streams_) {
    if (stream->tasks.empty() || held(*stream)) continue;
    const bool lags = waiting_ == 0 && stream->tasks.size() < stream->lag && now - stream->since < kLongestLag;
    if (!lags) (stream->unfinished ? asked : ready).push_back(stream);
  }
  // Every now and then a task is asked again although others have work.
  if (!asked.empty() && (ready.empty() || random_() % 8 == 0)) return asked[random_() % asked.size()];
  return ready.empty() ? nullptr : ready[random_() % ready.size()];
}

bool Gpu::run_front(EmulatedStream& stream, std::unique_lock<std::mutex>& lock) {
  running_ = true;
  set_host_access(HostAccess::Allowed);
  Task task = std::move(stream.tasks.front());
  lock.unlock();
  bool done = true;
  std::exception_ptr fault;
  try {
    done = task();
  } catch (...) {
    fault = std::current_exception();
  }
  lock.lock();
  running_ = false;
  if (fault && !fault_) {
    fault_ = fault;
    memory_may_leak();
  }
  stream.unfinished = !done;
  if (done) {
    stream.tasks.pop_front();
  } else {
    stream.tasks.front() = std::move(task);
  }
  changed_.notify_all();
  return done;
}

void Gpu::work() {
  const simt::Apart apart;
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return ending_ || (!fault_ && !all_idle()); });
    if (ending_) return;
    if (running_ || waiting_ > 0) {  // others are at it
      changed_.wait_for(lock, kLongestLag);
    } else if (EmulatedStream* const stream = choose(); stream == nullptr || !run_front(*stream, lock)) {
      wake_.wait_for(lock, kPoll);
    }
  }
}

}  // namespace triax::emulated

extern "C" __attribute__((visibility("default"))) std::atomic<triax::emulated::StreamOrder>*
triax_emulated_stream_order() {
  return &triax::emulated::Gpu::instance().order;
}
extern "C" __attribute__((visibility("default"))) int* triax_emulated_apart() { return &triax::simt::apart_depth; }
