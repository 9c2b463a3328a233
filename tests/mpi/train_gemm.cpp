// Products of the trainer on emulated GPUs: what follows a product is done by cuBLASLt's epilogues where a layer has a
// bias or GELU, in bf16 as on the CPU, and without them by passes of their own; timed algorithms are those of a file.
#include <gtest/gtest.h>
#include <mpi.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

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

/// The ranks' algorithms pretend to differ in speed; whoever needs a product first decides for both, and for later
/// runs.
TEST(TrainGemm, RanksAndLaterRunsTakeOneChoice) {
  const std::string file =
      (std::filesystem::temp_directory_path() / fmt::format("triax-train-gemm-{}", ::getppid())).string();
  if (session().rank() == 0) std::filesystem::remove(file);
  MPI_Barrier(MPI_COMM_WORLD);
  io::RunOptions options = options_of("cuda-emulated");
  options.control.gemm_cache = file;
  options.control.gemm_tuning = "measure";
  const auto run_with = [&](const char* milliseconds) {
    ::setenv("TRIAX_EMULATED_ALGORITHMS", milliseconds, 1);
    TinyRun run(session(), options);
    Trajectory t = trajectory_of(run, 1);
    const auto timed = [&] { return dynamic_cast<kernels::DiscreteDevice&>(run.device()).timed_products(); };
    const int64_t in_first_step = timed();
    const Trajectory rest = trajectory_of(run, kSteps - 1);
    EXPECT_EQ(timed(), in_first_step) << "a steady step times a product";
    t.loss.insert(t.loss.end(), rest.loss.begin(), rest.loss.end());
    t.norm.insert(t.norm.end(), rest.norm.begin(), rest.norm.end());
    int64_t all = 0;
    MPI_Allreduce(&in_first_step, &all, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    return std::pair(t, all);
  };
  const auto [first, timed] = run_with(session().rank() == 0 ? "30,10,20" : "30,20,10");
  const auto choices = [&] {
    std::ifstream text(file);
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    return lines;
  };
  const std::vector<std::string> made = choices();
  EXPECT_GT(timed, 0);
  EXPECT_EQ(static_cast<int64_t>(made.size()), timed + 1) << "both ranks timed a product";
  const auto [second, timed_again] = run_with("1,20,30");
  EXPECT_EQ(timed_again, 0);
  EXPECT_EQ(choices(), made);
  EXPECT_EQ(first.loss, second.loss);
  EXPECT_EQ(first.norm, second.norm);
  options.control.enable_cuda_graph = true;
  const auto [third, timed_with_graphs] = run_with("1,20,30");
  EXPECT_EQ(timed_with_graphs, 0);
  EXPECT_EQ(first.norm, third.norm);
  ::unsetenv("TRIAX_EMULATED_ALGORITHMS");
  TinyRun untimed(session(), options_of("cuda-emulated"));
  EXPECT_NE(trajectory_of(untimed, kSteps).norm, first.norm) << "the choice changes no bit";
  if (session().rank() == 0) std::filesystem::remove(file);
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
