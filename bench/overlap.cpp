#include "bench/overlap.h"

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "bench/kernel_calls.h"

namespace triax::bench {
namespace {

double mean_over(comm::Communicator& group, double mine) {
  group.all_reduce(Tensor(&mine, DType::Float64, {1}), comm::ReduceOp::Sum).wait();
  return mine / group.size();
}

/// Median over the repeats of what `once` returns, mean over the ranks.
template <class Once>
double median_of(comm::Communicator& group, int repeats, Once once) {
  std::vector<double> times;
  for (int i = 0; i <= repeats; ++i) {
    group.barrier();
    const double mine = once();
    if (i > 0) times.push_back(mean_over(group, mine));
  }
  return statistics(std::move(times)).median_s;
}

}  // namespace

double OverlapRow::hidden() const {
  if (collective_s <= 0) return 1;
  return std::clamp((gemm_s + collective_s - both_s) / collective_s, 0.0, 1.0);
}

OverlapRow measure_overlap(comm::ProcessGrid& grid, Operands& operands, Arena& arena, DType dtype, int64_t size,
                           int64_t bytes, int repeats) {
  comm::Communicator& group = grid.data();
  const Buffer buffer = arena.allocate(static_cast<size_t>(bytes), MemoryCategory::Workspace);
  const Tensor message = buffer.view(DType::Float32, {bytes / 4});
  operands.device().fill(message, 0);
  operands.device().synchronize();
  const std::function<void()> gemm = gemm_call(operands, {dtype, GemmLayout::TN, false, size, size, size, 0});
  OverlapRow row;
  row.bytes = bytes;
  const auto reduce = [&] { return group.all_reduce(message, comm::ReduceOp::Sum); };
  row.collective_s = median_of(group, repeats, [&] {
    const Stopwatch watch;
    reduce().wait();
    return watch.elapsed_s();
  });
  const double one_s = median_of(group, repeats, [&] {
    const Stopwatch watch;
    gemm();
    return watch.elapsed_s();
  });
  const auto calls = static_cast<int64_t>(std::ceil(1.5 * row.collective_s / one_s)) + 1;
  const auto multiply = [&] {
    const Stopwatch watch;
    for (int64_t i = 0; i < calls; ++i) gemm();
    return watch.elapsed_s();
  };
  row.gemm_s = median_of(group, repeats, multiply);
  std::vector<double> gemms, collectives;
  row.both_s = median_of(group, repeats, [&] {
    const Stopwatch watch;
    comm::Work work = reduce();
    double done_s = 0;
    for (int64_t i = 0; i < calls; ++i) {
      gemm();
      if (done_s == 0 && work.test()) done_s = watch.elapsed_s();
    }
    gemms.push_back(watch.elapsed_s());
    work.wait();
    collectives.push_back(done_s > 0 ? done_s : watch.elapsed_s());
    return watch.elapsed_s();
  });
  gemms.erase(gemms.begin());
  collectives.erase(collectives.begin());
  row.gemm_beside_s = mean_over(group, statistics(std::move(gemms)).median_s);
  row.collective_beside_s = mean_over(group, statistics(std::move(collectives)).median_s);
  return row;
}

}  // namespace triax::bench
