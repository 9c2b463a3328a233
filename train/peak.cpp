#include "train/peak.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/clock.h"

namespace triax::train {

double measure_peak_tflops(kernels::Device& device, DType dtype, comm::Communicator& world) {
  const int64_t size = device.on_host() ? 768 : 8192;
  Arena memory(device.memory());  // no part of the run's own memory
  constexpr double kSeconds = 0.2;
  // A processor shows its best in a few products; a GPU's clocks rise under load.
  constexpr double kGain = 0.99;
  constexpr int kMostInVain = 6;
  std::array<Buffer, 3> buffers;
  std::array<Tensor, 3> matrices;
  for (size_t i = 0; i < buffers.size(); ++i) {
    buffers[i] = memory.allocate(dtype, size * size, MemoryCategory::Workspace);
    matrices[i] = buffers[i].view(dtype, {size, size});
    device.fill(matrices[i], 0.5);
  }
  kernels::Gemm gemm;
  gemm.a = matrices[0];
  gemm.b = matrices[1];
  gemm.c = matrices[2];
  world.barrier();
  double best_s = 1e9;
  int in_vain = 0;
  const Stopwatch all;
  do {
    const Stopwatch one;
    device.gemm(gemm);
    device.synchronize();
    const double took_s = one.elapsed_s();
    in_vain = took_s < kGain * best_s ? 0 : in_vain + 1;
    best_s = std::min(best_s, took_s);
  } while (all.elapsed_s() < kSeconds && (!device.on_host() || in_vain < kMostInVain));
  double tflops = 2.0 * std::pow(static_cast<double>(size), 3) / best_s * 1e-12;
  world.all_reduce(Tensor(&tflops, DType::Float64, {1}), comm::ReduceOp::Sum).wait();
  return tflops / world.size();
}

}  // namespace triax::train
