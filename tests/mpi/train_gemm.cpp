// Products of the trainer on emulated GPUs: what follows a product is done by cuBLASLt's epilogues where a layer has a
// bias or GELU, in bf16 as on the CPU, and without them by passes of their own.
#include <gtest/gtest.h>

#include <cstdlib>

#include "kernels/discrete_device.h"
#include "tests/mpi/parity.h"

namespace triax::test {
namespace {

constexpr int kSteps = 5;

io::RunOptions options_of(const std::string& device) {
  io::RunOptions o = tiny_options({.model = TinyModel::T0, .tp = 2, .sp = parallel::SequenceParallel::Yes});
  o.control.precision = io::Precision::Bf16;
  o.control.device = device;
  o.batch.global_batch_size = 2;
  o.batch.train_iters = kSteps;
  return o;
}

int64_t epilogues(TinyRun& run) {
  return dynamic_cast<kernels::DiscreteDevice&>(run.device()).special_calls().gemm_epilogues;
}

TEST(TrainGemm, LayersWithBiasAndGeluTakeEpilogues) {
  TinyRun reference(session(), options_of("cpu"));
  const Trajectory cpu = trajectory_of(reference, kSteps);
  TinyRun run(session(), options_of("cuda-emulated"));
  const Trajectory gpu = trajectory_of(run, kSteps);
  // 2 micro-batches of 4 layers: GELU, its gradient, and the gradients of the biases of qkv and of the expansion.
  EXPECT_EQ(epilogues(run), int64_t{kSteps} * 2 * 4 * 4);
  expect_forecast_memory(run);
  ::setenv("TRIAX_EMULATED_EPILOGUES", "0", 1);
  TinyRun without(session(), options_of("cuda-emulated"));
  const Trajectory passes = trajectory_of(without, kSteps);
  ::unsetenv("TRIAX_EMULATED_EPILOGUES");
  EXPECT_EQ(epilogues(without), 0);
  for (size_t i = 0; i < cpu.loss.size(); ++i) {
    EXPECT_LT(relative(gpu.loss[i], cpu.loss[i]), 1e-3) << "loss of step " << i + 1;
    EXPECT_LT(relative(gpu.norm[i], cpu.norm[i]), 2e-2) << "norm of step " << i + 1;
    EXPECT_LT(relative(passes.loss[i], cpu.loss[i]), 1e-3) << "loss of step " << i + 1 << " without epilogues";
  }
}

TEST(TrainGemm, EpiloguesRepeatTheirBits) {
  TinyRun first(session(), options_of("cuda-emulated"));
  const Trajectory one = trajectory_of(first, kSteps);
  TinyRun second(session(), options_of("cuda-emulated"));
  const Trajectory two = trajectory_of(second, kSteps);
  EXPECT_EQ(one.loss, two.loss);
  EXPECT_EQ(one.norm, two.norm);
}

}  // namespace
}  // namespace triax::test
