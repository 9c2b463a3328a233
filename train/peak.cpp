#include "train/peak.h"

#include <algorithm>
#include <array>

#include "base/clock.h"

namespace triax::train {

double measure_peak_tflops(kernels::Device& device, DType dtype, Arena& arena, comm::Communicator& world) {
  constexpr int64_t kSize = 768;
  constexpr double kSeconds = 0.2;
  std::array<Buffer, 3> buffers;
  std::array<Tensor, 3> matrices;
  for (size_t i = 0; i < buffers.size(); ++i) {
    buffers[i] = arena.allocate(dtype, kSize * kSize, MemoryCategory::Workspace);
    matrices[i] = buffers[i].view(dtype, {kSize, kSize});
    device.fill(matrices[i], 0.5);
  }
  kernels::Gemm gemm;
  gemm.a = matrices[0];
  gemm.b = matrices[1];
  gemm.c = matrices[2];
  world.barrier();
  double best_s = 1e9;
  const Stopwatch all;
  do {
    const Stopwatch one;
    device.gemm(gemm);
    device.synchronize();
    best_s = std::min(best_s, one.elapsed_s());
  } while (all.elapsed_s() < kSeconds);
  double tflops = 2.0 * kSize * kSize * kSize / best_s * 1e-12;
  world.all_reduce(Tensor(&tflops, DType::Float64, {1}), comm::ReduceOp::Sum).wait();
  return tflops / world.size();
}

}  // namespace triax::train
