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

}  // namespace
}  // namespace triax::plan
