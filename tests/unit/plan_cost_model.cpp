// The cost model: tables interpolate through what was measured, the closed form of a step agrees with the simulation of
// the same costs, and what is asked for more of costs more.
#include <gtest/gtest.h>

#include <sstream>

#include "base/error.h"
#include "io/options/options.h"
#include "io/options/validate.h"
#include "parallel/simulator.h"
#include "plan/cost_model.h"
#include "plan/hardware_presets.h"
#include "plan/step_time.h"
#include "train/program_builder.h"

namespace triax::plan {
namespace {

io::RunOptions run_of(const std::string& words, int world) {
  std::vector<std::string> list;
  std::istringstream stream(words);
  for (std::string word; stream >> word;) list.push_back(word);
  io::RunOptions options = io::parse_options(list).options;
  io::resolve(options, world, io::Purpose::Plan);
  return options;
}

double simulated_s(const io::RunOptions& options, const bench::Hardware& hardware) {
  const parallel::ProgramOptions program = train::program_options(options);
  const Costs costs = costs_of(options, hardware, program);
  parallel::SimulationOptions simulation;
  simulation.replicas = options.parallel.grid.data;
  return static_cast<double>(
             parallel::simulate(parallel::make_training_program(program), costs.table, simulation).makespan_ps) *
         1e-12;
}

const std::string kModel =
    "--num-layers 16 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 "
    "--vocab-size 50257 --bf16 --mock-data --lr 1e-4 --train-iters 1 ";

TEST(StepTime, AgreesWithTheSimulationOfTheSameCosts) {
  const bench::Hardware& a100 = *find_hardware("a100-80gb");
  const struct {
    const char* words;
    int world;
    double tolerance;
  } cases[] = {
      {"--micro-batch-size 2 --global-batch-size 16", 1, 1e-3},
      {"--micro-batch-size 2 --global-batch-size 16 --tensor-model-parallel-size 4", 4, 1e-3},
      {"--micro-batch-size 2 --global-batch-size 16 --tensor-model-parallel-size 4 --sequence-parallel", 4, 5e-3},
      {"--micro-batch-size 1 --global-batch-size 32 --pipeline-model-parallel-size 4", 4, 0.03},
      {"--micro-batch-size 1 --global-batch-size 32 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 "
       "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
       8, 0.03},
      {"--micro-batch-size 1 --global-batch-size 32 --pipeline-model-parallel-size 4 "
       "--num-virtual-stages-per-pipeline-rank 2",
       4, 0.05},
      {"--micro-batch-size 1 --global-batch-size 128 --tensor-model-parallel-size 2 --zero-stage 1", 16, 0.03},
      {"--micro-batch-size 1 --global-batch-size 64 --zero-stage 3", 16, 1e-2},
      {"--micro-batch-size 1 --global-batch-size 32 --pipeline-model-parallel-size 4 --pipeline-schedule zb-h1", 4,
       0.05},
  };
  for (const auto& c : cases) {
    const io::RunOptions options = run_of(kModel + c.words, c.world);
    const StepShape shape = shape_of(options);
    const double closed = step_time(Pricing(a100, *find_software("triax"), shape.dtype), shape).step_s;
    const double simulated = simulated_s(options, a100);
    EXPECT_NEAR(closed / simulated, 1, c.tolerance) << c.words;
  }
}

bench::GemmPoint gemm_point(bench::GemmLayout layout, int64_t m, int64_t n, int64_t k, double time_s) {
  bench::GemmPoint p;
  p.dtype = DType::BFloat16;
  p.layout = layout;
  p.m = m;
  p.n = n;
  p.k = k;
  p.time_s = time_s;
  return p;
}

TEST(DeviceTimes, MeasuredGemmsDecideAlongTheTokens) {
  bench::Hardware h = *find_hardware("a100-80gb");
  // One point is slower than the next: time never falls with the size.
  h.gemms = {gemm_point(bench::GemmLayout::TN, 1024, 4096, 1024, 60e-6),
             gemm_point(bench::GemmLayout::TN, 2048, 4096, 1024, 130e-6),
             gemm_point(bench::GemmLayout::TN, 4096, 4096, 1024, 120e-6),
             gemm_point(bench::GemmLayout::NT, 4096, 1024, 2048, 90e-6),
             gemm_point(bench::GemmLayout::NT, 4096, 1024, 4096, 150e-6)};
  const DeviceTimes device(h, DType::BFloat16);
  const auto forward = [&](double m) { return device.gemm_s({bench::GemmLayout::TN, false, m, 4096, 1024}); };
  EXPECT_DOUBLE_EQ(forward(1024), 60e-6);
  EXPECT_DOUBLE_EQ(forward(4096), 120e-6);
  EXPECT_DOUBLE_EQ(forward(2048), 120e-6);
  EXPECT_DOUBLE_EQ(forward(1536), 90e-6);
  EXPECT_DOUBLE_EQ(device.gemm_s({bench::GemmLayout::NT, true, 4096, 1024, 3072}), 120e-6);
  double last = 0;
  for (double m = 1024; m <= 4096; m += 128) {
    EXPECT_GE(forward(m), last);
    last = forward(m);
  }
}

TEST(CollectiveTimes, GroupsOfAnAxisShareTheNodesPorts) {
  EXPECT_EQ(place_of(8, 1, 8, 64), (GroupPlace{8, 1, 1}));
  EXPECT_EQ(place_of(16, 1, 8, 64), (GroupPlace{16, 2, 1}));
  EXPECT_EQ(place_of(8, 8, 8, 64), (GroupPlace{8, 8, 8}));
  EXPECT_EQ(place_of(16, 2, 8, 64), (GroupPlace{16, 4, 2}));
  const CollectiveTimes times(*find_hardware("a100-80gb"));
  const double bytes = 8e9;
  const auto all_reduce = [&](GroupPlace place) { return times.time_s(comm::Operation::AllReduce, place, bytes); };
  // One rank of each of 8 nodes, eight such groups: a port each; alone it would have all eight.
  EXPECT_NEAR(all_reduce({8, 8, 8}) / (2 * 7.0 / 8 * bytes / 24e9), 1, 0.01);
  EXPECT_NEAR(all_reduce({8, 8, 1}) * 8 / all_reduce({8, 8, 8}), 1, 0.01);
  EXPECT_DOUBLE_EQ(all_reduce({1, 1, 1}), 0);
  EXPECT_NEAR(times.time_s(comm::Operation::AllGather, {8, 1, 1}, bytes) / all_reduce({8, 1, 1}), 0.5, 0.01);
}

}  // namespace
}  // namespace triax::plan
