// Splits work over the OpenMP threads of a device. What a piece computes must not depend on the split.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace triax::kernels {

/// Elements below which a second thread costs more than it saves.
inline constexpr int64_t kElementGrain = 16384;
/// Rows that make a piece of work worth a thread.
inline int64_t row_grain(int64_t cols) { return 8192 / std::max<int64_t>(cols, 1) + 1; }

class Threads {
 public:
  explicit Threads(int count) : count_(count) {}
  int count() const { return count_; }

  /// f(begin, end) over [0, n) in one contiguous piece per thread, each at least `grain` long but for the last.
  template <class F>
  void ranges(int64_t n, int64_t grain, F&& f) const {
    if (n <= 0) return;
    const int64_t pieces = std::clamp<int64_t>(n / std::max<int64_t>(grain, 1), 1, count_);
    if (pieces == 1) {
      f(int64_t{0}, n);
      return;
    }
#pragma omp parallel for num_threads(static_cast <int>(pieces)) schedule(static, 1)
    for (int64_t p = 0; p < pieces; ++p) f(n * p / pieces, n * (p + 1) / pieces);
  }

  /// f(task, thread) for tasks of uneven size, handed out one by one.
  template <class F>
  void tasks(int64_t n, F&& f) const {
    if (count_ == 1 || n <= 1) {
      for (int64_t t = 0; t < n; ++t) f(t, 0);
      return;
    }
#pragma omp parallel for num_threads(count_) schedule(dynamic, 1)
    for (int64_t t = 0; t < n; ++t) f(t, omp_get_thread_num());
  }

 private:
  int count_;
};

/// The thread count that a request of `threads` (0: choose) means: OMP_NUM_THREADS, else the cores of the affinity
/// mask.
int resolve_threads(int threads);

}  // namespace triax::kernels
