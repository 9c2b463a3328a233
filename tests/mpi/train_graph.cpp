// --enable-cuda-graph on emulated GPUs: the bits, bytes and memory of a run without it, in layouts whose passes are one
// launch each and in those whose communications cut them; how many graphs are launched, and how few kernels are left to
// the host. The streams lag at random.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "kernels/cuda_loader.h"
#include "tests/emulated/recorded.h"
#include "tests/mpi/parity.h"
#include "tests/mpi/resumed.h"

namespace triax::test {
namespace {

constexpr int kSteps = 5;  // from the fourth on, all is replayed

struct Case {
  const char* name;
  Layout layout;
  io::Precision precision = io::Precision::Fp32;
  int zero_stage = 0;
  int64_t passes = 0;    ///< of a step, on each rank
  int64_t launches = 0;  ///< of graphs in a steady step, on rank 0
};

Layout layout(TinyModel model, int tp, int pp, int dp, int vpp = 1) {
  Layout l;
  l.model = model;
  l.head = model == TinyModel::T0 ? Head::Tied : Head::Untied;
  l.tp = tp, l.pp = pp, l.dp = dp, l.vpp = vpp;
  return l;
}

io::RunOptions options_of(const Case& c) {
  io::RunOptions o = tiny_options(c.layout);
  o.model.num_layers = 2 * c.layout.vpp;
  o.model.seq_length = o.model.max_position_embeddings = 16;
  o.control.precision = c.precision;
  o.control.device = "cuda-emulated";
  o.parallel.zero_stage = c.zero_stage;
  o.parallel.zero_persistence_threshold = 0;  // all weights are gathered
  o.batch.global_batch_size = 4 * c.layout.dp;
  o.batch.train_iters = kSteps;
  o.model.hidden_dropout = o.model.attention_dropout = 0.1;  // other masks in every step and micro-batch
  o.optimizer.lr_decay_style = io::LrDecayStyle::Cosine;
  return o;
}

emulated::HostCalls host_calls() {
  const auto symbol = kernels::cuda_module_symbol(kernels::CudaModule::Emulated, "triax_emulated_host_calls");
  return *reinterpret_cast<emulated::HostCalls* (*)()>(symbol)();
}

/// Parameters of this rank, whole.
std::vector<std::byte> weights_of(TinyRun& run) {
  run.trainer().gather_weights();
  std::vector<std::byte> all;
  for (const parallel::Parameter& p : run.trainer().store().parameters()) {
    const size_t begin = all.size();
    all.resize(begin + static_cast<size_t>(p.weight.bytes()));
    run.device().download(p.weight.flat(), Tensor(all.data() + begin, p.weight.dtype(), {p.weight.numel()}));
  }
  return all;
}

/// What a run did, and what its last step was to the host.
struct Ran {
  Trajectory trajectory;
  std::vector<std::byte> weights;
  double sent_bytes = 0;
  kernels::SpecialCalls special;
  kernels::RecorderCounts recorded;  ///< in the last step, but `graphs`
  emulated::HostCalls host;          ///< in the last step, but `graphs`
};

kernels::RecorderCounts counts_of(TinyRun& run) {
  return run.trainer().recorder() == nullptr ? kernels::RecorderCounts{} : run.trainer().recorder()->counts();
}

Ran train(io::RunOptions options, bool graphs, const std::function<void(TinyRun&, int)>& between = {}) {
  options.control.enable_cuda_graph = graphs;
  Ran ran;
  {
    TinyRun run(session(), options);
    for (int step = 1; step < kSteps; ++step) {
      const Trajectory one = trajectory_of(run, 1);
      ran.trajectory.loss.push_back(one.loss[0]);
      ran.trajectory.norm.push_back(one.norm[0]);
      if (between) between(run, step);
    }
    const kernels::RecorderCounts before = counts_of(run);
    const emulated::HostCalls host = host_calls();
    const int64_t calls = run.arena().provider_calls();
    const Trajectory last = trajectory_of(run, 1);
    EXPECT_EQ(run.arena().provider_calls(), calls) << "a steady step takes memory";
    ran.trajectory.loss.push_back(last.loss[0]);
    ran.trajectory.norm.push_back(last.norm[0]);
    const kernels::RecorderCounts after = counts_of(run);
    const emulated::HostCalls now = host_calls();
    ran.recorded = {after.graphs,
                    after.made - before.made,
                    after.launches - before.launches,
                    after.graph_operations - before.graph_operations,
                    after.single_operations - before.single_operations,
                    after.passes - before.passes,
                    after.replayed_passes - before.replayed_passes};
    ran.host = {now.kernels - host.kernels, now.captured - host.captured, now.graph_launches - host.graph_launches,
                now.graph_kernels - host.graph_kernels, now.graphs};
    ran.special = dynamic_cast<kernels::DiscreteDevice&>(run.device()).special_calls();
    ran.sent_bytes = run.grid().ledger().total_sent_bytes();
    if (!between) expect_forecast_memory(run);
    ran.weights = weights_of(run);
  }
  EXPECT_EQ(host_calls().graphs, 0) << "a graph was not destroyed";
  return ran;
}

/// Nothing but the launches differs.
void expect_the_same(const Ran& with, const Ran& without) {
  EXPECT_EQ(with.trajectory.loss, without.trajectory.loss);
  EXPECT_EQ(with.trajectory.norm, without.trajectory.norm);
  EXPECT_TRUE(with.weights == without.weights) << "weights differ";
  EXPECT_EQ(with.sent_bytes, without.sent_bytes);
  EXPECT_EQ(with.special.fp8_products, without.special.fp8_products);
  EXPECT_EQ(with.special.hopper_attention, without.special.hopper_attention);
  EXPECT_EQ(with.special.gemm_epilogues, without.special.gemm_epilogues);
  EXPECT_EQ(without.host.graph_launches, 0);
  EXPECT_EQ(with.host.kernels + with.host.graph_kernels, without.host.kernels) << "a kernel more or less";
  for (size_t i = 1; i < without.trajectory.loss.size(); ++i) {
    EXPECT_NE(without.trajectory.loss[i], without.trajectory.loss[i - 1]);
  }
}

/// In a steady step every pass is replayed, from graphs that were there.
void expect_replays(const Ran& with, int64_t passes) {
  EXPECT_EQ(with.recorded.passes, passes);
  EXPECT_EQ(with.recorded.replayed_passes, passes);
  EXPECT_EQ(with.recorded.made, 0);
  EXPECT_EQ(with.host.captured, 0);
  EXPECT_EQ(with.host.graph_launches, with.recorded.launches);
  EXPECT_EQ(with.host.graphs, with.recorded.graphs);
}

void compare(const Case& c) {
  if (c.layout.world() != session().size()) return;
  SCOPED_TRACE(c.name);
  const Ran without = train(options_of(c), false), with = train(options_of(c), true);
  expect_the_same(with, without);
  expect_replays(with, c.passes);
  if (session().rank() != 0) return;
  EXPECT_EQ(with.recorded.launches, c.launches);
  EXPECT_LT(with.host.kernels, without.host.kernels / 4);
  fmt::print("{}: {} passes of a step in {} launches of {} graphs; kernels launched by the host {} of {}\n", c.name,
             c.passes, with.recorded.launches, with.recorded.graphs, with.host.kernels, without.host.kernels);
}

using enum io::Precision;

TEST(TrainGraph, APassThatDoesNotCommunicateIsOneLaunch) {
  compare({"t0 pp2", layout(TinyModel::T0, 1, 2, 1), Fp32, 0, 8, 8});
  compare({"t1 pp2 bf16", layout(TinyModel::T1, 1, 2, 1), Bf16, 0, 8, 8});
  compare({"t1 pp2 interleaved", layout(TinyModel::T1, 1, 2, 1, 2), Fp32, 0, 16, 16});
}

TEST(TrainGraph, MicroBatchesOfASteadyScheduleShareGraphs) {
  if (session().size() != 2) return;
  io::RunOptions options = options_of({"t1 pp2 of 12 micro-batches", layout(TinyModel::T1, 1, 2, 1)});
  options.batch.global_batch_size = 12;
  const Ran with = train(options, true);
  expect_replays(with, 24);
  EXPECT_EQ(with.recorded.launches, 24);
  EXPECT_LE(with.recorded.graphs, 8);
  if (session().rank() == 0) fmt::print("12 micro-batches: 24 passes of {} graphs\n", with.recorded.graphs);
}

TEST(TrainGraph, RecomputationIsPartOfThePass) {
  for (const auto granularity : {parallel::RecomputeGranularity::Selective, parallel::RecomputeGranularity::Full}) {
    Layout l = layout(TinyModel::T0, 1, 2, 1);
    l.recompute = granularity;
    compare({"t0 pp2 recomputed", l, Fp32, 0, 8, 8});
  }
}

TEST(TrainGraph, CommunicationsCutAPass) {
  compare({"t0 dp2 zero 1", layout(TinyModel::T0, 1, 1, 2), Fp32, 1, 8, 12});
  compare({"t1 dp2 zero 3 bf16", layout(TinyModel::T1, 1, 1, 2), Bf16, 3, 8, 32});
  Layout sequence = layout(TinyModel::T1, 2, 1, 1);
  sequence.sp = parallel::SequenceParallel::Yes;
  compare({"t1 tp2 sequence parallel", sequence, Fp32, 0, 8, 80});
}

TEST(TrainGraph, PipelineAndDataParallelTogether) {
  compare({"t0 pp2 dp2 zero 1", layout(TinyModel::T0, 1, 2, 2), Fp32, 1, 8, 10});
  compare({"t1 pp2 dp2 zero 3 bf16", layout(TinyModel::T1, 1, 2, 2), Bf16, 3, 8, 15});
}

TEST(TrainGraph, SplitBackwardPassesAreLaunchesOfTheirOwn) {
  if (session().size() != 2) return;
  const Case c{"t0 pp2 zb-h1", layout(TinyModel::T0, 1, 2, 1)};
  io::RunOptions options = options_of(c);
  options.parallel.schedule = parallel::ScheduleKind::ZeroBubbleH1;
  const Ran without = train(options, false), with = train(options, true);
  expect_the_same(with, without);
  expect_replays(with, 12);
  EXPECT_EQ(with.recorded.launches, 12);
}

// The loss scale is another one in many steps, and steps are skipped: both are read from the step block.
TEST(TrainGraph, ALossScaleThatChangesNeedsNoOtherGraph) {
  if (session().size() != 2) return;
  io::RunOptions options = options_of({"t0 pp2 fp16", layout(TinyModel::T0, 1, 2, 1), Fp16});
  options.optimizer.initial_loss_scale = 0x1p40;  // overflows
  options.optimizer.hysteresis = 1;
  const Ran without = train(options, false), with = train(options, true);
  EXPECT_EQ(with.trajectory.loss, without.trajectory.loss);
  EXPECT_FALSE(std::isfinite(without.trajectory.norm[0])) << "nothing overflowed";
  EXPECT_TRUE(with.weights == without.weights);
  expect_replays(with, 8);
}

TEST(TrainGraph, Fp8ProductsAndHopperKernelsAreReplayedAndCounted) {
  if (session().size() != 2) return;
  ::setenv("TRIAX_EMULATED_COMPUTE_CAPABILITY", "9.0", 1);
  io::RunOptions options = options_of({"t1 pp2 fp8", layout(TinyModel::T1, 1, 2, 1), Bf16});
  options.fp8.format = parallel::Fp8Format::Hybrid;
  options.fp8.amax_history_len = 4;
  options.batch.global_batch_size = 2;
  const Ran without = train(options, false), with = train(options, true);
  ::unsetenv("TRIAX_EMULATED_COMPUTE_CAPABILITY");
  expect_the_same(with, without);
  expect_replays(with, 4);
  EXPECT_EQ(with.special.fp8_products, kSteps * 2 * 1 * 4 * 3);  // micro-batches, layers, linear layers, products
  EXPECT_GT(with.special.hopper_attention, 0);
}

TEST(TrainGraph, CompressedSumsComeInOrder) {
  if (session().size() != 2) return;
  io::RunOptions options = options_of({"t1 dp2 topk", layout(TinyModel::T1, 1, 1, 2), Fp32, 1});
  options.parallel.compression.method = comm::CompressionMethod::TopK;
  options.parallel.compression.density = 0.05;
  options.parallel.compression.min_elements = 200;
  const Ran without = train(options, false), with = train(options, true);
  expect_the_same(with, without);
  expect_replays(with, 8);
}

// An evaluation takes memory of its own, so that a step after it may have other addresses; then they come again.
TEST(TrainGraph, EvaluationInBetweenIsLaunchedOneByOne) {
  if (session().size() != 2) return;
  io::RunOptions options = options_of({"t0 pp2", layout(TinyModel::T0, 1, 2, 1), Fp32});
  options.batch.train_iters = kSteps + 2;
  const auto evaluate = [](std::vector<double>& losses) {
    return [&losses](TinyRun& run, int step) {
      if (step != 1 && step != 2) return;
      const emulated::HostCalls before = host_calls();
      run.trainer().evaluate_step(run.next_batches());
      losses.push_back(run.trainer().finish_evaluation().loss);
      EXPECT_EQ(host_calls().graph_launches, before.graph_launches);
    };
  };
  std::vector<double> losses, losses_with;
  const Ran without = train(options, false, evaluate(losses)), with = train(options, true, evaluate(losses_with));
  EXPECT_EQ(losses_with, losses);
  EXPECT_EQ(losses.size(), 2u);
  expect_the_same(with, without);
  expect_replays(with, 8);
}

TEST(TrainGraph, ARunThatGoesOnHasTheBitsOfOneThatWasNotStopped) {
  if (session().size() != 2) return;
  io::RunOptions options = options_of({"t1 dp2 zero 3", layout(TinyModel::T1, 1, 1, 2), Bf16, 3});
  options.batch.train_iters = 6;
  options.control.enable_cuda_graph = true;
  expect_bits_of_the_run_that_goes_on(
      session(), options, 4, [](TinyRun& run, const std::string&) { EXPECT_GT(counts_of(run).replayed_passes, 8); });
}

// An op's events stand around all of its launches: times are of whole passes, in the order of the stream.
TEST(TrainGraph, TimesOfOpsAreThoseOfTheirGraphs) {
  if (session().size() != 2) return;
  io::RunOptions options = options_of({"t0 pp2", layout(TinyModel::T0, 1, 2, 1), Fp32});
  options.control.enable_cuda_graph = true;
  TinyRun run(session(), options);
  trajectory_of(run, kSteps);
  const auto& ops = run.trainer().program().positions[static_cast<size_t>(run.trainer().position())];
  const auto times = run.trainer().executor().times();
  ASSERT_EQ(times.size(), ops.size());
  double end_s = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    constexpr double kClock_s = 20e-6;  // two readings of the device's clock
    EXPECT_GE(times[i].start_s, end_s - kClock_s) << "op " << i;
    EXPECT_GE(times[i].stop_s, times[i].start_s - kClock_s);
    if (parallel::is_compute(ops[i].kind)) {
      EXPECT_GT(times[i].stop_s, times[i].start_s);
    }
    end_s = times[i].stop_s;
  }
}

TEST(TrainGraph, TheCpuIsRefused) {
  io::RunOptions options = options_of({"cpu", layout(TinyModel::T0, 1, 1, 1)});
  options.control.enable_cuda_graph = true;
  options.control.device = "cpu";
  EXPECT_THAT(io::faults(options, 1),
              ::testing::ElementsAre("--enable-cuda-graph true: the CPU launches nothing; use --device cuda, or leave "
                                     "it out"));
}

}  // namespace
}  // namespace triax::test
