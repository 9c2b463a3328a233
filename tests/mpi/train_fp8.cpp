// fp8 training on emulated GPUs of compute capability 9.0: delayed scaling trains T1 like bf16; factors and losses are
// the same on all replicas and in a run that goes on from a checkpoint; what cannot be is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/mpi/parity.h"
#include "tests/mpi/resumed.h"

namespace triax::test {
namespace {

io::RunOptions options_of(parallel::Fp8Format format, int dp, int pp) {
  io::RunOptions o = tiny_options({.model = TinyModel::T1, .head = Head::Untied, .pp = pp, .dp = dp});
  o.control.precision = io::Precision::Bf16;
  o.control.device = "cuda-emulated";
  o.fp8.format = format;
  o.fp8.amax_history_len = 4;
  o.fp8.algorithm = parallel::AmaxAlgorithm::Max;
  o.batch.global_batch_size = 2;
  o.batch.train_iters = 50;
  return o;
}

int64_t fp8_products(TinyRun& run) {
  return dynamic_cast<kernels::DiscreteDevice&>(run.device()).special_calls().fp8_products;
}

class TrainFp8 : public ::testing::Test {
 protected:
  void SetUp() override { ::setenv("TRIAX_EMULATED_COMPUTE_CAPABILITY", "9.0", 1); }
};

TEST_F(TrainFp8, TrainsT1ToWithinOnePercentOfTheLossOfBf16) {
  constexpr int kSteps = 50;
  io::RunOptions in_bf16 = options_of(parallel::Fp8Format::None, 2, 1);
  in_bf16.control.device = "cpu";  // many times faster than emulated
  TinyRun reference(session(), in_bf16);
  const Trajectory bf16 = trajectory_of(reference, kSteps);
  TinyRun run(session(), options_of(parallel::Fp8Format::Hybrid, 2, 1));
  const Trajectory fp8 = trajectory_of(run, kSteps);
  // 4 layers of 4 linear layers with 3 products each.
  EXPECT_EQ(fp8_products(run), int64_t{kSteps} * 4 * 4 * 3);
  EXPECT_LT(bf16.loss.back(), 0.9 * bf16.loss.front()) << "nothing was learned";
  EXPECT_LT(relative(fp8.loss.back(), bf16.loss.back()), 0.01);
  EXPECT_NE(fp8.loss.back(), bf16.loss.back());
  if (session().rank() == 0) {
    fmt::print("T1, {} steps: loss {:.4f} to {:.4f} in bf16, to {:.4f} in fp8\n", kSteps, bf16.loss.front(),
               bf16.loss.back(), fp8.loss.back());
  }
  expect_forecast_memory(run);
}

TEST_F(TrainFp8, EveryStepEntersTheHistoryOnAllRanksAlike) {
  io::RunOptions options = options_of(parallel::Fp8Format::E4M3, 1, 2);
  TinyRun run(session(), options);
  std::vector<float> earlier;
  for (int step = 1; step <= 3; ++step) {
    run.step();
    const parallel::Fp8Scales& scales = *run.trainer().fp8();
    ASSERT_EQ(scales.held().size(), 8u);  // two layers of four
    for (const auto& held : scales.held()) {
      const std::vector<float> rows = scales.history(held.site);
      for (int age = 0; age < 4; ++age) EXPECT_EQ(rows[static_cast<size_t>(3 * age)] > 0, age < step) << held.tensor;
    }
    const std::vector<float> now = scales.history(scales.held()[0].site);
    if (step > 1) {
      EXPECT_TRUE(std::equal(earlier.begin(), earlier.end() - 3, now.begin() + 3));
    }
    earlier = now;
  }
}

TEST_F(TrainFp8, ARunThatGoesOnHasTheBitsOfOneThatWasNotStopped) {
  io::RunOptions options = options_of(parallel::Fp8Format::Hybrid, 1, 2);
  expect_bits_of_the_run_that_goes_on(session(), options, 2, [](TinyRun&, const std::string& loaded) {
    EXPECT_EQ(loaded.find("no fp8 history"), std::string::npos) << loaded;
  });
}

TEST_F(TrainFp8, RefusesOldGpusTheCpuAndOddSizes) {
  ::setenv("TRIAX_EMULATED_COMPUTE_CAPABILITY", "8.6", 1);
  EXPECT_THAT([] { TinyRun(session(), options_of(parallel::Fp8Format::Hybrid, 2, 1)); },
              ::testing::ThrowsMessage<ConfigError>(::testing::HasSubstr("compute capability 8.6 has no fp8")));
  io::RunOptions cpu = options_of(parallel::Fp8Format::E4M3, 2, 1);
  cpu.control.device = "cpu";
  EXPECT_THAT(
      io::faults(cpu, 2),
      ::testing::ElementsAre("--fp8-format e4m3: the CPU has no fp8 products; use --device cuda, or --bf16 alone"));
  io::RunOptions odd = options_of(parallel::Fp8Format::Hybrid, 2, 1);
  odd.parallel.grid.tensor = 2;  // 176 / 2 = 88
  EXPECT_THAT(io::faults(odd, 2),
              ::testing::ElementsAre(::testing::AllOf(::testing::HasSubstr("--ffn-hidden-size is 176"),
                                                      ::testing::HasSubstr("160 or 192"))));
  odd.parallel.grid.tensor = 1;
  odd.control.precision = io::Precision::Fp32;
  EXPECT_THAT(io::faults(odd, 2), ::testing::ElementsAre(::testing::HasSubstr("use --bf16 or --fp16 with it")));
}

}  // namespace
}  // namespace triax::test
