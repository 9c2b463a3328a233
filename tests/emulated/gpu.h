// The emulated GPU: streams are queues of tasks that one thread of the process takes from, a random stream at a time,
// while the host goes on. A stream may lag behind by chance, until the host waits or some time has passed: work that
// relies on an order which no event demands sees old or unwritten memory. Chance comes from TRIAX_STREAM_SEED (default
// 1) and the rank.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tests/emulated/recorded.h"

struct EmulatedStream;

namespace triax::emulated {

/// Does its work, or a part of it; true when there is nothing left to do. A task that returns false is asked again, and
/// other streams go on meanwhile.
using Task = std::function<bool()>;

class Gpu {
 public:
  static Gpu& instance();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  ~Gpu();

  void submit(EmulatedStream& stream, Task task);
  void add(EmulatedStream& stream);
  /// Waits for the stream's tasks, and forgets it.
  void remove(EmulatedStream& stream);
  /// Waits until done(); looked at whenever a task has ended. Throws what a kernel threw: as on a real GPU, nothing
  /// works after that.
  void wait(const std::function<bool()>& done);
  void wait(EmulatedStream& stream);
  bool idle(EmulatedStream& stream);
  /// Waits for all streams; for calls that free what they may use. A fault ends it and is left for a later wait.
  void drain();
  /// The same; false when there is work left after so long.
  bool drain_within(double seconds);
  /// Runs `f` while no task runs.
  void locked(const std::function<void()>& f);
  std::atomic<StreamOrder> order = StreamOrder::Random;

 private:
  Gpu();
  void work();
  bool all_idle() const;
  void help_until(const std::function<bool()>& done, std::unique_lock<std::mutex>& lock);
  EmulatedStream* choose();
  bool held(const EmulatedStream& stream) const;
  /// False when the task wants to be asked again.
  bool run_front(EmulatedStream& stream, std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable wake_, changed_;
  std::vector<EmulatedStream*> streams_;
  std::vector<EmulatedStream*> ready_, asked_;
  std::mt19937 random_;
  int waiting_ = 0;       ///< host threads that wait
  bool running_ = false;  ///< a task is
  bool ending_ = false;
  std::exception_ptr fault_;
  std::thread thread_;
};

/// The thread's, until it is asked for. As the real runtime's, also "not ready".
inline thread_local cudaError_t pending_error = cudaSuccess;

/// Time that tasks pretended to take: events come so much later.
inline std::atomic<double> pretended_s = 0;

/// What streams that are being captured were given, in order (graphs.cpp).
struct Capture {
  std::vector<Task> tasks;
  int64_t kernels = 0;                                 ///< of the tasks
  std::vector<std::pair<const void*, size_t>> ranges;  ///< of device memory that copies and fills use
  std::thread::id thread;
  cudaStreamCaptureMode mode;
  bool valid = true;
};
/// Of a call that may wait for the GPU or takes memory: as the driver, it is illegal while this thread captures, or any
/// does in the global mode, and ends these captures.
cudaError_t check_unsafe_call();
/// Of a call that asks for the state of the stream, or waits for it.
cudaError_t check_query(const EmulatedStream& stream);
/// Of a call that gives the stream work, or of one that it may not be given while it is captured. Null is the legacy
/// stream.
enum class Capturable { No, Yes };
cudaError_t check_work(EmulatedStream* stream, Capturable capturable);

/// Device memory (memory.cpp). True when the range lies in one live allocation.
bool on_device(const void* data, size_t bytes);
bool is_pinned(const void* data, size_t bytes);
/// After an error nobody frees anything.
void memory_may_leak();
/// With TRIAX_EMULATED_PROTECT=1 the host may not touch device memory between `Forbidden` and `Allowed` (a segmentation
/// fault, as it would be on a real GPU): while it has waited for the GPU and given it nothing new.
enum class HostAccess { Allowed, Forbidden };
void set_host_access(HostAccess access);

}  // namespace triax::emulated

struct EmulatedStream {
  bool blocking = false;                              // with the legacy stream
  std::shared_ptr<triax::emulated::Capture> capture;  // what comes goes there instead
  std::deque<triax::emulated::Task> tasks;
  bool unfinished = false;                      // the front task wants to be asked again
  const EmulatedStream* awaits = nullptr;       // of which that task, unfinished, awaits an event
  unsigned lag = 0;                             // tasks that it waits for before it begins
  std::chrono::steady_clock::time_point since;  // when its oldest task came
};
