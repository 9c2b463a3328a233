#include "bench/overlap.h"

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "bench/kernel_calls.h"
#include "bench/timing.h"
#include "kernels/discrete_device.h"

namespace triax::bench {
namespace {

/// group: of the host's memory.
double mean_over(comm::Communicator& group, double mine) {
  return over_ranks(group, mine, comm::ReduceOp::Sum) / group.size();
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

/// The same on a device.
class DeviceOverlap {
 public:
  DeviceOverlap(comm::ProcessGrid& grid, kernels::DiscreteDevice& device, Arena& arena, Tensor message,
                std::function<void()> gemm, int repeats)
      : grid_(&grid),
        group_(&grid.data()),
        host_(&grid.host(grid.data())),
        device_(&device),
        message_(message),
        gemm_(std::move(gemm)),
        repeats_(repeats),
        token_buffer_(arena.allocate(DType::Float32, group_->size(), MemoryCategory::Workspace)),
        token_(token_buffer_.view(DType::Float32, {group_->size()})) {
    device_->fill(token_, 0);
  }

  OverlapRow measure(OverlapRow row) {
    row.collective_s = median([&] {
      reduce().wait();
      device_->mark(1);
      return marked(1);
    });
    const double one_s = median([&] {
      multiply(kFew);
      return marked(1) / kFew;
    });
    const auto calls = static_cast<int64_t>(std::ceil(1.5 * row.collective_s / one_s)) + 1;
    row.gemm_s = median([&] {
      multiply(calls);
      return marked(1);
    });
    std::vector<double> gemms, collectives;
    row.both_s = median([&] {
      const double before = busy_s();
      comm::Work work = reduce();
      multiply(calls);
      work.wait();
      device_->mark(2);
      const double both = marked(2);
      gemms.push_back(device_->marked_s(1) - device_->marked_s(0));
      collectives.push_back(busy_s() - before);
      return both;
    });
    gemms.erase(gemms.begin());
    collectives.erase(collectives.begin());
    row.gemm_beside_s = mean_over(*host_, statistics(std::move(gemms)).median_s);
    row.collective_beside_s = mean_over(*host_, statistics(std::move(collectives)).median_s);
    return row;
  }

 private:
  static constexpr int64_t kFew = 4;

  /// Median of what `once` returns, which starts at mark 0, where the devices of all ranks have just met.
  template <class Once>
  double median(Once once) {
    return median_of(*host_, repeats_, [&] {
      gemm_();
      const int64_t mine = group_->rank();
      group_->all_gather(token_.range(mine, mine + 1), token_).wait();
      device_->mark(0);
      return once();
    });
  }
  comm::Work reduce() { return group_->all_reduce(message_, comm::ReduceOp::Sum); }
  void multiply(int64_t calls) {
    for (int64_t i = 0; i < calls; ++i) gemm_();
    device_->mark(1);
  }
  double marked(size_t slot) {
    device_->synchronize();
    return device_->marked_s(slot) - device_->marked_s(0);
  }
  /// Of all all_reduces that are done, on the group's stream.
  double busy_s() {
    grid_->collect_device_seconds();
    const auto entries = grid_->ledger().snapshot();
    const auto found = entries.find({group_->name(), comm::Operation::AllReduce});
    return found == entries.end() ? 0 : found->second.busy_s;
  }

  comm::ProcessGrid* grid_;
  comm::Communicator* group_;
  comm::Communicator* host_;
  kernels::DiscreteDevice* device_;
  Tensor message_;
  std::function<void()> gemm_;
  int repeats_;
  Buffer token_buffer_;
  Tensor token_;
};

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
  if (auto* device = dynamic_cast<kernels::DiscreteDevice*>(&operands.device())) {
    return DeviceOverlap(grid, *device, arena, message, gemm, repeats).measure(row);
  }
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
