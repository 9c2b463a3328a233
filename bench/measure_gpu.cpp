#include "bench/measure_gpu.h"

#include <algorithm>
#include <map>

#include "base/clock.h"
#include "bench/kernel_calls.h"
#include "bench/timing.h"

namespace triax::bench {
namespace {

constexpr int kRepeats = 5;
constexpr int kLaunches = 500;  // fewer than a stream's queue holds

/// Median over repeats, the first thrown away, of the slowest rank's seconds.
template <class Once>
double median_of(comm::Communicator& world, Once once) {
  std::vector<double> times;
  for (int i = 0; i <= kRepeats; ++i) {
    world.barrier();
    const double time = over_ranks(world, once(), comm::ReduceOp::Max);
    if (i > 0) times.push_back(time);
  }
  return statistics(std::move(times)).median_s;
}

Constant measured(double value, const char* what) {
  return {value, Origin::Measured, std::string("bench all: ") + what};
}

}  // namespace

CallLimits call_limits(Operands& operands, const TimingOptions& timing, comm::Communicator& world, double most_s) {
  constexpr int64_t kMostSide = 8192, kMostCopy = int64_t{1} << 24;
  constexpr double kShare = 64, kSlowerThanCopy = 10;
  const TimingOptions few{.rounds = 1, .sample_s = 0, .most_calls = 1, .settle = timing.settle};
  CallLimits limits;
  double rate = 0;
  for (int64_t side = 32; side <= kMostSide; side *= 2) {
    const GemmPoint point{DType::Float32, GemmLayout::TN, false, side, side, side, 0};
    const double time =
        over_ranks(world, time_cases({gemm_call(operands, point)}, few, &world)[0].min_s, comm::ReduceOp::Max);
    rate = std::max(rate, flops_of(point) / time);
    if (time > most_s / kShare) break;
  }
  limits.most_flops = std::max(rate * most_s, 2.0 * 64 * 64 * 64);  // the least of the plan
  for (int64_t n = int64_t{1} << 12; n <= kMostCopy; n *= 16) {
    const KernelPoint point{"copy", DType::Float32, 1, n, 0};
    const double time =
        over_ranks(world, time_cases({kernel_call(operands, point, 1)}, few, &world)[0].min_s, comm::ReduceOp::Max);
    limits.most_elements = static_cast<int64_t>(most_s / kSlowerThanCopy / time * static_cast<double>(n));
    if (time > most_s / kShare) break;
  }
  limits.most_elements = std::max<int64_t>(limits.most_elements, int64_t{1} << 12);
  return limits;
}

std::map<std::string, Constant> gpu_constants(kernels::DiscreteDevice& device, Arena& arena, comm::Communicator& world,
                                              int64_t copy_bytes) {
  std::map<std::string, Constant> all;
  const Buffer buffer = arena.allocate(DType::Float32, 64, MemoryCategory::Workspace);
  const Tensor few = buffer.view(DType::Float32, {64});
  const double launch_s = median_of(world, [&] {
    const Stopwatch watch;
    for (int i = 0; i < kLaunches; ++i) device.fill(few, 1);
    const double time = watch.elapsed_s() / kLaunches;
    device.synchronize();
    return time;
  });
  const double latency_s = median_of(world, [&] {
    const Stopwatch watch;
    device.fill(few, 1);
    device.synchronize();
    return watch.elapsed_s();
  });
  all["launch_s"] = measured(launch_s, "host time of one of 500 kernels on 64 elements");
  all["launch_latency_s"] = measured(latency_s, "a kernel on 64 elements and the wait for it");
  LinkBench bench;
  bench.sizes = {copy_bytes};
  bench.rounds = 3;
  bench.on.device = &device;
  std::map<CopyKind, double> least;  // of the slowest rank
  for (const CopyRow& row : measure_copies(world, bench)) {
    double& per_s = least.try_emplace(row.kind, 1e9 * row.gbps(row.together_s)).first->second;
    per_s = std::min(per_s, 1e9 * row.gbps(row.together_s));
  }
  all["host_to_device_bytes_per_s"] = measured(least.at(CopyKind::ToDevice), "pinned memory, all ranks at once");
  all["device_to_host_bytes_per_s"] = measured(least.at(CopyKind::FromDevice), "pinned memory, all ranks at once");
  all["multiprocessors"] = measured(device.facts().multiprocessors, "device properties");
  return all;
}

double gpu_runtime_bytes(const kernels::DiscreteDevice& device, const Arena& arena) {
  const kernels::GpuFacts facts = device.facts();
  const int64_t tensors = arena.ledger().live_total + device.workspace().ledger().peak_total;
  return static_cast<double>(std::max<int64_t>(facts.memory_bytes - facts.free_bytes - tensors, 0));
}

}  // namespace triax::bench
